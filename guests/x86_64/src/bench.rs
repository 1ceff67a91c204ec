// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The frame of a measuring guest: the one of all architectures, with the time-stamp counter.

use turnstile_guests_common::bench;

use crate::console::Console;
use crate::platform::platform;
use crate::timer;

/// Measures `operation` against `empty`, the loop of the same shape without what exits; each runs the
/// number of iterations it is given.
pub fn measure(row: &str, operation: impl Fn(u64), empty: impl Fn(u64)) {
    bench::measure(&mut Console, &timer::clock(), platform().command_line(), row, operation, empty);
}

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
