// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The frame of a measuring guest: warm up, count the ticks of the loop and of the empty loop, report.

use crate::options;
use crate::println;
use crate::timer;

/// Iterations before the measured ones.
pub const WARM_UP: u64 = 256;
/// Measured iterations, as in the seed.
pub const ITERATIONS: u64 = 1 << 20;

/// Counts the virtual counter's ticks around `body`.
fn count(body: impl FnOnce()) -> u64 {
    let start = timer::now();
    body();
    timer::now() - start
}

/// Measures `operation` against `empty`, the loop of the same shape without what exits; each runs the
/// number of iterations it is given.
pub fn measure(row: &str, operation: impl Fn(u64), empty: impl Fn(u64)) {
    let iterations = options::number("iterations", ITERATIONS);
    if iterations == 0 {
        println!("@error iterations=0 measures nothing");
        return;
    }
    operation(WARM_UP);
    empty(WARM_UP);
    let ticks = count(|| operation(iterations));
    let empty = count(|| empty(iterations));
    let frequency = timer::frequency();
    println!("@bench row={row} iterations={iterations} ticks={ticks} empty={empty} frequency={frequency}");
}

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
