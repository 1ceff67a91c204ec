// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is counted of the interrupts of one source at one CPU.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};

use crate::clock::Clock;

/// So long after it was sent, in microseconds, an interrupt is lost.
pub const PATIENCE: u64 = 3_000_000;

/// The interrupts of one source at one CPU.
#[derive(Default)]
pub struct Account {
    pub(super) sent: AtomicU32,
    pub(super) taken: AtomicU32,
    pub(super) lost: AtomicU32,
    pub(super) doubled: AtomicU32,
    /// The time when the last one was sent, and how long the slowest was under way.
    sent_at: AtomicU64,
    pub(super) slowest: AtomicU64,
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
