// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The accounts of all CPUs, where an interrupt tells which one sent it.

use core::fmt::{self, Write};
use core::sync::atomic::{AtomicU32, Ordering::SeqCst};

use super::account::Account;
use super::crew::Crew;
use crate::clock::{Clock, clock};
use crate::console::Console;
use crate::println;

/// Most CPUs of a [`Ledger`].
pub const MAX_CPUS: usize = 16;

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

    #[test]
    fn what_is_wrong_is_printed_and_summed_up() {
        let accounts = [const { Account::new() }; 2];
        accounts[0].send(0);
        accounts[0].take(7);
        accounts[1].send(0);
        accounts[1].take(5);
        accounts[1].take(6);
        let (mut sums, mut text) = (Sums::default(), String::new());
        assert_eq!(sums.add(&mut text, &accounts[0], "IPI", 0, 0), 1);
        assert_eq!(sums.add(&mut text, &accounts[1], "IPI", 0, 1), 2);
        assert_eq!(text, "@error IPI 0 at CPU 1: sent 1, taken 2, lost and doubled [0, 1]\n");
        assert_eq!((sums.lost, sums.doubled, sums.slowest), (0, 1, 7));
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
}
