// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The guest that counts every interrupt for a long time: accounts, moments that all CPUs have in common, and how they end
//! together.
//!
//! Options: `seconds=` of sending (10), `period=` of each timer in microseconds (250000).

use core::fmt::{self, Write};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::SeqCst};

use crate::clock::{self, Clock, clock};
use crate::console::Console;
use crate::random::Random;
use crate::{options, println};

/// So long after it was sent, in microseconds, an interrupt is lost.
pub const PATIENCE: u64 = 3_000_000;
/// The CPUs wake within so many microseconds.
const SPREAD: u64 = 50;
/// Most CPUs of a [`Ledger`].
pub const MAX_CPUS: usize = 16;

/// The interrupts of one source at one CPU.
#[derive(Default)]
pub struct Account {
    sent: AtomicU32,
    taken: AtomicU32,
    lost: AtomicU32,
    doubled: AtomicU32,
    /// The time when the last one was sent, and how long the slowest was under way.
    sent_at: AtomicU64,
    slowest: AtomicU64,
}

impl Account {
    /// Returns an account of none.
    pub const fn new() -> Self {
        Account {
            sent: AtomicU32::new(0),
            taken: AtomicU32::new(0),
            lost: AtomicU32::new(0),
            doubled: AtomicU32::new(0),
            sent_at: AtomicU64::new(0),
            slowest: AtomicU64::new(0),
        }
    }

    /// Says whether one is under way.
    pub fn is_open(&self) -> bool {
        self.taken.load(SeqCst) < self.sent.load(SeqCst)
    }

    /// Enters one that is due at this time.
    pub fn send(&self, at: u64) {
        self.sent_at.store(at, SeqCst);
        self.sent.fetch_add(1, SeqCst);
    }

    /// Enters that one was taken.
    pub fn take(&self, now: u64) {
        if !self.is_open() {
            self.doubled.fetch_add(1, SeqCst);
        }
        self.slowest.fetch_max(self.age(now), SeqCst);
        self.taken.fetch_add(1, SeqCst);
    }

    fn age(&self, now: u64) -> u64 {
        now.saturating_sub(self.sent_at.load(SeqCst))
    }

