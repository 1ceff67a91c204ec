// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What PCI functions a guest has, before any of them runs.

/// What a PCI function is to its guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FunctionKind {
    /// A disk.
    Disk,
    /// A network device.
    Network,
    /// A source of random numbers.
    Entropy,
    /// A console, or ports of one.
    Console,
    /// A memory balloon.
    Balloon,
}

/// The PCI functions of a guest, in the order of their slots, of which the first has number 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Functions {
    /// How many there are.
    pub count: usize,
    /// A bit for each: whether it is a network device.
    networks: u64,
    /// A bit for each: whether it is a source of random numbers.
    entropy: u64,
    /// A bit for each: whether it is a console.
    consoles: u64,
    /// A bit for each: whether it is a balloon. What is none of these is a disk.
    balloons: u64,
}

impl Functions {
    /// Adds one in the next slot.
    pub const fn push(&mut self, kind: FunctionKind) {
        let bit = 1 << (self.count % 64);
        match kind {
            FunctionKind::Disk => {}
            FunctionKind::Network => self.networks |= bit,
            FunctionKind::Entropy => self.entropy |= bit,
            FunctionKind::Console => self.consoles |= bit,
            FunctionKind::Balloon => self.balloons |= bit,
        }
        self.count += 1;
    }

    /// Says whether there is none.
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns what the function in a slot is.
    pub const fn kind(&self, slot: u64) -> FunctionKind {
        let bit = 1 << (slot.wrapping_sub(1) % 64);
        if self.networks & bit != 0 {
            FunctionKind::Network
        } else if self.entropy & bit != 0 {
            FunctionKind::Entropy
        } else if self.consoles & bit != 0 {
            FunctionKind::Console
        } else if self.balloons & bit != 0 {
            FunctionKind::Balloon
        } else {
            FunctionKind::Disk
        }
    }
}
