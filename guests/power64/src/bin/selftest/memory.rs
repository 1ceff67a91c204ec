// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Memory where the device tree says it is.

use turnstile_guests_common::memory;
use turnstile_guests_power64::platform::platform;
use turnstile_guests_power64::test::{Outcome, Test};
use turnstile_guests_power64::{boot, check_eq, crash, mmio, println, skip, trap};

pub const TESTS: &[Test] = &[Test { name: "memory-all", run: all }, Test { name: "memory-hole", run: hole }];

/// A word of each 64 KiB can be written, and keeps its value.
fn all() -> Outcome {
    memory::keeps_words(platform().free_blocks(boot::image().1, 64 << 10), mmio::read32, mmio::write32)
}

/// Where nothing is, an access ends in an exception, or reads ones.
fn hole() -> Outcome {
    if crate::is_bare() {
        skip!("QEMU's own partition takes a machine check that tells nothing");
    }
    match trap::expect(|| mmio::read64(crash::outside())) {
        Ok(value) => check_eq!(value, u64::MAX, "what is read"),
        Err(trap) => println!("  {trap}"),
    }
    Ok(())
}
