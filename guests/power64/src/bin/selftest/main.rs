// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tests of what a partition may rely on: hypervisor calls, RTAS, time, interrupts, CPUs, memory, translation, exceptions, and
//! that its registers are its own.
//!
//! Options: `test=NAME` (or the part before a dash, or several by commas) selects, `list` only lists,
//! `bare` leaves out what QEMU's own partition answers otherwise.
#![no_std]
#![no_main]

mod calls;
mod cpus;
mod exceptions;
mod interrupts;
mod memory;
mod registers;
mod rtas;
mod timers;
mod translation;
mod vpa;
mod xics;
mod xive;

use turnstile_guests_power64::{entry, options, platform, println, test};

entry!(main);

/// Whether this is QEMU's own partition.
fn is_bare() -> bool {
    options::get("bare").is_some()
}

/// An address of memory that nothing of this program is in, 64 KiB of it.
fn scratch() -> u64 {
    turnstile_guests_power64::boot::image().1.next_multiple_of(1 << 20)
}

fn main() {
    println!("@boot selftest");
    platform::report();
    test::run(&[
        calls::TESTS,
        rtas::TESTS,
        vpa::TESTS,
        timers::TESTS,
        interrupts::TESTS,
        xics::TESTS,
        xive::TESTS,
        exceptions::TESTS,
        registers::TESTS,
        memory::TESTS,
        translation::TESTS,
        cpus::TESTS,
    ]);
}
