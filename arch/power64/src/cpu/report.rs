// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What an interrupt of the hypervisor itself leaves, and who is told.

/// What an interrupt in hypervisor state has left. `vectors.S` knows this layout.
#[repr(C)]
pub struct Report {
    /// General registers.
    pub gpr: [u64; 32],
    /// Link register.
    pub lr: u64,
    /// Count register.
    pub ctr: u64,
    /// Fixed-point exception register.
    pub xer: u64,
    /// Condition register.
    pub cr: u64,
    /// Where it happened: SRR0.
    pub pc: u64,
    /// In which state: SRR1.
    pub msr: u64,
    /// Data address register.
    pub dar: u64,
    /// Data storage interrupt status.
    pub dsisr: u64,
}

/// Where vectors go on with an interrupt of the hypervisor itself: what it has left, and the vector.
pub type Reporter = extern "C" fn(&Report, u64) -> !;
