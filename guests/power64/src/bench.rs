// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The frame of a measuring guest: the one of all architectures, with the timebase.

pub use turnstile_guests_common::bench::measure;

/// Runs a loop of `iterations` rounds over the given instructions; R28 counts, and the labels 8 and 9 are taken. The
/// operands are those of `asm!`; what a hypervisor call changes may be changed.
#[macro_export]
macro_rules! measured_loop {
    ($iterations:expr, [$($instruction:literal),* $(,)?], $($operand:tt)*) => {
        // SAFETY: the loop ends, for `iterations` is not zero, and its instructions change only what the
        // operands name and what is named here.
        unsafe {
            core::arch::asm!(
                ".p2align 6",
                "8:",
                $($instruction,)*
                "addi 28, 28, -1",
                "cmpldi 28, 0",
                "bne 8b",
                inout("r28") $iterations => _,
                out("r0") _, out("r3") _, out("r4") _, out("r5") _, out("r6") _, out("r7") _, out("r8") _, out("r9") _,
                out("r10") _, out("r11") _, out("r12") _, out("ctr") _, out("xer") _, out("cr0") _, out("cr1") _,
                out("cr5") _, out("cr6") _, out("cr7") _,
                $($operand)*
            )
        }
    };
}
