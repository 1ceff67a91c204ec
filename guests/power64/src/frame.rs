// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the entry of an exception stores, and the vectors (Power ISA 3.0B Book III, chapter 6).

/// Interrupt vectors.
pub mod vector {
    /// System reset.
    pub const RESET: u64 = 0x100;
    /// Machine check.
    pub const MACHINE_CHECK: u64 = 0x200;
    /// Data storage.
    pub const DATA_STORAGE: u64 = 0x300;
    /// Data segment.
    pub const DATA_SEGMENT: u64 = 0x380;
    /// Instruction storage.
    pub const INSTRUCTION_STORAGE: u64 = 0x400;
    /// Instruction segment.
    pub const INSTRUCTION_SEGMENT: u64 = 0x480;
    /// External.
    pub const EXTERNAL: u64 = 0x500;
    /// Alignment.
    pub const ALIGNMENT: u64 = 0x600;
    /// Program.
    pub const PROGRAM: u64 = 0x700;
    /// Floating-point unavailable.
    pub const FP: u64 = 0x800;
    /// Decrementer.
    pub const DECREMENTER: u64 = 0x900;
    /// Directed privileged doorbell.
    pub const DOORBELL: u64 = 0xa00;
    /// System call.
    pub const SYSTEM_CALL: u64 = 0xc00;
    /// Trace.
    pub const TRACE: u64 = 0xd00;
    /// Vector unavailable.
    pub const VEC: u64 = 0xf20;
    /// VSX unavailable.
    pub const VSX: u64 = 0xf40;
    /// Facility unavailable.
    pub const FACILITY: u64 = 0xf60;
}

/// What the entry of an exception stores.
#[repr(C)]
pub struct Frame {
    /// R0 to R31.
    pub registers: [u64; 32],
    /// Where it happened, or where to go on (SRR0).
    pub nip: u64,
    /// The machine state, and bits about the cause (SRR1).
    pub msr: u64,
    /// Condition register.
    pub cr: u64,
    /// Link register.
    pub lr: u64,
    /// Count register.
    pub ctr: u64,
    /// Fixed-point exception register.
    pub xer: u64,
    /// The vector.
    pub vector: u64,
    reserved: u64,
}
