// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a controller says of itself (sections 3.1.1 and 5.15).

use turnstile_block::disk::SECTOR;

use super::Nvme;

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

impl Nvme {
    /// What Identify answers: the structure of this number.
    pub(super) fn identify(&self, structure: u8, namespace: u32) -> Option<Vec<u8>> {
        let mut bytes = vec![0; 4096];
        let mut put = |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
        let shape = &self.shape;
        match structure {
            0 => {
                let is_other = shape.others.contains(&namespace);
                if is_other || namespace == shape.namespace {
                    let blocks = self.platter.bytes.borrow().len() as u64 / shape.block_bytes();
                    put(0, &blocks.to_le_bytes());
                    // The third of three formats is in use.
                    put(25, &[2, 2]);
                    put(33, &[shape.deallocation]);
                    put(136, &[if is_other { 8 } else { 0 }, 0, shape.block, 0]);
                }
            }
            1 => {
                put(77, &[shape.most]);
                put(512, &[0x66, 0x44]);
                put(516, &(1 + shape.others.len() as u32).to_le_bytes());
                put(520, &shape.optional.to_le_bytes());
                put(525, &[shape.cache.into()]);
            }
            2 => {
                let all = shape.others.iter().copied().chain([shape.namespace]);
                let mut above: Vec<_> = all.filter(|&number| number > namespace).collect();
                above.sort_unstable();
                for (at, number) in (0..).step_by(4).zip(above) {
                    put(at, &number.to_le_bytes());
                }
            }
            _ => return None,
        }
        let patches = self.identified.borrow();
        let patches = patches.iter().filter(|((of, _), _)| *of == structure);
        for ((_, at), byte) in patches {
            bytes[usize::from(*at)] = *byte;
        }
        Some(bytes)
    }

    /// How many blocks the disk has.
    pub(super) fn blocks(&self) -> u64 {
        self.platter.bytes.borrow().len() as u64 / self.shape.block_bytes().max(SECTOR)
    }
}
