// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A reading of one reason's figures.

/// The buckets of a histogram: one for each number of significant bits of a cost, 0 to 63.
pub const BUCKETS: usize = 64;

/// Returns the bucket of a cost: the number of its significant bits.
///
/// Bucket 0 holds the cost 0, bucket *n* the costs from 2^(n−1) to 2^n − 1.
#[must_use]
pub const fn bucket(cost: u64) -> usize {
    (u64::BITS - cost.leading_zeros()) as usize
}

/// How many exits there were for one reason, and what they cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exits {
    /// The sum of the costs in ticks, modulo 2^64.
    pub total: u64,
    /// How many costs had so many significant bits ([`bucket`]), modulo 2^64.
    pub buckets: [u64; BUCKETS],
}

impl Default for Exits {
    fn default() -> Self {
        Exits { total: 0, buckets: [0; BUCKETS] }
    }
}

impl Exits {
    /// Counts an exit.
    pub fn add(&mut self, cost: u64) {
        self.total = self.total.wrapping_add(cost);
        if let Some(count) = self.buckets.get_mut(bucket(cost)) {
            *count = count.wrapping_add(1);
        }
    }

    /// Adds the figures of another vCPU or reason.
    pub fn merge(&mut self, other: &Exits) {
        self.total = self.total.wrapping_add(other.total);
        for (count, more) in self.buckets.iter_mut().zip(other.buckets) {
            *count = count.wrapping_add(more);
        }
    }

    /// Returns what was added since an earlier reading of the same record.
    #[must_use]
    pub fn since(&self, earlier: &Exits) -> Exits {
        let mut difference = *self;
        difference.total = self.total.wrapping_sub(earlier.total);
        for (count, before) in difference.buckets.iter_mut().zip(earlier.buckets) {
            *count = count.wrapping_sub(before);
        }
        difference
    }

    /// Returns the number of exits.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets.iter().fold(0, |sum, count| sum.wrapping_add(*count))
    }

    /// Returns the mean cost in ticks; `None` without an exit.
    #[must_use]
    pub fn mean(&self) -> Option<f64> {
        let count = self.count();
        (count > 0).then(|| self.total as f64 / count as f64)
    }

    /// Returns an estimate of the cost that `percent` of all exits (0 to 100) do not exceed; `None` without an exit.
    ///
    /// Within a bucket the costs are taken to lie evenly, so the estimate is off by less than a factor of two, and it
    /// is exact where the histogram says everything: for costs of 0 and 1. It never exceeds the total.
    #[must_use]
    pub fn percentile(&self, percent: f64) -> Option<f64> {
        let count = self.count();
        if count == 0 {
            return None;
        }
        let wanted = (percent.clamp(0.0, 100.0) / 100.0 * count as f64).max(1.0);
        let mut below = 0.0;
        for (bits, &here) in self.buckets.iter().enumerate().filter(|(_, count)| **count > 0) {
            let here = here as f64;
            if below + here >= wanted {
                let (low, high) = bounds(bits);
                let part = (wanted - below) / here;
                return Some((low + (high - low) * part).min(self.total as f64));
            }
            below += here;
        }
        // Rounding left a fraction of an exit: the last bucket's end.
        self.buckets.iter().rposition(|count| *count > 0).map(|bits| bounds(bits).1)
    }
}

/// The least and the greatest cost of a bucket.
fn bounds(bits: usize) -> (f64, f64) {
    match bits {
        0 => (0.0, 0.0),
        _ => ((1_u64 << (bits - 1)) as f64, (u64::MAX >> (u64::BITS as usize - bits)) as f64),
    }
}
