// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Interrupts between all CPUs, doorbells to itself and the decrementer, as fast as they go, and accounts for each: none is lost,
//! none comes twice.
//!
//! Options: `test=`, `list`, `count=` interrupts of each test (100000), `seed=`.
#![no_std]
#![no_main]

mod alone;
mod cross;

use turnstile_guests_power64::test::Test;
use turnstile_guests_power64::{entry, options, platform, println, test};

entry!(main);

const TESTS: &[Test] = &[
    Test { name: "pressure-alone", run: alone::masked },
    Test { name: "pressure-ceded", run: alone::ceded },
    Test { name: "pressure-together", run: alone::together },
    Test { name: "pressure-cross", run: cross::all },
];

/// How many interrupts a test takes.
fn wanted() -> u64 {
    options::number("count", 100_000)
}

fn main() {
    println!("@boot pressure");
    platform::report();
    test::run(&[TESTS]);
}
