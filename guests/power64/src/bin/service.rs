// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Uses the device of a service that misbehaves, which lies where a partition's machine has such a device.
#![no_std]
#![no_main]

use turnstile_guests_common::service::{self, Device};
use turnstile_guests_power64::console::Console;
use turnstile_guests_power64::{entry, mmio};

entry!(main);

const BASE: u64 = (1 << 40) + 0x1_0000;

fn main() {
    let device =
        Device { read: |at| mmio::read64(BASE + at), write: |at, value| mmio::write64(BASE + at, value) };
    service::run(&mut Console, &device);
}
