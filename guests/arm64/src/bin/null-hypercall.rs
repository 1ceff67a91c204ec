// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Measures the null hypercall: PSCI_VERSION by HVC (seed 000); with `row=hypercall-unknown` one of a function that nobody has,
//! which other benchmarks take for it.
#![no_std]
#![no_main]

use turnstile_guests::platform::{Conduit, platform};
use turnstile_guests::{bench, entry, measured_loop, options, println};

entry!(main);

const VERSION: u64 = 0x8400_0000;
/// A yielding call in none of the ranges that the SMC Calling Convention has for them (DEN 0028, chapter 6).
const UNKNOWN: u64 = 0x4b00_0000;
const NOT_SUPPORTED: u32 = u32::MAX;

fn main() {
    if platform().psci != Some(Conduit::Hvc) {
        println!("@error the device tree has no PSCI by hvc");
        return;
    }
    if options::get("row") == Some("hypercall-unknown") {
        bench::measure("hypercall-unknown", |n| _ = calls::<UNKNOWN>(n), empty::<UNKNOWN>);
        let answer = calls::<UNKNOWN>(1);
        // Of 32 bits, as the function's number says, or of 64.
        if answer as u32 != NOT_SUPPORTED {
            println!("@error an unknown function answers {answer:#x}");
        }
        return;
    }
    bench::measure("null-hypercall", |n| _ = calls::<VERSION>(n), empty::<VERSION>);
    let version = calls::<VERSION>(1);
    if version >> 32 != 0 || version >> 16 == 0 {
        println!("@error PSCI_VERSION is {version:#x}");
    }
}

/// Calls a function so many times, and returns its last answer.
fn calls<const FUNCTION: u64>(iterations: u64) -> u64 {
    let x0: u64;
    measured_loop!(iterations, ["mov x0, #{function}", "hvc #0"], function = const FUNCTION,
        lateout("x0") x0, out("x1") _, out("x2") _, out("x3") _, out("x4") _, out("x5") _, out("x6") _,
        out("x7") _, out("x8") _, out("x9") _, out("x10") _, out("x11") _, out("x12") _, out("x13") _,
        out("x14") _, out("x15") _, out("x16") _, out("x17") _,);
    x0
}

fn empty<const FUNCTION: u64>(iterations: u64) {
    measured_loop!(iterations, ["mov x0, #{function}", "nop"], function = const FUNCTION, out("x0") _,);
}
