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
    /// How long the slowest was under way, in ticks.
    pub slowest: AtomicU64,
}

static ACCOUNTS: [Account; MAX_CPUS] = [const {
    Account {
        slot: AtomicU64::new(0),
        sent: AtomicU64::new(0),
        taken: AtomicU64::new(0),
        doubled: AtomicU64::new(0),
        slowest: AtomicU64::new(0),
    }
}; MAX_CPUS];

/// Returns the account of a CPU.
pub fn of(receiver: usize) -> &'static Account {
    &ACCOUNTS[receiver % MAX_CPUS]
}

/// Empties all accounts.
pub fn reset() {
    for account in &ACCOUNTS {
        for field in [&account.slot, &account.sent, &account.taken, &account.doubled, &account.slowest] {
            field.store(0, SeqCst);
        }
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
            account.slowest.fetch_max(timer::now().saturating_sub(sent_at), SeqCst);
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
