// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a CPU tells the others about itself.

use crate::sync::{AtomicU32, AtomicU64, Ordering, fence};
use crate::thread::IDLE;

/// What others may know of a CPU.
#[derive(Debug)]
pub struct Published {
    /// Odd while the owner writes.
    version: AtomicU32,
    /// The rank of what runs.
    rank: AtomicU32,
    pub(crate) waiting: AtomicU32,
    virtual_time: AtomicU64,
    at: AtomicU64,
    rate: AtomicU64,
    limit: AtomicU64,
}

/// How far a fair queue is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// The virtual run time of the one that is furthest behind, in virtual ticks.
    pub virtual_time: u64,
    /// When it was that, in ticks.
    pub at: u64,
    /// How fast it goes: virtual ticks in a tick, in 2^-32.
    pub rate: u64,
    /// How far ahead it can go, in virtual ticks: to the virtual run time of the next one that waits.
    pub limit: u64,
}

impl Progress {
    pub(crate) fn now(&self, now: u64) -> u64 {
        let ran = (u128::from(now.saturating_sub(self.at)) * u128::from(self.rate)) >> 32;
        self.virtual_time.wrapping_add((ran as u64).min(self.limit))
    }
}

impl Default for Published {
    fn default() -> Self {
        Self::new()
    }
}

impl Published {
    /// Makes what is known of a CPU that has run nothing.
    pub fn new() -> Self {
        Self {
            version: AtomicU32::new(0),
            rank: AtomicU32::new(IDLE),
            waiting: AtomicU32::new(0),
            virtual_time: AtomicU64::new(0),
            at: AtomicU64::new(0),
            rate: AtomicU64::new(0),
            limit: AtomicU64::new(0),
        }
    }

    /// Tells the others; for the owner.
    pub fn publish(&self, rank: u32, waiting: u32, progress: Progress) {
        self.rank.store(rank, Ordering::Relaxed);
        self.waiting.store(waiting, Ordering::Relaxed);
        let version = self.version.load(Ordering::Relaxed);
        self.version.store(version.wrapping_add(1), Ordering::Relaxed);
        // Pairs with the fence in `progress`: who reads one of the new values reads an odd version, or a later one.
        fence(Ordering::Release);
        self.virtual_time.store(progress.virtual_time, Ordering::Relaxed);
        self.at.store(progress.at, Ordering::Relaxed);
        self.rate.store(progress.rate, Ordering::Relaxed);
        self.limit.store(progress.limit, Ordering::Relaxed);
        self.version.store(version.wrapping_add(2), Ordering::Release);
    }

    /// Reads how far it is; `None` if it is being written just now.
    pub fn progress(&self) -> Option<Progress> {
        let version = self.version.load(Ordering::Acquire);
        let progress = Progress {
            virtual_time: self.virtual_time.load(Ordering::Relaxed),
            at: self.at.load(Ordering::Relaxed),
            rate: self.rate.load(Ordering::Relaxed),
            limit: self.limit.load(Ordering::Relaxed),
        };
        fence(Ordering::Acquire);
        let same = version & 1 == 0 && self.version.load(Ordering::Relaxed) == version;
        same.then_some(progress)
    }

    pub(crate) fn rank(&self) -> u32 {
        self.rank.load(Ordering::Relaxed)
    }

    /// Says whether vCPUs wait there for their turn.
    pub fn has_waiting(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) != 0
    }

    /// Takes the place of what runs there for a vCPU of `rank`, so that no other CPU sends one for the same place.
    pub(crate) fn claim(&self, seen: u32, rank: u32) -> bool {
        // Relaxed: a hint, which the owner overwrites with the truth.
        self.rank.compare_exchange(seen, rank, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }
}
