// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The machine that must not notice what happens beside it: a line at every tick of its APIC's timer, a
//! memory pattern checked each time, the lateness of every tick.
//!
//! Options: those of [`beacon`](turnstile_guests_common::beacon).
#![no_std]
#![no_main]

use turnstile_guests_common::beacon::Beacon;
use turnstile_guests_x86_64::{apic, cpu, entry, irq, pic, println, timer};

entry!(main);

const VECTOR: u8 = 0x51;

static BEACON: Beacon = Beacon::new();

fn main() {
    pic::init();
    apic::init();
    timer::apic_ticks();
    irq::set_handler(Some(tick));
    BEACON.run(|due| timer::arm(VECTOR, due), wait, end);
}

/// Waits for the tick of this number. Ticks come afterwards, too.
fn wait(beacon: u64) {
    cpu::mask();
    while !BEACON.has_ticked(beacon) {
        cpu::wait();
    }
    cpu::unmask();
}

fn end() {
    cpu::mask();
    timer::disarm();
}

fn tick(vector: u8) {
    if vector != VECTOR {
        println!("@error unexpected interrupt {vector}");
        return;
    }
    timer::arm(VECTOR, BEACON.tick(timer::now()));
}
