// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the scheduler knows of a vCPU.
//!
//! The numbers that change are atomics because a vCPU changes its home; only the home touches them, with plain loads and
//! stores, and the wake list carries them over.

use alloc::boxed::Box;

use crate::sync::{AtomicU32, AtomicU64, Ordering};
use crate::wake::Link;

/// The weight by which the clock of virtual run time goes as the real one.
pub const DEFAULT_WEIGHT: u16 = 100;
/// The rank of all fair vCPUs: behind every real-time priority.
pub(crate) const FAIR: u32 = 99;
/// The rank of a CPU that runs nothing: behind all.
pub(crate) const IDLE: u32 = 100;

/// Slices of credit for one that slept: it has not wanted more.
const SLEEPER_CREDIT: u32 = 1;
/// Slices of credit for one that waited on another CPU, beside the time that it waited. It is given away when it is one behind,
/// and not at that moment but at the next look; more than both only drift can explain.
pub(crate) const TRAVELLER_CREDIT: u32 = 4;

/// How a vCPU competes with others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// By its share: weights from 1 to 10000.
    Fair {
        /// Twice the weight is twice the time.
        weight: u16,
    },
    /// By its priority: from 1, the least, to 99.
    RealTime {
        /// The higher one runs.
        priority: u8,
    },
}

/// A vCPU.
#[derive(Debug)]
pub struct Thread {
    pub(crate) next: Link,
    /// Its number in the system, where it is in one.
    pub(crate) number: u32,
    home: AtomicU32,
    /// Where it stands among those of its rank: a fair one's virtual run time, a real-time one's turn. Wraps; only
    /// differences count.
    order: AtomicU64,
    /// What the virtual run time is more than a whole tick, in 2^-32.
    fraction: AtomicU32,
    /// Ticks of the slice that are used.
    used: AtomicU64,
    /// When it began to wait for its CPU.
    ready_at: AtomicU64,
    stolen: AtomicU64,
    /// Slices by which it may be behind the others when it comes.
    credit: AtomicU32,
    /// Its class: 0 is the highest real-time priority.
    pub(crate) rank: u32,
    /// Virtual ticks in a tick, in 2^-32.
    pub(crate) rate: u64,
    /// The CPUs on which it may run.
    pub(crate) cpus: Box<[u32]>,
}

impl Thread {
    /// Makes a vCPU that may run on `cpus`, at home on `home`. A weight or a priority that does not exist becomes the
    /// nearest one that does.
    pub fn new(class: Class, home: u32, cpus: Box<[u32]>) -> Self {
        let (rank, weight) = match class {
            Class::Fair { weight } => (FAIR, weight.clamp(1, 10_000)),
            Class::RealTime { priority } => (99 - u32::from(priority.clamp(1, 99)), DEFAULT_WEIGHT),
        };
        Self {
            next: Link::default(),
            number: 0,
            home: AtomicU32::new(home),
            order: AtomicU64::new(0),
            fraction: AtomicU32::new(0),
            used: AtomicU64::new(0),
            ready_at: AtomicU64::new(0),
            stolen: AtomicU64::new(0),
            credit: AtomicU32::new(SLEEPER_CREDIT),
            rank,
            rate: (u64::from(DEFAULT_WEIGHT) << 32) / u64::from(weight),
            cpus,
        }
    }

    /// Returns the CPU that queues it. For the home itself, and for who has just taken it out of where it was parked.
    pub fn home(&self) -> u32 {
        // Relaxed: the home changes only while it waits in its home's queue, where nobody else may ask.
        self.home.load(Ordering::Relaxed)
    }

    pub(crate) fn set_home(&self, home: u32) {
        self.home.store(home, Ordering::Relaxed);
    }

    /// Says whether it may run on `cpu`.
    pub fn may_run_on(&self, cpu: u32) -> bool {
        self.cpus.contains(&cpu)
    }

