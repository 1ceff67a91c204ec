// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Measures an emulated device register: a 32-bit read of GICD_TYPER (seed 004, I/O kernel).
#![no_std]
#![no_main]

use turnstile_guests::gic::offset::TYPER;
use turnstile_guests::mmio::read32;
use turnstile_guests::platform::platform;
use turnstile_guests::{bench, entry, measured_loop, println};

entry!(main);

fn main() {
    let Some(gicd) = platform().gicd else {
        println!("@error the device tree has no GIC");
        return;
    };
    let typer = gicd.base + TYPER;
    bench::measure("io-kernel", |iterations| reads(iterations, typer), empty);
    // ITLinesNumber: either guest machine has SPIs.
    if read32(typer) & 0x1f == 0 {
        println!("@error GICD_TYPER is {:#x}", read32(typer));
    }
}

fn reads(iterations: u64, typer: u64) {
    measured_loop!(iterations, ["ldr w0, [{a}]"], a = in(reg) typer, out("x0") _,);
}

fn empty(iterations: u64) {
    measured_loop!(iterations, ["nop"], out("x0") _,);
}
