// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The frame of a measuring guest: warm up, count the ticks of the loop and of the empty loop, report.
//!
//! Options of the command line: `iterations=N`; `warm-up=N`; `batches` adds the median ticks of short batches, which is what
//! counts where the host does other work, too; `marks` writes `@begin` and `@end` around the measured loop, so
//! that whoever hears them can count something else meanwhile.

use core::fmt::{self, Write};

use crate::clock::{Clock, clock};
use crate::console::Console;
use crate::options;

/// Iterations before the measured ones, if the command line does not say.
pub const WARM_UP: u64 = 256;
/// Measured iterations, as in the seed.
pub const ITERATIONS: u64 = 1 << 20;
/// Operations of one batch.
pub const BATCH: u64 = 64;
/// Batches, of which the median is reported.
const BATCHES: usize = 128;

/// Counts the ticks around `body`.
fn count(clock: &Clock, body: impl FnOnce()) -> u64 {
    let start = clock.now();
    body();
    clock.now() - start
}

/// The median of the ticks of each batch.
fn median(clock: &Clock, body: &impl Fn(u64)) -> u64 {
    let mut ticks = [0; BATCHES];
    for slot in &mut ticks {
        *slot = count(clock, || body(BATCH));
    }
    ticks.sort_unstable();
    ticks[BATCHES / 2]
}

/// Measures `operation` against `empty`, the loop of the same shape without what exits; each runs the
/// number of iterations it is given.
pub fn measure(row: &str, operation: impl Fn(u64), empty: impl Fn(u64)) {
    let _ = report(&mut Console, &clock(), options::line(), row, operation, empty);
}

fn report(
    console: &mut impl Write,
    clock: &Clock,
    line: &str,
    row: &str,
    operation: impl Fn(u64),
    empty: impl Fn(u64),
) -> fmt::Result {
    let iterations = options::number_in(line, "iterations", ITERATIONS);
    if iterations == 0 {
        return writeln!(console, "@error iterations=0 measures nothing");
    }
    let marks = options::find(line, "marks").is_some();
    let warm_up = options::number_in(line, "warm-up", WARM_UP).max(1);
    operation(warm_up);
    empty(warm_up);
    if marks {
        writeln!(console, "@begin")?;
    }
    let ticks = count(clock, || operation(iterations));
    if marks {
        writeln!(console, "@end")?;
    }
    let empty_ticks = count(clock, || empty(iterations));
    let frequency = clock.frequency;
    write!(
        console,
        "@bench row={row} iterations={iterations} ticks={ticks} empty={empty_ticks} frequency={frequency}"
    )?;
    if options::find(line, "batches").is_some() {
        let (median, empty) = (median(clock, &operation), median(clock, &empty));
        write!(console, " batch={BATCH} median={median} median_empty={empty}")?;
    }
    writeln!(console)
}

#[cfg(test)]
mod tests {
    use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

    extern crate std;
    use std::string::String;

    use super::*;

    static TICKS: AtomicU64 = AtomicU64::new(0);

    #[test]
    fn a_line_says_what_was_counted() {
        let clock = Clock { now: || TICKS.load(Relaxed), frequency: 1000, relax: || {} };
        let cost = |each| move |rounds| _ = TICKS.fetch_add(rounds * each, Relaxed);
        let mut text = String::new();
        report(&mut text, &clock, "iterations=10 marks batches", "cpuid", cost(7), cost(2)).unwrap();
        assert_eq!(
            text,
            "@begin\n@end\n@bench row=cpuid iterations=10 ticks=70 empty=20 frequency=1000 batch=64 median=448 \
             median_empty=128\n"
        );
    }
}
