// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The frame of a measuring guest: warm up, count the ticks of the loop and of the empty loop, report.
//!
//! Options of the command line: `iterations=N`; `warm-up=N`; `batches` adds the median ticks of short batches, which is what
//! counts where the host does other work, too; `marks` writes `@begin` and `@end` around the measured loop, so
//! that whoever hears them can count something else meanwhile.

use crate::{options, print, println, timer};

/// Iterations before the measured ones, if the command line does not say.
pub const WARM_UP: u64 = 256;
/// Measured iterations, as in the seed.
pub const ITERATIONS: u64 = 1 << 20;
/// Operations of one batch.
pub const BATCH: u64 = 64;
/// Batches, of which the median is reported.
const BATCHES: usize = 128;

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
    let warm_up = options::number("warm-up", WARM_UP).max(1);
    operation(warm_up);
    empty(warm_up);
    mark("@begin");
    let ticks = count(|| operation(iterations));
    mark("@end");
    let empty_ticks = count(|| empty(iterations));
    let frequency = timer::frequency();
    print!(
        "@bench row={row} iterations={iterations} ticks={ticks} empty={empty_ticks} frequency={frequency}"
    );
    if options::get("batches").is_some() {
        let (median, empty) = (median(&operation), median(&empty));
        print!(" batch={BATCH} median={median} median_empty={empty}");
    }
    println!();
}

fn mark(line: &str) {
    if options::get("marks").is_some() {
        println!("{line}");
    }
}

/// The median of the ticks of each batch.
fn median(body: &impl Fn(u64)) -> u64 {
    let mut ticks = [0; BATCHES];
    for slot in &mut ticks {
        *slot = count(|| body(BATCH));
    }
    ticks.sort_unstable();
    ticks[BATCHES / 2]
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
