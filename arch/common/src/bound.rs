// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How long a service may take for an event, by a clock that goes on while the CPU does not.
//!
//! An emulator, or a hypervisor below this one, may keep a CPU from running for longer than any bound. So the time of an event is
//! looked at in slices: an interrupt comes after each, and none counts for more than its own length, however late that
//! interrupt is. A service that never ends is late after all of its slices; a CPU that stands still now and then costs it one for
//! each time.

use core::cell::Cell;

/// A bound has so many slices.
const SLICES: u64 = 8;

/// A bound, and what has been used up of it. All times are in ticks of the caller's clock.
#[derive(Debug)]
pub struct Bound {
    slice: u64,
    /// When the event began that is looked at.
    begun: Cell<u64>,
    /// When it was looked at last.
    seen: Cell<u64>,
    spent: Cell<u64>,
}

impl Bound {
    /// Makes a bound of at least `limit`.
    pub const fn new(limit: u64) -> Self {
        let slice = if limit == 0 { 1 } else { limit.div_ceil(SLICES) };
        Self { slice, begun: Cell::new(0), seen: Cell::new(0), spent: Cell::new(0) }
    }

    /// Returns after how long an interrupt has to come.
    pub const fn slice(&self) -> u64 {
        self.slice
    }

    /// What has passed since `from` does not count for the event that began at `begun`.
    pub fn excuse(&self, begun: u64, from: u64, now: u64) {
        self.is_late(begun, from);
        self.seen.set(now);
    }

    /// Says whether the bound of the event that began at `begun` is used up; to be asked after each interrupt.
    pub fn is_late(&self, begun: u64, now: u64) -> bool {
        if self.begun.replace(begun) != begun {
            self.seen.set(begun);
            self.spent.set(0);
        }
        let passed = now.wrapping_sub(self.seen.replace(now));
        let spent = self.spent.get() + passed.min(self.slice);
        self.spent.set(spent);
        spent >= SLICES * self.slice
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_slices_are_the_limit() {
        let bound = Bound::new(80);
        assert_eq!(bound.slice(), 10);
        for slice in 1..8 {
            assert!(!bound.is_late(1000, 1000 + 10 * slice));
        }
        assert!(bound.is_late(1000, 1080));
        assert!(!bound.is_late(1090, 1100), "another event");
        assert_eq!([Bound::new(81).slice(), Bound::new(1).slice(), Bound::new(0).slice()], [11, 1, 1]);
    }

    #[test]
    fn other_interrupts_do_not_prolong_it() {
        let bound = Bound::new(80);
        let late = (1..).find(|tick| bound.is_late(7, 7 + tick));
        assert_eq!(late, Some(80));
    }

    #[test]
    fn what_is_excused_does_not_count() {
        let bound = Bound::new(80);
        for tick in 1..8 {
            bound.excuse(7, 7 + 10 * tick, 7 + 10 * tick);
        }
        bound.excuse(7, 77, 5000);
        assert!(!bound.is_late(7, 5009));
        assert!(bound.is_late(7, 5010), "and the rest does");
    }

    #[test]
    fn a_cpu_that_stands_still_costs_a_slice() {
        let bound = Bound::new(80);
        for hour in 1..8 {
            assert!(!bound.is_late(5, 5 + hour * 1_000_000));
        }
        assert!(bound.is_late(5, 8_000_005));
    }
}
