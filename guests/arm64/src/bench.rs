// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The frame of a measuring guest: the one of all architectures, with the virtual counter.

pub use turnstile_guests_common::bench::measure;

/// Runs a loop of `iterations` rounds over the given instructions: `mov x19, n`, aligned body,
/// `sub`/`cbnz`. The operands are those of `asm!`.
#[macro_export]
macro_rules! measured_loop {
    ($iterations:expr, [$($instruction:literal),* $(,)?], $($operand:tt)*) => {
        // SAFETY: the loop ends, for `iterations` is not zero, and its instructions change only what the
        // operands name and what the C ABI lets a call change.
        unsafe {
            core::arch::asm!(
                ".p2align 6",
                "1:",
                $($instruction,)*
                "sub {n}, {n}, #1",
                "cbnz {n}, 1b",
                n = inout(reg) $iterations => _,
                $($operand)*
                options(nostack),
            )
        }
    };
}
