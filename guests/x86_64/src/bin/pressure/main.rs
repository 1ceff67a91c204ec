// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Has interrupts of all vectors pending at once, in service at once, and under way between all CPUs, and accounts for
//! each: none is lost, none comes twice, and none before one of higher priority.
//!
//! Options: `test=`, `list`, `count=` interrupts of each test (100000), `seed=`, `pv-eoi=off`.
#![no_std]
#![no_main]

mod alone;
mod cross;

use turnstile_guests_x86_64::test::Test;
use turnstile_guests_x86_64::{entry, options, platform, println, pv_eoi, test};

entry!(main);

const TESTS: &[Test] = &[
    Test { name: "pressure-pending", run: alone::pending },
    Test { name: "pressure-nested", run: alone::nested },
    Test { name: "pressure-xapic", run: alone::xapic },
    Test { name: "pressure-cross", run: cross::all },
];

/// How many interrupts a test takes.
fn wanted() -> u64 {
    options::number("count", 100_000)
}

fn main() {
    println!("@boot pressure");
    platform::report();
    println!("  paravirtual EOI {}", if pv_eoi::is_wanted() { "on" } else { "off" });
    test::run(&[TESTS]);
    println!("  {} EOIs were spared", pv_eoi::spared());
}