    /// Says whether it should have been taken long ago, and enters that.
    pub fn is_lost(&self, clock: &Clock) -> bool {
        let lost = self.is_open() && self.age(clock.now()) > clock.ticks(PATIENCE);
        self.lost.fetch_add(lost.into(), SeqCst);
        lost
    }
}

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
    fn send_to_all(&self, clock: &Clock, receivers: &[Account], send: impl Fn(usize)) -> bool {
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

/// All accounts of a machine whose interrupts tell which CPU sent them; each CPU has so many timers.
pub struct Ledger<const TIMERS: usize> {
    /// Its CPUs.
    pub crew: Crew,
    /// By sender and receiver.
    ipis: [[Account; MAX_CPUS]; MAX_CPUS],
    /// By CPU and timer.
    rings: [[Account; TIMERS]; MAX_CPUS],
    /// Interrupts that nobody sends.
    strange: AtomicU32,
}

impl<const TIMERS: usize> Ledger<TIMERS> {
    /// Returns one without entries.
    pub const fn new() -> Self {
        Ledger {
            crew: Crew::new(),
            ipis: [const { [const { Account::new() }; MAX_CPUS] }; MAX_CPUS],
            rings: [const { [const { Account::new() }; TIMERS] }; MAX_CPUS],
            strange: AtomicU32::new(0),
        }
    }

    /// Lets all of so many CPUs do `work`, and prints what the accounts say then.
    pub fn run(&self, cpus: usize, start_others: fn(fn(u64)) -> bool, work: fn(u64)) {
        if cpus > MAX_CPUS {
            return println!("@error {cpus} CPUs are more than {MAX_CPUS}");
        }
        if let Some(seconds) = self.crew.run(start_others, work) {
            let _ = self.report(&mut Console, &clock(), seconds, cpus);
        }
    }

    /// Returns the account of what one CPU sends to another.
    pub fn ipi(&self, sender: usize, receiver: usize) -> &Account {
        &self.ipis[sender % MAX_CPUS][receiver % MAX_CPUS]
    }

    /// Returns the account of a CPU's timer.
    pub fn ring(&self, cpu: usize, timer: usize) -> &Account {
        &self.rings[cpu % MAX_CPUS][timer % TIMERS]
    }

    /// Enters an interrupt that nobody sends.
    pub fn enter_strange(&self) {
        self.strange.fetch_add(1, SeqCst);
    }

    /// Sends to each of so many CPUs that took this one's last; when the time is over, says whether all did.
    pub fn send_to_all(&self, this: usize, cpus: usize, send: impl Fn(usize)) -> bool {
        let receivers = self.ipis[this % MAX_CPUS].get(..cpus).unwrap_or_default();
        self.crew.send_to_all(&clock(), receivers, send)
    }

    /// Says whether a timer's interrupt is under way still, and enters whether it is lost.
    pub fn awaits(&self, ring: &Account) -> bool {
        self.crew.enter_loss(ring.is_lost(&clock()));
        ring.is_open()
    }

    fn report(&self, console: &mut impl Write, clock: &Clock, seconds: u64, cpus: usize) -> fmt::Result {
        let mut sums = Sums { doubled: self.strange.load(SeqCst), ..Sums::default() };
        let (mut ipis, mut rings) = (0, 0);
        for cpu in 0..cpus {
            for sender in 0..cpus {
                ipis += sums.add(console, self.ipi(sender, cpu), "IPI", sender, cpu);
            }
            for timer in 0..TIMERS {
                rings += sums.add(console, self.ring(cpu, timer), "timer", timer, cpu);
            }
        }
        let Sums { lost, doubled, slowest } = sums;
        let slowest = clock.microseconds(slowest);
        writeln!(
            console,
            "@done seconds={seconds} cpus={cpus} ipis={ipis} rings={rings} lost={lost} doubled={doubled} slowest={slowest}"
        )
    }
}

impl<const TIMERS: usize> Default for Ledger<TIMERS> {
    fn default() -> Self {
        Self::new()
    }
}

/// What went wrong in all accounts together, and the slowest of all.
#[derive(Default)]
struct Sums {
    /// Interrupts that were not taken.
    lost: u32,
    /// Interrupts that were taken without having been sent.
    doubled: u32,
    /// How long the slowest was under way, in ticks.
    slowest: u64,
}

impl Sums {
    /// Adds an account, and prints it if something is wrong; returns how many were taken.
    fn add(
        &mut self,
        console: &mut impl Write,
        account: &Account,
        source: &str,
        from: usize,
        to: usize,
    ) -> u64 {
        let of = |field: &AtomicU32| field.load(SeqCst);
        let [sent, taken] = [of(&account.sent), of(&account.taken)];
        let wrong = [of(&account.lost), of(&account.doubled)];
        if wrong != [0, 0] {
            let _ = writeln!(
                console,
                "@error {source} {from} at CPU {to}: sent {sent}, taken {taken}, lost and doubled {wrong:?}"
            );
        }
        self.lost += wrong[0];
        self.doubled += wrong[1];
        self.slowest = self.slowest.max(account.slowest.load(SeqCst));
        u64::from(taken)
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::string::String;

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
        let (mut sums, mut text) = (Sums::default(), String::new());
        assert_eq!(sums.add(&mut text, &accounts[0], "IPI", 0, 0), 1);
        assert_eq!(sums.add(&mut text, &accounts[1], "IPI", 0, 1), 2);
        assert_eq!(text, "@error IPI 0 at CPU 1: sent 1, taken 2, lost and doubled [0, 1]\n");
        assert_eq!((sums.lost, sums.doubled, sums.slowest), (0, 1, 7));
        accounts[0].send(100);
        assert!(!accounts[0].is_lost(&CLOCK));
        TIME.store(101 + PATIENCE, SeqCst);
        assert!(!crew.send_to_all(&CLOCK, &accounts, |_| {}) && crew.is_broken());
    }

    #[test]
    fn a_ledger_sums_up_what_all_cpus_sent() {
        let ledger = Ledger::<2>::new();
        ledger.ring(1, 1).send(1);
        ledger.ring(1, 1).take(4);
        ledger.ipi(1, 0).send(2);
        ledger.ipi(1, 0).take(2);
        ledger.enter_strange();
        let mut text = String::new();
        let clock = Clock { now: || 0, frequency: 1_000_000, relax: || {} };
        ledger.report(&mut text, &clock, 5, 2).unwrap();
        assert_eq!(text, "@done seconds=5 cpus=2 ipis=1 rings=1 lost=0 doubled=1 slowest=3\n");
        assert!(!ledger.awaits(ledger.ring(1, 1)) && !ledger.crew.is_broken());
    }

    #[test]
    fn moments_are_ahead() {
        let clock = Clock { now: || 1234, frequency: 1, relax: || {} };
        let mut grid = Grid::new(1200, 100, 50);
        assert_eq!(grid.next(&clock), 1250);
        assert_eq!(grid.next(&clock), 1250);
    }
}
