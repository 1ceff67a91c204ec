// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Measures the read of an ID register, ID_AA64ISAR0_EL1, which a hypervisor traps to show its own value.
#![no_std]
#![no_main]

use turnstile_guests::{bench, entry, measured_loop};

entry!(main);

fn main() {
    bench::measure("id-register", reads, empty);
}

fn reads(iterations: u64) {
    measured_loop!(iterations, ["mrs x0, id_aa64isar0_el1"], out("x0") _,);
}

fn empty(iterations: u64) {
    measured_loop!(iterations, ["nop"], out("x0") _,);
}