    /// Returns for how many ticks it was ready and did not run. For its home.
    pub fn stolen(&self) -> u64 {
        self.stolen.load(Ordering::Relaxed)
    }

    pub(crate) fn is_fair(&self) -> bool {
        self.rank == FAIR
    }

    pub(crate) fn order(&self) -> u64 {
        self.order.load(Ordering::Relaxed)
    }

    pub(crate) fn set_order(&self, order: u64) {
        self.order.store(order, Ordering::Relaxed);
    }

    pub(crate) fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Notes that it is given away: it takes along what it is behind.
    pub(crate) fn travel(&self) {
        self.credit.store(TRAVELLER_CREDIT, Ordering::Relaxed);
    }

    /// Notes that it has come, and returns by how many virtual ticks it may be behind.
    pub(crate) fn arrive(&self, now: u64, slice: u64) -> u64 {
        if self.credit.load(Ordering::Relaxed) != SLEEPER_CREDIT {
            return self.end_travel(now, slice);
        }
        self.begin_waiting(now);
        u64::from(SLEEPER_CREDIT) * slice
    }

    /// [`Thread::arrive`] of one that was given away. It waits already, and is owed that time: it may have been long on its
    /// way, for a CPU may take its interrupt late.
    #[cold] // Wake-ups are many, travellers few.
    fn end_travel(&self, now: u64, slice: u64) -> u64 {
        self.credit.store(SLEEPER_CREDIT, Ordering::Relaxed);
        let waited = (u128::from(now.saturating_sub(self.ready_at())) * u128::from(self.rate)) >> 32;
        (u64::from(TRAVELLER_CREDIT) * slice).saturating_add(waited as u64)
    }

    /// Gives it a new slice.
    pub(crate) fn renew(&self) {
        self.used.store(0, Ordering::Relaxed);
    }

    /// Takes the rest of its slice.
    pub(crate) fn exhaust(&self, slice: u64) {
        self.used.store(slice, Ordering::Relaxed);
    }

    /// Notes that it ran for `ticks`.
    pub(crate) fn ran(&self, ticks: u64) {
        self.used.store(self.used().saturating_add(ticks), Ordering::Relaxed);
        if self.is_fair() {
            let fraction = u128::from(self.fraction.load(Ordering::Relaxed));
            let virtual_ticks = u128::from(ticks) * u128::from(self.rate) + fraction;
            self.fraction.store(virtual_ticks as u32, Ordering::Relaxed);
            self.set_order(self.order().wrapping_add((virtual_ticks >> 32) as u64));
        }
    }

    /// Returns when it began to wait for its CPU, the last time.
    pub fn ready_at(&self) -> u64 {
        self.ready_at.load(Ordering::Relaxed)
    }

    /// Notes that it waits for its CPU from `now` on.
    pub(crate) fn begin_waiting(&self, now: u64) {
        self.ready_at.store(now, Ordering::Relaxed);
    }

    /// Notes that it runs from `now` on: what it waited was stolen.
    pub(crate) fn end_waiting(&self, now: u64) {
        let waited = now.saturating_sub(self.ready_at.load(Ordering::Relaxed));
        self.stolen.store(self.stolen().wrapping_add(waited), Ordering::Relaxed);
    }
}

/// Says whether `a` comes before `b`, on a clock that wraps.
pub(crate) fn is_before(a: u64, b: u64) -> bool {
    (a.wrapping_sub(b) as i64) < 0
}

/// The place of a vCPU in a run queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    pub(crate) rank: u32,
    pub(crate) order: u64,
}

impl Ord for Key {
    /// An order as long as no two virtual run times of one queue are half the range of their clock apart: decades.
    fn cmp(&self, other: &Self) -> core::cmp::Ordering {
        self.rank.cmp(&other.rank).then_with(|| (self.order.wrapping_sub(other.order) as i64).cmp(&0))
    }
}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<core::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
