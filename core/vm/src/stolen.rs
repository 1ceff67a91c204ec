// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Stolen time: how long a vCPU that shares its physical CPU was ready and did not run. The account is the same on all
//! architectures; the way a guest learns of it differs.
//!
//! Arm DEN0057: each vCPU has a record of 64 bytes in memory that its guest reads: two 32-bit words, revision and
//! attributes, both zero, and a 64-bit count of nanoseconds.

use crate::sync::{AtomicU64, Ordering};

/// PV_TIME_FEATURES: says which of these calls there are.
pub const PV_TIME_FEATURES: u32 = 0xc500_0020;
/// PV_TIME_ST: returns the address of the caller's record.
pub const PV_TIME_ST: u32 = 0xc500_0021;
/// Bytes of a record; it is aligned to as many.
pub const RECORD: u64 = 64;
/// Where in a record the count is.
pub const COUNT: u64 = 8;

/// Converts ticks of the counter to nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct Nanoseconds {
    /// Nanoseconds in a tick, in 2^-32.
    rate: u64,
}

impl Nanoseconds {
    /// Makes the conversion for a counter of this frequency in Hz.
    pub const fn new(frequency: u64) -> Self {
        let frequency = if frequency == 0 { 1 } else { frequency };
        Self { rate: ((1_000_000_000u128 << 32) / frequency as u128) as u64 }
    }

    /// Converts.
    #[inline] // Two multiplications, of each switch.
    pub const fn of(self, ticks: u64) -> u64 {
        ((ticks as u128 * self.rate as u128) >> 32) as u64
    }
}

/// The time stolen from a vCPU in its present life.
#[derive(Debug)]
pub struct Account {
    /// Ticks that were stolen before that.
    before: AtomicU64,
    rate: Nanoseconds,
}

impl Account {
    /// Makes the account of a vCPU that has not run, by a counter of this frequency in Hz.
    pub fn new(frequency: u64) -> Self {
        Self { before: AtomicU64::new(0), rate: Nanoseconds::new(frequency) }
    }

    /// A life begins, when `ticks` were stolen from the vCPU in all.
    pub fn begin(&self, ticks: u64) {
        // Relaxed: only the CPU that has the vCPU gets here, or to `until`.
        self.before.store(ticks, Ordering::Relaxed);
    }

    /// Returns the nanoseconds of this life, when `ticks` were stolen from the vCPU in all.
    #[inline] // A few instructions of each switch.
    pub fn until(&self, ticks: u64) -> u64 {
        self.rate.of(ticks.wrapping_sub(self.before.load(Ordering::Relaxed)))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn ticks_become_nanoseconds() {
        assert_eq!(Nanoseconds::new(1_000_000_000).of(12_345), 12_345);
        assert_eq!(Nanoseconds::new(62_500_000).of(62_500_000), 1_000_000_000);
        // A year, to the microsecond, where a tick is no whole number of nanoseconds.
        let year = 31_536_000;
        let error = Nanoseconds::new(19_200_000).of(19_200_000 * year).abs_diff(year * 1_000_000_000);
        assert!(error < 100_000_000, "{error}");
    }

    #[test]
    fn a_life_has_what_was_stolen_in_it() {
        let account = Account::new(500_000_000);
        assert_eq!(account.until(50), 100);
        account.begin(50);
        assert_eq!((account.until(50), account.until(51)), (0, 2));
    }
}
