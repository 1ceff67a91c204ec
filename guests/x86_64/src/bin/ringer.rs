// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Uses the device of the service `doorbell`, or measures what it costs to ring (`guests/common/src/doorbell.rs`). `device=` is where the
//! device is, if it is not where the machine has it.
#![no_std]
#![no_main]

use turnstile_guests_common::doorbell::{self, Device, RING};
use turnstile_guests_x86_64::console::Console;
use turnstile_guests_x86_64::{bench, entry, measured_loop, mmio, options, smp};

entry!(main);

const DEVICE: Device = Device {
    read: |at| mmio::read64(base() + at),
    write: |at, value| mmio::write64(base() + at, value),
    ring: |queue| mmio::write32(base() + RING, queue),
};

fn base() -> u64 {
    options::number("device", 0xfed8_0000)
}

fn main() {
    let bell = base() + RING;
    let measure = |row: &str| {
        bench::measure(
            row,
            |n| measured_loop!(n, ["mov [r13], eax"], in("r13") bell, inout("rax") 0_u64 => _,),
            |n| measured_loop!(n, ["nop"], in("r13") bell, inout("rax") 0_u64 => _,),
        );
    };
    doorbell::main(&mut Console, &DEVICE, measure, || smp::start(1, |_| doorbell::stay(&DEVICE), 0));
}
