// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Repeatable pseudo-random numbers.

pub use turnstile_guests_common::random::Random;

use crate::options;

/// Returns a generator with its own stream of the seed in the option `seed=` (default 1).
pub fn stream(number: u64) -> Random {
    Random::new(options::number("seed", 1), number)
}
