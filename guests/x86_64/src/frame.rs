// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the entry of an exception stores, and the vectors (AMD APM vol. 2, chapter 8).

/// Vectors of exceptions.
pub mod vector {
    /// Divide error.
    pub const DE: u64 = 0;
    /// Debug.
    pub const DB: u64 = 1;
    /// Non-maskable interrupt.
    pub const NMI: u64 = 2;
    /// Breakpoint.
    pub const BP: u64 = 3;
    /// Invalid opcode.
    pub const UD: u64 = 6;
    /// Device not available.
    pub const NM: u64 = 7;
    /// Double fault.
    pub const DF: u64 = 8;
    /// Segment not present.
    pub const NP: u64 = 11;
    /// General protection.
    pub const GP: u64 = 13;
    /// Page fault.
    pub const PF: u64 = 14;
    /// Machine check.
    pub const MC: u64 = 18;
}

/// What the entry of an exception stores.
#[repr(C)]
pub struct Frame {
    /// RAX, RBX, RCX, RDX, RSI, RDI, RBP, R8 to R15.
    pub registers: [u64; 15],
    /// The vector.
    pub vector: u64,
    /// The error code, or zero.
    pub error: u64,
    /// Where it happened.
    pub rip: u64,
    /// The code segment.
    pub cs: u64,
    /// The flags.
    pub rflags: u64,
    /// The stack pointer.
    pub rsp: u64,
    /// The stack segment.
    pub ss: u64,
}
