// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the exception vectors store.

/// The registers of the interrupted program, as the vectors store them.
#[repr(C)]
pub struct Frame {
    /// x0 to x30.
    pub x: [u64; 31],
    /// SP_EL0, the program's stack pointer.
    pub sp: u64,
    /// Where the program goes on.
    pub elr: u64,
    /// Its PSTATE.
    pub spsr: u64,
    /// The syndrome, ESR_EL1.
    pub esr: u64,
    /// The faulting address, FAR_EL1, if the syndrome has one.
    pub far: u64,
}
