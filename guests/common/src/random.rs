// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Repeatable pseudo-random numbers (xorshift64*, Vigna 2016).

use crate::options;

/// A generator.
pub struct Random(u64);

impl Random {
    /// Returns a generator with its own stream of a seed.
    pub fn new(seed: u64, stream: u64) -> Random {
        Random((seed << 32 ^ stream).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// Returns the next number.
    pub fn number(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// Returns a number below `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.number() % bound.max(1)
    }

    /// Returns a number that is often special: zero, ones, a single bit, small, or any.
    pub fn special(&mut self) -> u64 {
        match self.below(6) {
            0 => 0,
            1 => u64::MAX,
            2 => 1 << self.below(64),
            3 => self.below(256),
            4 => self.number() & 0xffff_ffff,
            _ => self.number(),
        }
    }
}

/// Returns a generator with its own stream of the seed in the option `seed=` (default 1).
pub fn stream(number: u64) -> Random {
    Random::new(options::number("seed", 1), number)
}

/// Returns different values that a careless copy (truncation, sign, neighbour) would change.
pub fn pattern<const N: usize>(seed: u64) -> [u64; N] {
    core::array::from_fn(|index| {
        (seed.wrapping_add(index as u64 + 1)).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1 << 63 | 1 << 31
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_repeat_and_differ() {
        let numbers = |seed, stream| {
            let mut random = Random::new(seed, stream);
            [random.number(), random.number(), random.below(10), random.special()]
        };
        assert_eq!(numbers(1, 2), numbers(1, 2));
        assert_ne!(numbers(1, 2), numbers(1, 3));
        assert_ne!(numbers(1, 2), numbers(2, 2));
    }
}
