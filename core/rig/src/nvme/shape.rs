// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a controller says of itself (sections 3.1.1 and 5.15).

/// What a controller is.
#[derive(Clone, Debug)]
pub struct Shape {
    /// Its version, as its register says it.
    pub version: u32,
    /// How many entries an I/O queue has at most.
    pub entries: u32,
    /// CAP.DSTRD.
    pub stride: u8,
    /// CAP.TO: half seconds.
    pub timeout: u8,
    /// CAP.MPSMIN.
    pub page: u8,
    /// CAP.CSS.
    pub command_sets: u8,
    /// MDTS.
    pub most: u8,
    /// ONCS.
    pub optional: u16,
    /// VWC.
    pub cache: bool,
    /// LBADS.
    pub block: u8,
    /// DLFEAT.
    pub deallocation: u8,
    /// The namespace that is the disk.
    pub namespace: u32,
    /// The other active namespaces: their blocks have metadata.
    pub others: Vec<u32>,
    /// It interrupts by messages; otherwise by its pin.
    pub msix: bool,
}

impl Default for Shape {
    fn default() -> Self {
        Self {
            version: 0x0001_0400,
            entries: 2048,
            stride: 0,
            timeout: 15,
            page: 0,
            command_sets: 1,
            most: 7,
            optional: 0b1100,
            cache: true,
            block: 9,
            deallocation: 0b1001,
            namespace: 1,
            others: Vec::new(),
            msix: true,
        }
    }
}

impl Shape {
    /// CAP.
    pub(super) fn capabilities(&self) -> u64 {
        let low = u64::from(self.entries - 1) | 1 << 16 | u64::from(self.timeout) << 24;
        let high = u64::from(self.stride) | u64::from(self.command_sets) << 5 | u64::from(self.page) << 16;
        low | high << 32
    }

    /// How many bytes a block has.
    pub(super) const fn block_bytes(&self) -> u64 {
        1 << self.block
    }

    /// How many bytes a command moves at most.
    pub(super) const fn most_bytes(&self) -> u64 {
        if self.most == 0 { u64::MAX } else { 4096 << self.most }
    }
}
