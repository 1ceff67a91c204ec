// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The guest that has a mixed load of interrupts: how its CPUs begin and end together, and what they do at steady rates.
//!
//! Options: `milliseconds=` (1000); `marks` writes `@begin` and `@end` around the load.

use core::fmt::Write;
use core::sync::atomic::{AtomicU64, Ordering::SeqCst};

use crate::clock::{Clock, clock};
use crate::console::Console;
use crate::options;

/// Something that is done at a steady rate.
pub struct Rhythm {
    period: u64,
    due: u64,
}

impl Rhythm {
    /// Says whether it is to be done, each time once.
    pub fn is_due(&mut self, now: u64) -> bool {
        let due = now >= self.due;
        if due {
            self.due += self.period;
        }
        due
    }
}

/// The load of all CPUs.
#[derive(Default)]
pub struct Load {
    sent: AtomicU64,
    ready: AtomicU64,
    ended: AtomicU64,
    /// When it begins; zero before that is known.
    begin: AtomicU64,
    end: AtomicU64,
}

impl Load {
    /// Returns one that has not begun.
    pub const fn new() -> Self {
        Load {
            sent: AtomicU64::new(0),
            ready: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            begin: AtomicU64::new(0),
            end: AtomicU64::new(0),
        }
    }

    /// Waits until all other CPUs have joined, does this one's `work`, and waits until all have left; returns the milliseconds
    /// that the load took.
    pub fn run(&self, cpus: usize, work: impl FnOnce()) -> u64 {
        self.run_with(&mut Console, options::line(), &clock(), cpus, work)
    }

    fn run_with(
        &self,
        console: &mut impl Write,
        line: &str,
        clock: &Clock,
        cpus: usize,
        work: impl FnOnce(),
    ) -> u64 {
        let mut mark = |text| {
            if options::find(line, "marks").is_some() {
                let _ = writeln!(console, "{text}");
            }
        };
        while self.ready.load(SeqCst) != cpus as u64 - 1 {
            (clock.relax)();
        }
        mark("@begin");
        let milliseconds = options::number_in(line, "milliseconds", 1000);
        let begin = clock.now() + clock.ticks(1000);
        self.end.store(begin + clock.ticks(1000 * milliseconds), SeqCst);
        self.begin.store(begin, SeqCst);
        work();
        while self.ended.load(SeqCst) != cpus as u64 {
            (clock.relax)();
        }
        mark("@end");
        milliseconds
    }

    /// Enters that a CPU is ready, unless it is the first one, which [`Load::run`] knows of; waits until the load begins, and
    /// returns when it ends.
    pub fn join(&self, first: bool) -> u64 {
        self.ready.fetch_add(u64::from(!first), SeqCst);
        while self.begin.load(SeqCst) == 0 {
            (clock().relax)();
        }
        self.end()
    }

    /// Returns when it ends.
    pub fn end(&self) -> u64 {
        self.end.load(SeqCst)
    }

    /// Returns what is done as often in a second as an option says, from the load's beginning on; never, if the rate is zero.
    pub fn rhythm(&self, option: &str, rate: u64) -> Rhythm {
        self.rhythm_with(options::line(), &clock(), option, rate)
    }

    fn rhythm_with(&self, line: &str, clock: &Clock, option: &str, rate: u64) -> Rhythm {
        let rate = options::number_in(line, option, rate);
        let period = clock.frequency.checked_div(rate).unwrap_or(u64::MAX / 2);
        Rhythm { period, due: self.begin.load(SeqCst).saturating_add(period) }
    }

    /// Enters that an IPI is sent.
    pub fn send(&self) {
        self.sent.fetch_add(1, SeqCst);
    }

    /// Enters that a CPU has left.
    pub fn leave(&self) {
        self.ended.fetch_add(1, SeqCst);
    }

    /// Prints whether as many IPIs as these can have been taken, and that the run has ended.
    pub fn finish(&self, console: &mut impl Write, ipis: u64, cpus: usize) {
        let sent = self.sent.load(SeqCst);
        // Two to the same CPU become one if the first has not been taken; with one CPU it always has.
        if ipis > sent || cpus == 1 && ipis != sent {
            let _ = writeln!(console, "@error {sent} IPIs were sent, and {ipis} taken");
        }
        let _ = writeln!(console, "@done load");
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::string::String;

    use super::*;

    #[test]
    fn a_load_has_a_beginning_and_an_end() {
        let clock = Clock { now: || 5000, frequency: 1_000_000, relax: || {} };
        let (load, line) = (Load::new(), "milliseconds=2 marks ipi=1000 never=0");
        let mut text = String::new();
        let took = load.run_with(&mut text, line, &clock, 1, || {
            assert_eq!(load.join(true), 8000);
            let mut ipis = load.rhythm_with(line, &clock, "ipi", 1);
            let mut never = load.rhythm_with(line, &clock, "never", 1);
            let due = [6999, 7000, 7001, 8000].map(|now| ipis.is_due(now));
            assert_eq!(due, [false, true, false, true]);
            assert!(!never.is_due(u64::MAX / 2));
            load.send();
            load.leave();
        });
        load.finish(&mut text, 1, 1);
        load.finish(&mut text, 0, 2);
        assert_eq!((took, text.as_str()), (2, "@begin\n@end\n@done load\n@done load\n"));
        text.clear();
        load.finish(&mut text, 0, 1);
        load.finish(&mut text, 2, 2);
        let wrong = |taken| std::format!("@error 1 IPIs were sent, and {taken} taken\n@done load\n");
        assert_eq!(text, wrong(0) + &wrong(2));
    }
}
