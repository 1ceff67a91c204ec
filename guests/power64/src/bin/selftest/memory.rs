// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Memory where the device tree says it is.

use turnstile_guests_power64::platform::platform;
use turnstile_guests_power64::test::{Outcome, Test};
use turnstile_guests_power64::{boot, check, check_eq, crash, mmio, println, skip, trap};

pub const TESTS: &[Test] = &[Test { name: "memory-all", run: all }, Test { name: "memory-hole", run: hole }];

/// A word of each 64 KiB can be written, and keeps its value.
fn all() -> Outcome {
    const STEP: u64 = 64 << 10;
    let (_, end) = boot::image();
    let places = || {
        let regions = platform().memory.as_slice().iter();
        let free = regions.map(|region| (region.base.max(end).next_multiple_of(STEP), region.end()));
        free.flat_map(|(start, end)| (start..end.max(start)).step_by(STEP as usize))
    };
    let is_loader = |place| {
        platform().loader.as_slice().iter().any(|region| place + STEP > region.base && place < region.end())
    };
    for place in places().filter(|place| !is_loader(*place)) {
        mmio::write32(place + 0xff8, place as u32 ^ 0x5a5a_1234);
    }
    for place in places().filter(|place| !is_loader(*place)) {
        check_eq!(mmio::read32(place + 0xff8), place as u32 ^ 0x5a5a_1234, "the word at {place:#x}");
        mmio::write32(place + 0xff8, 0);
    }
    check!(places().count() > 4, "there is no memory");
    Ok(())
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
