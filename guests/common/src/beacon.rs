// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The guest that must not notice what happens beside it: a line at every tick of its timer, a memory pattern checked each
//! time, the lateness of every tick.
//!
//! Options: `count=` beacons (default 100), `period=` microseconds (10000), `after=` microseconds until the first period
//! begins (0), `limit=` microseconds that a tick may be late (none by default; 0 is none).

use core::fmt::{self, Write};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::clock::{Clock, clock};
use crate::console::Console;
use crate::options;

const WORDS: usize = (1 << 20) / 8;

/// The memory and the ticks.
pub struct Beacon {
    memory: [AtomicU64; WORDS],
    period: AtomicU64,
    due: AtomicU64,
    ticks: AtomicU64,
    latest: AtomicU64,
    worst: AtomicU64,
}

impl Beacon {
    /// Returns one that has not begun.
    pub const fn new() -> Self {
        Beacon {
            memory: [const { AtomicU64::new(0) }; WORDS],
            period: AtomicU64::new(0),
            due: AtomicU64::new(0),
            ticks: AtomicU64::new(0),
            latest: AtomicU64::new(0),
            worst: AtomicU64::new(0),
        }
    }

    /// Prints a line at each tick, and how it went: `arm` sets the timer to the first tick, `wait` waits for the tick of a
    /// number, `disarm` ends the ticks.
    pub fn run(&self, arm: fn(u64), wait: fn(u64), disarm: fn()) {
        let (line, clock) = (options::line(), clock());
        arm(self.begin(line, &clock));
        let errors = self.watch(&mut Console, line, &clock, wait);
        disarm();
        let _ = self.report(&mut Console, line, &clock, errors);
    }

    /// Fills the memory; returns when the first tick is due.
    fn begin(&self, line: &str, clock: &Clock) -> u64 {
        self.period.store(clock.ticks(options::number_in(line, "period", 10_000)), Relaxed);
        self.fill(0);
        let after = clock.ticks(options::number_in(line, "after", 0));
        self.due.store(clock.now() + after + self.period.load(Relaxed), Relaxed);
        self.due.load(Relaxed)
    }

    /// Enters a tick; returns when the next one is due.
    pub fn tick(&self, now: u64) -> u64 {
        let due = self.due.load(Relaxed);
        let late = now.saturating_sub(due);
        self.latest.store(late, Relaxed);
        self.worst.fetch_max(late, Relaxed);
        let next = due + self.period.load(Relaxed);
        self.due.store(next, Relaxed);
        self.ticks.fetch_add(1, Relaxed);
        next
    }

    /// Says whether so many ticks have come.
    pub fn has_ticked(&self, beacon: u64) -> bool {
        self.ticks.load(Relaxed) >= beacon
    }

    /// Prints a line at each tick, which `wait` waits for, and checks the memory; returns how many errors there were.
    fn watch(&self, console: &mut impl Write, line: &str, clock: &Clock, wait: impl Fn(u64)) -> u64 {
        let mut errors = 0;
        for beacon in 1..=count(line) {
            wait(beacon);
            let late = clock.microseconds(self.latest.load(Relaxed));
            let _ = writeln!(console, "@beacon {beacon} late={late}");
            if let Some((index, found)) = self.damaged(beacon - 1) {
                errors += 1;
                let _ = writeln!(console, "@error beacon {beacon}: word {index} holds {found:#x}");
            }
            self.fill(beacon);
        }
        errors
    }

    /// Prints how it went.
    fn report(&self, console: &mut impl Write, line: &str, clock: &Clock, mut errors: u64) -> fmt::Result {
        let (limit, worst) =
            (options::number_in(line, "limit", 0), clock.microseconds(self.worst.load(Relaxed)));
        if limit != 0 && worst > limit {
            errors += 1;
            writeln!(console, "@error a tick was {worst} microseconds late, limit {limit}")?;
        }
        writeln!(console, "@done beacons={} worst={worst} errors={errors}", count(line))
    }

    fn fill(&self, round: u64) {
        for (index, word) in self.memory.iter().enumerate() {
            word.store(pattern(round, index), Relaxed);
        }
    }

    fn damaged(&self, round: u64) -> Option<(usize, u64)> {
        let mut words = self.memory.iter().map(|word| word.load(Relaxed)).enumerate();
        words.find(|(index, word)| *word != pattern(round, *index))
    }
}

impl Default for Beacon {
    fn default() -> Self {
        Self::new()
    }
}

fn count(line: &str) -> u64 {
    options::number_in(line, "count", 100)
}

/// The word at `index` in round `round`: each round changes each word.
fn pattern(round: u64, index: usize) -> u64 {
    (round << 32 | index as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::string::String;

    use super::*;

    #[test]
    fn late_ticks_and_damage_are_reported() {
        static BEACON: Beacon = Beacon::new();
        let clock = Clock { now: || 1000, frequency: 1_000_000, relax: || {} };
        let line = "count=2 period=10 limit=6";
        assert_eq!(BEACON.begin("period=10 after=500", &clock), 1510);
        assert_eq!(BEACON.begin(line, &clock), 1010);
        let mut text = String::new();
        let errors = BEACON.watch(&mut text, line, &clock, |beacon| {
            BEACON.tick(1003 + beacon * 12);
            if beacon == 2 {
                BEACON.memory[5].store(9, Relaxed);
            }
            assert!(BEACON.has_ticked(beacon) && !BEACON.has_ticked(beacon + 1));
        });
        BEACON.report(&mut text, line, &clock, errors).unwrap();
        assert_eq!(
            text,
            "@beacon 1 late=5\n@beacon 2 late=7\n@error beacon 2: word 5 holds 0x9\n\
             @error a tick was 7 microseconds late, limit 6\n@done beacons=2 worst=7 errors=2\n"
        );
    }
}
