// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tests of what a guest may rely on: PSCI, ID registers, timers, GICv2 or GICv3, registers, memory, devices.
//!
//! Options: `test=NAME` (or the part before a dash, or several by commas) selects, `list` only lists,
//! `bare` leaves out what only a hypervisor does, for a run on the emulated machine itself.
#![no_std]
#![no_main]

mod devices;
mod fp;
mod gic_cpus;
mod gic_order;
mod gic_state;
mod gicv2;
mod identification;
mod memory;
mod pmu;
mod power;
mod registers;
mod timers;

use turnstile_guests::{entry, mmu, options, platform, println, test};

entry!(main);

/// Whether no hypervisor is expected below.
fn is_bare() -> bool {
    options::get("bare").is_some()
}

fn main() {
    println!("@boot selftest");
    platform::report();
    mmu::enable();
    test::run(&[
        power::TESTS,
        identification::TESTS,
        registers::TESTS,
        fp::TESTS,
        pmu::TESTS,
        memory::TESTS,
        timers::TESTS,
        gic_state::TESTS,
        gic_order::TESTS,
        gic_cpus::TESTS,
        gicv2::TESTS,
        devices::TESTS,
    ]);
}
