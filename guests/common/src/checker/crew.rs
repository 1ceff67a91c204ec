// SPDX-License-Identifier: Apache-2.0 OR MIT
//! All CPUs, which begin and end together, and the moments that they have in common.

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::SeqCst};

use super::account::Account;
use crate::clock::{self, Clock, clock};
use crate::options;
use crate::random::Random;

/// The CPUs wake within so many microseconds.
const SPREAD: u64 = 50;

/// Moments that all CPUs have in common.
pub struct Grid {
    period: u64,
    last: u64,
}

impl Grid {
    /// Returns those of a period of so many ticks, from now on and moved by `offset`.
    fn new(now: u64, period: u64, offset: u64) -> Self {
        Grid { period, last: now / period * period + offset }
    }

    /// Returns those of the period that the command line says, moved by so many halves of it.
    pub fn of_options(halves: u64) -> Self {
        let period = clock::ticks(options::number("period", 250_000)).max(1);
        Grid::new(clock().now(), period, halves * period / 2)
    }

    /// Returns the next moment.
    fn next(&mut self, clock: &Clock) -> u64 {
        while self.last <= clock.now() {
            self.last += self.period;
        }
        self.last
    }

    /// Returns the next moment, or one soon after it.
    pub fn about_next(&mut self, random: &mut Random) -> u64 {
        let clock = clock();
        self.next(&clock) + random.below(clock.ticks(SPREAD))
    }
}

/// All CPUs, which begin and end together.
#[derive(Default)]
pub struct Crew {
    /// The time at which sending ends.
    end: AtomicU64,
    /// How many CPUs can take interrupts, have nothing to send any more, and have left.
    ready: AtomicU32,
    finished: AtomicU32,
    left: AtomicU32,
    /// Something was lost: nobody goes on.
    broken: AtomicBool,
}

impl Crew {
    /// Returns one that has not begun.
    pub const fn new() -> Self {
        Crew {
            end: AtomicU64::new(0),
            ready: AtomicU32::new(0),
            finished: AtomicU32::new(0),
            left: AtomicU32::new(0),
            broken: AtomicBool::new(false),
        }
    }

    /// Lets all CPUs do `work`; returns the seconds of sending when this one has done it, or nothing if another does not start.
    pub fn run(&self, start_others: fn(fn(u64)) -> bool, work: fn(u64)) -> Option<u64> {
        let seconds = options::number("seconds", 10);
        self.set_end(clock().now() + clock::ticks(seconds * 1_000_000));
        start_others(work).then(|| {
            work(0);
            seconds
        })
    }

    fn set_end(&self, end: u64) {
        self.end.store(end, SeqCst);
    }

    /// Says whether sending has ended.
    pub fn is_over(&self, now: u64) -> bool {
        now >= self.end.load(SeqCst)
    }

    /// Enters whether something was lost.
    pub fn enter_loss(&self, lost: bool) {
        self.broken.fetch_or(lost, SeqCst);
    }

    /// Says whether something was lost.
    pub fn is_broken(&self) -> bool {
        self.broken.load(SeqCst)
    }

    /// Sends to each receiver that took the last one; when the time is over, says whether all did.
    pub(super) fn send_to_all(&self, clock: &Clock, receivers: &[Account], send: impl Fn(usize)) -> bool {
        let over = self.is_over(clock.now());
        let mut settled = over;
        for (receiver, account) in receivers.iter().enumerate() {
            if account.is_open() {
                settled = false;
                self.enter_loss(account.is_lost(clock));
            } else if !over {
                account.send(clock.now());
                send(receiver);
            }
        }
        settled
    }
}

/// One CPU of a crew.
pub struct Member<'a> {
    crew: &'a Crew,
    first: bool,
    others: u32,
    finished: bool,
}

impl<'a> Member<'a> {
    /// Enters a CPU, and waits until all `count` are there.
    pub fn join(crew: &'a Crew, index: usize, count: usize) -> Self {
        let count = count as u32;
        crew.ready.fetch_add(1, SeqCst);
        while crew.ready.load(SeqCst) < count {
            (clock().relax)();
        }
        Member { crew, first: index == 0, others: count - 1, finished: false }
    }

    /// Enters whether this CPU has nothing to send any more; says whether it may leave.
    pub fn may_leave(&mut self, settled: bool) -> bool {
        if settled && !self.finished {
            self.finished = true;
            self.crew.finished.fetch_add(1, SeqCst);
        }
        // The first CPU, which ends the machine, stays until the others have left.
        self.crew.finished.load(SeqCst) == self.others + 1
            && (!self.first || self.crew.left.load(SeqCst) == self.others)
    }

    /// Enters that it has left.
    pub fn leave(self) {
        self.crew.left.fetch_add(1, SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::super::account::PATIENCE;
    use super::*;

    static TIME: AtomicU64 = AtomicU64::new(0);

    /// A microsecond's ticks.
    const CLOCK: Clock = Clock { now: || TIME.load(SeqCst), frequency: 1_000_000, relax: || {} };

    #[test]
    fn all_is_counted_and_nobody_leaves_early() {
        let (crew, accounts) = (Crew::new(), [const { Account::new() }; 2]);
        crew.ready.store(1, SeqCst);
        crew.set_end(100);
        let mut first = Member::join(&crew, 0, 2);
        let mut second = Member { crew: &crew, first: false, others: 1, finished: false };
        assert!(!crew.send_to_all(&CLOCK, &accounts, |_| {}));
        accounts[0].take(7);
        accounts[1].take(5);
        accounts[1].take(6);
        TIME.store(100, SeqCst);
        assert!(crew.send_to_all(&CLOCK, &accounts, |_| panic!("it is over")));
        assert!(!first.may_leave(true) && !first.may_leave(true));
        assert!(second.may_leave(true) && !first.may_leave(true));
        second.leave();
        assert!(first.may_leave(true));
        accounts[0].send(100);
        assert!(!accounts[0].is_lost(&CLOCK));
        TIME.store(101 + PATIENCE, SeqCst);
        assert!(!crew.send_to_all(&CLOCK, &accounts, |_| {}) && crew.is_broken());
    }

    #[test]
    fn moments_are_ahead() {
        let clock = Clock { now: || 1234, frequency: 1, relax: || {} };
        let mut grid = Grid::new(1200, 100, 50);
        assert_eq!(grid.next(&clock), 1250);
        assert_eq!(grid.next(&clock), 1250);
    }
}
