// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What PCI functions a guest has, before any of them runs.

/// The PCI functions of a guest, in the order of their slots, of which the first has number 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Functions {
    /// How many there are.
    pub count: usize,
    /// A bit for each: whether it is a network device. Others are disks.
    networks: u64,
}

impl Functions {
    /// Adds one in the next slot.
    pub const fn push(&mut self, is_network: bool) {
        self.networks |= (is_network as u64) << (self.count % 64);
        self.count += 1;
    }

    /// Says whether there is none.
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Says whether the function in a slot is a network device.
    pub const fn is_network(&self, slot: u64) -> bool {
        self.networks >> (slot.wrapping_sub(1) % 64) & 1 != 0
    }
}
