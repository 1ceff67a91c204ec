// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A counter that goes by itself, and times on it. A runtime says which one is the guest's own.

use crate::global::Global;

static CLOCK: Global<fn() -> Clock> = Global::new(|| Clock { now: || 0, frequency: 1, relax: || {} });

/// Sets the guest's clock, as a function: to find out how fast it is may take a while.
///
/// # Safety
/// Only one CPU runs, and nobody uses the clock at that moment.
pub unsafe fn set(clock: fn() -> Clock) {
    // SAFETY: the caller's promise.
    unsafe { *CLOCK.write() = clock };
}

/// Returns the guest's clock.
pub fn clock() -> Clock {
    CLOCK.get()()
}

/// Returns the ticks of so many microseconds of the guest's clock.
pub fn ticks(microseconds: u64) -> u64 {
    clock().ticks(microseconds)
}

/// Returns the microseconds of so many ticks of the guest's clock.
pub fn microseconds(ticks: u64) -> u64 {
    clock().microseconds(ticks)
}

/// Waits by the guest's clock; see [`Clock::wait`].
pub fn wait(microseconds: u64, condition: impl FnMut() -> bool) -> bool {
    clock().wait(microseconds, condition)
}

/// The counter.
#[derive(Clone, Copy)]
pub struct Clock {
    /// Reads it.
    pub now: fn() -> u64,
    /// Its ticks per second.
    pub frequency: u64,
    /// What a CPU does between two looks at something that it waits for.
    pub relax: fn(),
}

impl Clock {
    /// Reads it.
    pub fn now(&self) -> u64 {
        (self.now)()
    }

    /// Returns the ticks of so many microseconds.
    pub fn ticks(&self, microseconds: u64) -> u64 {
        (u128::from(microseconds) * u128::from(self.frequency) / 1_000_000) as u64
    }

    /// Returns the microseconds of so many ticks.
    pub fn microseconds(&self, ticks: u64) -> u64 {
        (u128::from(ticks) * 1_000_000 / u128::from(self.frequency)) as u64
    }

    /// Waits until the condition holds, for so many microseconds at most; returns whether it does.
    pub fn wait(&self, microseconds: u64, mut condition: impl FnMut() -> bool) -> bool {
        let end = self.now() + self.ticks(microseconds);
        while !condition() {
            if self.now() > end {
                return condition();
            }
            (self.relax)();
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

    use super::*;

    static TICKS: AtomicU64 = AtomicU64::new(0);

    #[test]
    fn a_wait_ends_in_time() {
        let clock = Clock { now: || TICKS.fetch_add(1, Relaxed), frequency: 2_000_000, relax: || {} };
        assert_eq!((clock.ticks(1_000_000), clock.microseconds(7)), (2_000_000, 3));
        assert_eq!(clock.ticks(u64::MAX / 4), u64::MAX / 2 - 1);
        let mut looks = 0;
        let begin = clock.now();
        assert!(!clock.wait(10, || {
            looks += 1;
            false
        }));
        assert!((20..25).contains(&(clock.now() - begin)));
        assert!(looks > 10);
        assert!(clock.wait(10, || true));
    }
}
