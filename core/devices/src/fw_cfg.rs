// SPDX-License-Identifier: Apache-2.0 OR MIT
//! QEMU's configuration device by ports (QEMU, `docs/specs/fw_cfg.rst`). Guests read from it how much memory and how many CPUs
//! there are. There are no files, and there is no DMA.

/// Items that are there.
mod key {
    pub const SIGNATURE: u16 = 0x00;
    pub const FEATURES: u16 = 0x01;
    pub const MEMORY: u16 = 0x03;
    pub const CPUS: u16 = 0x05;
    pub const MOST_CPUS: u16 = 0x0f;
    pub const FILES: u16 = 0x19;
}

/// The configuration device.
#[derive(Clone, Debug)]
pub struct FwCfg {
    memory: u64,
    cpus: u16,
    selected: u16,
    at: usize,
}

impl FwCfg {
    /// The port of the selector, of 16 bits.
    pub const SELECTOR: u16 = 0x510;
    /// The port of the data, of 8 bits.
    pub const DATA: u16 = 0x511;
    /// Features: the traditional interface, and no DMA.
    const FEATURES: u32 = 1;

    /// Makes that of a machine with so many bytes of RAM and CPUs.
    pub const fn new(memory: u64, cpus: u16) -> Self {
        Self { memory, cpus, selected: key::SIGNATURE, at: 0 }
    }

    /// Reads a port. The selector cannot be read.
    pub fn read(&mut self, port: u16) -> u8 {
        if port != Self::DATA {
            return 0xff;
        }
        let at = self.at;
        self.at = at.saturating_add(1);
        let byte = |bytes: &[u8]| bytes.get(at).copied().unwrap_or(0);
        match self.selected {
            key::SIGNATURE => byte(b"QEMU"),
            key::FEATURES => byte(&Self::FEATURES.to_le_bytes()),
            key::MEMORY => byte(&self.memory.to_le_bytes()),
            key::CPUS | key::MOST_CPUS => byte(&self.cpus.to_le_bytes()),
            // A count of zero, big-endian, as all of the directory is.
            key::FILES => byte(&0u32.to_be_bytes()),
            _ => 0,
        }
    }

    /// Writes a port: selects an item. Items cannot be written.
    pub fn write(&mut self, port: u16, value: u16) {
        if port == Self::SELECTOR {
            (self.selected, self.at) = (value, 0);
        }
    }
}
