// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What exits and entries do against speculation.

/// What is done on each exit from a guest, and on each entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Exit {
    /// IBPB: all predictions of branches are forgotten.
    pub barrier: bool,
    /// The return stack is filled with harmless addresses.
    pub fill: bool,
    /// VERW before the entry.
    pub clear: bool,
    /// SPEC_CTRL is the hypervisor's behind the exit, and the guest's before the entry.
    pub switch: bool,
}

impl Exit {
    /// Nothing.
    pub const NOTHING: Self = Self { barrier: false, fill: false, clear: false, switch: false };

    /// The number of the run loop that does this: a bit for each.
    pub const fn number(self) -> usize {
        self.barrier as usize
            | (self.fill as usize) << 1
            | (self.clear as usize) << 2
            | (self.switch as usize) << 3
    }
}
