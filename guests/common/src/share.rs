// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The guest that says what share of its physical CPUs each of its CPUs got between two moments.
//!
//! Options: `from=` and `until=`, microseconds on a clock that all VMs have in common (200000 and 500000); from the start on
//! if `from=0`.

use core::fmt::Write;
use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering};

use crate::clock::Clock;
use crate::options;

/// What the CPUs got.
pub struct Shares<const CPUS: usize> {
    /// CPUs that have finished.
    finished: AtomicU64,
    ran: [AtomicU64; CPUS],
}

impl<const CPUS: usize> Shares<CPUS> {
    /// Returns those of nobody.
    pub const fn new() -> Self {
        Shares { finished: AtomicU64::new(0), ran: [const { AtomicU64::new(0) }; CPUS] }
    }

    /// Enters for how many microseconds a CPU ran.
    pub fn enter(&self, cpu: usize, microseconds: u64) {
        if let Some(ran) = self.ran.get(cpu) {
            ran.store(microseconds, Ordering::Relaxed);
        }
        self.finished.fetch_add(1, Ordering::Release);
    }

    /// Waits until so many CPUs have finished, with `relax` between two looks, and prints what they got.
    pub fn report(&self, console: &mut impl Write, cpus: usize, relax: fn()) {
        // The others may be behind by as long as they have waited for their turn.
        while self.finished.load(Ordering::Acquire) != cpus as u64 {
            relax();
        }
        for (index, ran) in self.ran.iter().enumerate().take(cpus) {
            let _ = writeln!(console, "@share cpu={index} ran={}", ran.load(Ordering::Relaxed));
        }
        let _ = writeln!(console, "@done");
    }
}

impl<const CPUS: usize> Default for Shares<CPUS> {
    fn default() -> Self {
        Self::new()
    }
}

/// Waits for the first of the two moments, and says so if it has passed; returns both. They count from `base`, in ticks.
pub fn wait_for_begin(
    console: &mut impl Write,
    line: &str,
    clock: &Clock,
    base: u64,
    cpu: usize,
) -> Range<u64> {
    let at = |option, default| clock.ticks(options::number_in(line, option, default));
    let (early, late) = (at("from", 200_000), at("until", 500_000));
    let moments = base + early..base + late;
    if early != 0 && clock.now() >= moments.start {
        let _ = writeln!(console, "@late cpu={cpu}");
    }
    while clock.now() < moments.start {}
    moments
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::string::String;

    use super::*;

    #[test]
    fn who_is_late_says_so() {
        let clock = Clock { now: || 300_000, frequency: 1_000_000, relax: || {} };
        let said = |line, base| {
            let mut text = String::new();
            let moments = wait_for_begin(&mut text, line, &clock, base, 3);
            (moments, text)
        };
        assert_eq!(said("", 0), (200_000..500_000, "@late cpu=3\n".into()));
        assert_eq!(said("", 100_000), (300_000..600_000, "@late cpu=3\n".into()));
        assert_eq!(said("from=0 until=7", 0), (0..7, String::new()));
    }

    #[test]
    fn each_cpu_has_a_line() {
        let shares: Shares<2> = Shares::new();
        (0..3).for_each(|cpu| shares.enter(cpu, 10 * cpu as u64));
        let mut text = String::new();
        shares.report(&mut text, 3, || {});
        assert_eq!(text, "@share cpu=0 ran=0\n@share cpu=1 ran=10\n@done\n");
    }
}
