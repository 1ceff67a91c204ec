// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Accounts of interrupts between CPUs. Neither controller tells who sent one, and two that are pending become one; so each
//! receiver has one slot: whoever sends takes it first, and the receiver's handler gives it back. A slot that stays taken is a
//! lost interrupt, an interrupt without one came twice.

use core::sync::atomic::{AtomicU64, Ordering::SeqCst};

use crate::platform::MAX_CPUS;
use crate::{cpu, irq, timer};

/// The account of one receiver.
pub struct Account {
    /// When the interrupt under way was sent, with the lowest bit set; or zero.
    slot: AtomicU64,
    /// Sent to this CPU.
    pub sent: AtomicU64,
    /// Taken by it.
    pub taken: AtomicU64,
    /// Taken without having been sent.
    pub doubled: AtomicU64,
    /// How long they were under way.
    pub delays: Delays,
}

/// How late interrupts were.
#[derive(Default)]
pub struct Delays {
    /// The slowest, in ticks.
    slowest: AtomicU64,
    /// How many were later than [`LATE`].
    late: AtomicU64,
}

/// Microseconds after which an interrupt is late: far more than one takes where nothing is in its way.
const LATE: u64 = 1000;

impl Delays {
    /// Returns those of no interrupt.
    pub const fn new() -> Self {
        Delays { slowest: AtomicU64::new(0), late: AtomicU64::new(0) }
    }

    /// Enters one that was due at a value of the timebase, and is taken now.
    pub fn enter(&self, due: u64) {
        let delay = timer::now().saturating_sub(due);
        self.slowest.fetch_max(delay, SeqCst);
        self.late.fetch_add((delay > timer::ticks(LATE)).into(), SeqCst);
    }

    /// Returns the slowest, in ticks, and how many were late.
    pub fn get(&self) -> (u64, u64) {
        (self.slowest.load(SeqCst), self.late.load(SeqCst))
    }

    fn reset(&self) {
        self.slowest.store(0, SeqCst);
        self.late.store(0, SeqCst);
    }
}

static ACCOUNTS: [Account; MAX_CPUS] = [const {
    Account {
        slot: AtomicU64::new(0),
        sent: AtomicU64::new(0),
        taken: AtomicU64::new(0),
        doubled: AtomicU64::new(0),
        delays: Delays::new(),
    }
}; MAX_CPUS];

/// Returns the account of a CPU.
pub fn of(receiver: usize) -> &'static Account {
    &ACCOUNTS[receiver % MAX_CPUS]
}

/// Empties all accounts.
pub fn reset() {
    for account in &ACCOUNTS {
        for field in [&account.slot, &account.sent, &account.taken, &account.doubled] {
            field.store(0, SeqCst);
        }
        account.delays.reset();
    }
}

/// Sends to a CPU, unless one is under way; says whether it did.
pub fn send(receiver: usize) -> bool {
    let account = of(receiver);
    if account.slot.compare_exchange(0, timer::now() | 1, SeqCst, SeqCst).is_err() {
        return false;
    }
    account.sent.fetch_add(1, SeqCst);
    irq::send(receiver);
    true
}

/// Enters that this CPU took one: for handlers.
pub fn take() {
    let account = of(cpu::this().index());
    match account.slot.swap(0, SeqCst) {
        0 => _ = account.doubled.fetch_add(1, SeqCst),
        sent_at => {
            account.delays.enter(sent_at);
            account.taken.fetch_add(1, SeqCst);
        }
    }
}

impl Account {
    /// Returns for how many ticks the interrupt under way has been so; zero if there is none.
    pub fn age(&self) -> u64 {
        match self.slot.load(SeqCst) {
            0 => 0,
            sent_at => timer::now().saturating_sub(sent_at),
        }
    }

    /// Says whether one is under way.
    pub fn is_open(&self) -> bool {
        self.slot.load(SeqCst) != 0
    }
}
