// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Measures the null hypercall: PSCI_VERSION by HVC (seed 000).
#![no_std]
#![no_main]

use turnstile_guests::platform::{Conduit, platform};
use turnstile_guests::{bench, entry, measured_loop, println};

entry!(main);

fn main() {
    if platform().psci != Some(Conduit::Hvc) {
        println!("@error the device tree has no PSCI by hvc");
        return;
    }
    bench::measure("null-hypercall", calls, empty);
    let version = calls_returning(1);
    if version >> 32 != 0 || version >> 16 == 0 {
        println!("@error PSCI_VERSION is {version:#x}");
    }
}

fn calls(iterations: u64) {
    calls_returning(iterations);
}

fn calls_returning(iterations: u64) -> u64 {
    let x0: u64;
    measured_loop!(iterations, ["mov x0, #0x84000000", "hvc #0"],
        lateout("x0") x0, out("x1") _, out("x2") _, out("x3") _, out("x4") _, out("x5") _, out("x6") _,
        out("x7") _, out("x8") _, out("x9") _, out("x10") _, out("x11") _, out("x12") _, out("x13") _,
        out("x14") _, out("x15") _, out("x16") _, out("x17") _,);
    x0
}

fn empty(iterations: u64) {
    measured_loop!(iterations, ["mov x0, #0x84000000", "nop"], out("x0") _,);
}
