// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Measures a trapped system register: PMSELR_EL0, which the PMU traps when it is emulated (seed 000).
#![no_std]
#![no_main]

use turnstile_guests::platform::platform;
use turnstile_guests::{bench, entry, measured_loop, println};

entry!(main);

fn main() {
    // Xen emulates the register in every domain, although it offers none a PMU.
    if platform().pmu.is_none() && !platform().xen {
        println!("@error this machine has no PMU (pmu = \"trapped\" gives it one)");
        return;
    }
    bench::measure("sysreg-trap", reads, empty);
}

fn reads(iterations: u64) {
    measured_loop!(iterations, ["mrs x0, pmselr_el0"], out("x0") _,);
}

fn empty(iterations: u64) {
    measured_loop!(iterations, ["nop"], out("x0") _,);
}
