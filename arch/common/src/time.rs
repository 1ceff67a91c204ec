// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is the same of time on all machines: a counter's readings as seconds and nanoseconds, the time of day by them, and the
//! deadlines of a physical CPU.

use core::cell::Cell;
use core::sync::atomic::{AtomicU64, Ordering};

use crate::of_cpu::OfCpu;

/// Nanoseconds in a second.
pub const NANOSECONDS: u64 = 1_000_000_000;

/// How long the machine has been on: a reading of its counter, whose ticks in a second are not zero, and fewer than 2^34.
#[derive(Clone, Copy, Debug)]
pub struct Uptime {
    /// What the counter shows.
    pub ticks: u64,
    /// Its ticks in a second.
    pub frequency: u64,
}

impl Uptime {
    /// Returns whole seconds.
    #[inline] // A division.
    pub fn seconds(self) -> u64 {
        self.ticks / self.frequency
    }

    /// Returns nanoseconds.
    #[inline(always)] // Two divisions of 64 bits, in light exits.
    pub fn nanoseconds(self) -> u64 {
        // No way leads to a panic from here.
        let seconds = self.ticks.checked_div(self.frequency).unwrap_or(0);
        let rest = self.ticks.wrapping_sub(seconds.wrapping_mul(self.frequency)).wrapping_mul(NANOSECONDS);
        let rest = rest.checked_div(self.frequency).unwrap_or(0);
        seconds.wrapping_mul(NANOSECONDS).wrapping_add(rest)
    }
}

/// Returns the ticks after so many nanoseconds, for a counter of fewer than 2^34 ticks in a second. The most that there can be, if they are
/// more.
pub const fn ticks(nanoseconds: u64, frequency: u64) -> u64 {
    let rest = (nanoseconds % NANOSECONDS).saturating_mul(frequency) / NANOSECONDS;
    (nanoseconds / NANOSECONDS).saturating_mul(frequency).saturating_add(rest)
}

/// The time of day, read once from the machine's clock: the seconds since 1970 when the counter was zero. Since power-on, if the
/// machine has no clock.
#[derive(Debug)]
pub struct WallClock(AtomicU64);

impl WallClock {
    /// Makes the one of a machine whose clock has not been read.
    pub const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Takes the seconds that the machine's clock shows `now`.
    pub fn set(&self, seconds: u64, now: Uptime) {
        self.0.store(seconds.wrapping_sub(now.seconds()), Ordering::Relaxed);
    }

    /// Returns whole seconds.
    #[inline] // A load and an addition.
    pub fn seconds(&self, now: Uptime) -> u64 {
        self.0.load(Ordering::Relaxed).wrapping_add(now.seconds())
    }

    /// Returns nanoseconds.
    #[inline] // As above.
    pub fn nanoseconds(&self, now: Uptime) -> u64 {
        self.0.load(Ordering::Relaxed).wrapping_mul(NANOSECONDS).wrapping_add(now.nanoseconds())
    }
}

impl Default for WallClock {
    fn default() -> Self {
        Self::new()
    }
}

/// No deadline.
pub const NEVER: u64 = u64::MAX;

/// What a physical CPU's timer is to ring for, as a value of the counter. For that CPU alone.
#[derive(Debug)]
pub struct Deadline(OfCpu<Cell<u64>>);

impl Deadline {
    /// Makes that of a CPU that has not started, at a time or [`NEVER`].
    ///
    /// # Safety
    /// As for [`OfCpu::new`].
    pub const unsafe fn new(at: u64) -> Self {
        // SAFETY: the caller's promise.
        Self(unsafe { OfCpu::new(Cell::new(at)) })
    }

    /// Returns when it is, or [`NEVER`].
    #[inline(always)] // A load, in each switch.
    pub fn at(&self) -> u64 {
        self.0.get()
    }

    /// Sets it instead of what it was: never, if there is none.
    #[inline(always)] // A store, in each switch.
    pub fn set(&self, at: Option<u64>) {
        self.0.set(at.unwrap_or(NEVER));
    }

    /// Sets it to a time or [`NEVER`]; says whether it was something else.
    #[inline(always)] // As above.
    pub fn changes(&self, at: u64) -> bool {
        at != self.0.replace(at)
    }

    /// Lets it not be later than `at`.
    #[inline(always)] // A comparison.
    pub fn advance(&self, at: u64) {
        self.0.set(self.0.get().min(at));
    }

    /// Says whether it has passed: then there is none any more.
    #[inline(always)] // A comparison.
    pub fn end(&self, now: u64) -> bool {
        let passed = self.0.get() <= now;
        if passed {
            self.0.set(NEVER);
        }
        passed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_day_goes_on_from_the_clock_s() {
        let at = |ticks| Uptime { ticks, frequency: 1000 };
        let clock = WallClock::new();
        assert_eq!(clock.seconds(at(5500)), 5, "without a clock, since power-on");
        clock.set(1_000_000, at(5500));
        assert_eq!(clock.seconds(at(5500)), 1_000_000);
        assert_eq!(clock.seconds(at(6000)), 1_000_001);
        assert_eq!(clock.nanoseconds(at(6001)), 1_000_001 * NANOSECONDS + 1_000_000);
    }

    #[test]
    fn ticks_are_nanoseconds_and_back() {
        for frequency in
            [1, 3, 1000, 24_000_000, 62_500_000, 512_000_000, 1_000_000_000, 3_700_000_001, (1 << 34) - 1]
        {
            for counter in [0, 1, frequency - 1, frequency, 12_345_678_901, 1 << 50, (1 << 50) + 12_345] {
                let exact = u128::from(counter) * u128::from(NANOSECONDS) / u128::from(frequency);
                let nanoseconds = Uptime { ticks: counter, frequency }.nanoseconds();
                assert_eq!(nanoseconds, exact as u64, "{counter} at {frequency}");
                let back = u128::from(nanoseconds) * u128::from(frequency) / u128::from(NANOSECONDS);
                assert_eq!(
                    ticks(nanoseconds, frequency),
                    u64::try_from(back).unwrap_or(u64::MAX),
                    "{counter} at {frequency}"
                );
            }
        }
        assert_eq!(ticks(u64::MAX, 1 << 33), u64::MAX);
        assert_eq!(Uptime { ticks: 5, frequency: 0 }.nanoseconds(), 0);
    }

    #[test]
    fn a_deadline_ends_once() {
        // SAFETY: this thread alone has it.
        let deadline = unsafe { Deadline::new(NEVER) };
        assert!(!deadline.end(NEVER - 1));
        deadline.advance(7);
        deadline.advance(9);
        assert_eq!(deadline.at(), 7);
        assert!(!deadline.end(6));
        assert!(deadline.end(7));
        assert!(!deadline.end(7));
        deadline.set(Some(3));
        assert!(deadline.changes(4));
        assert!(!deadline.changes(4));
    }
}
