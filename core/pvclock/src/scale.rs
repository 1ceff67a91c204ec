// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How a guest makes nanoseconds of ticks: shifted, multiplied, and the upper part taken.

/// Nanoseconds in a second.
const SECOND: u128 = 1_000_000_000;

/// The two numbers of the conversion: `((ticks << shift) * multiplier) >> 32`, a negative shift being one to the right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scale {
    /// With its highest bit set, so that no precision is given away.
    pub multiplier: u32,
    /// Places to the left.
    pub shift: i8,
}

impl Scale {
    /// Makes the conversion for a counter of this frequency in Hz, at least 1.
    pub fn new(frequency: u64) -> Self {
        let frequency = u128::from(frequency.max(1));
        // Nanoseconds in a tick, in 2^-64: more than 2^29, less than 2^94, so that all shifts below are within 8 bits.
        let rate = (SECOND << 64) / frequency;
        let bits = (u128::BITS - rate.leading_zeros()) as i8;
        // `multiplier / 2^32 * 2^shift` is the rate: its highest 32 bits, rounded to the nearest, are the multiplier.
        let shift = bits - 64;
        let excess = bits - 32;
        let exact = if excess > 0 { (rate + (1 << (excess - 1))) >> excess } else { rate << -excess };
        match u32::try_from(exact) {
            Ok(multiplier) => Self { multiplier, shift },
            // Rounded up to the next power of two.
            Err(_) => Self { multiplier: 1 << 31, shift: shift + 1 },
        }
    }

    /// Converts, as a guest does: with 64 bits between the shift and the multiplication.
    pub fn nanoseconds(self, ticks: u64) -> u64 {
        let places = u32::from(self.shift.unsigned_abs());
        let shifted = if self.shift < 0 {
            ticks.checked_shr(places).unwrap_or(0)
        } else {
            ticks.checked_shl(places).unwrap_or(0)
        };
        ((u128::from(shifted) * u128::from(self.multiplier)) >> 32) as u64
    }
}
