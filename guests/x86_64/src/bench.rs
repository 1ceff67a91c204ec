// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The frame of a measuring guest: the one of all architectures, with the time-stamp counter.

pub use turnstile_guests_common::bench::measure;

/// Runs a loop of `iterations` rounds over the given instructions: `mov r12, n`, aligned body with the label 8, `dec`/`jnz`. The
/// operands are those of `asm!`; RBX, which cannot be one, and R12 are kept.
#[macro_export]
macro_rules! measured_loop {
    ($iterations:expr, [$($instruction:literal),* $(,)?], $($operand:tt)*) => {
        // SAFETY: the loop ends, for `iterations` is not zero, and its instructions change only what the
        // operands name, RBX, and what the C ABI lets a call change.
        unsafe {
            core::arch::asm!(
                "push rbx",
                ".p2align 6",
                "8:",
                $($instruction,)*
                "dec r12",
                "jnz 8b",
                "pop rbx",
                inout("r12") $iterations => _,
                $($operand)*
            )
        }
    };
}
