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

/// Assembly that loads x2 to x29 from the stack, where each lies at eight times its number.
macro_rules! load_x2_to_x29 {
    () => {
        r#"
    ldp     x2, x3, [sp, #16]
    ldp     x4, x5, [sp, #32]
    ldp     x6, x7, [sp, #48]
    ldp     x8, x9, [sp, #64]
    ldp     x10, x11, [sp, #80]
    ldp     x12, x13, [sp, #96]
    ldp     x14, x15, [sp, #112]
    ldp     x16, x17, [sp, #128]
    ldp     x18, x19, [sp, #144]
    ldp     x20, x21, [sp, #160]
    ldp     x22, x23, [sp, #176]
    ldp     x24, x25, [sp, #192]
    ldp     x26, x27, [sp, #208]
    ldp     x28, x29, [sp, #224]
        "#
    };
}

pub(crate) use load_x2_to_x29;
