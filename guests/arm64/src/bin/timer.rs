// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Measures the virtual timer (CNTV_CVAL_EL0, CNTV_CTL_EL0), with IRQs masked: it is set, it fires, its interrupt is
//! acknowledged, the timer is switched off, and the interrupt is ended.
//!
//! `row=timer-interrupt`: the CPU executes a fixed number of instructions meanwhile, during which the timer fires. So what the
//! exits take adds to the time of an operation, and the guest's counter sees it. `row=sleep-wake`: it waits by WFI.
#![no_std]
#![no_main]

use turnstile_guests::gic::{self, Version, v2};
use turnstile_guests::platform::platform;
use turnstile_guests::timer::Timer;
use turnstile_guests::{bench, entry, measured_loop, mmu, options, println, timer};

entry!(main);

/// Microseconds to the interrupt of a CPU that goes on, and how often it goes round meanwhile, in two instructions: longer than
/// that, whatever it is interrupted by, where an instruction takes a nanosecond.
const SOON: u64 = 4;
const ROUNDS: u64 = 4000;
/// Microseconds of sleep: more than other hypervisors spend on looking whether something comes.
const LATER: u64 = 1000;

/// Acknowledges into x9; ends what is in x9. x11 is the address of the GICv2's CPU interface.
macro_rules! loops {
    ($version:ident, $acknowledge:literal, $end:literal) => {
        mod $version {
            use super::*;

            pub fn operation<const SLEEP: u64>(iterations: u64, ahead: u64, interface: u64) {
                measured_loop!(iterations, [
                        "mrs x9, cntvct_el0",
                        "add x9, x9, {ahead}",
                        "msr cntv_cval_el0, x9",
                        "mov x9, #1",
                        "msr cntv_ctl_el0, x9",
                        "isb",
                        ".if !{sleep}",
                        "mov x10, #{rounds}",
                        "2:",
                        "sub x10, x10, #1",
                        "cbnz x10, 2b",
                        ".endif",
                        "3:",
                        $acknowledge,
                        "cmp w9, #0x3ff",
                        "b.ne 4f",
                        ".if {sleep}",
                        "wfi",
                        ".endif",
                        "b 3b",
                        "4:",
                        "msr cntv_ctl_el0, xzr",
                        "isb",
                        $end,
                    ], ahead = in(reg) ahead, sleep = const SLEEP, rounds = const ROUNDS, in("x11") interface,
                    out("x9") _, out("x10") _,);
            }
        }
    };
}

// ICC_IAR1_EL1, ICC_EOIR1_EL1; GICC_IAR, GICC_EOIR.
loops!(gicv3, "mrs x9, S3_0_C12_C12_0", "msr S3_0_C12_C12_1, x9");
loops!(gicv2, "ldr w9, [x11, #0xc]", "str w9, [x11, #0x10]");

fn main() {
    if platform().gicd.is_none() {
        println!("@error this machine has no interrupt controller");
        return;
    }
    mmu::enable();
    gic::init();
    gic::enable(Timer::Virtual.intid());
    match options::get("row").unwrap_or_default() {
        row @ "timer-interrupt" => measure::<0>(row, SOON),
        row @ "sleep-wake" => measure::<1>(row, LATER),
        row => println!("@error row={row} is none of this guest's"),
    }
}

fn measure<const SLEEP: u64>(row: &str, microseconds: u64) {
    let ahead = timer::ticks(microseconds);
    match gic::version() {
        Version::Gicv3 => {
            bench::measure(row, |count| gicv3::operation::<SLEEP>(count, ahead, 0), empty::<SLEEP>)
        }
        Version::Gicv2 => {
            let interface = v2::interface();
            bench::measure(row, |count| gicv2::operation::<SLEEP>(count, ahead, interface), empty::<SLEEP>)
        }
    }
}

/// The loop without what has to do with the timer.
fn empty<const SLEEP: u64>(iterations: u64) {
    measured_loop!(iterations, [
            ".rept 6",
            "nop",
            ".endr",
            ".if !{sleep}",
            "mov x10, #{rounds}",
            "2:",
            "sub x10, x10, #1",
            "cbnz x10, 2b",
            ".endif",
            ".rept 6",
            "nop",
            ".endr",
        ], sleep = const SLEEP, rounds = const ROUNDS, out("x10") _,);
}
