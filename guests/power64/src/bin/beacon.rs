// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The machine that must not notice what happens beside it: a line at every tick of its decrementer, a
//! memory pattern checked each time, the lateness of every tick.
//!
//! Options: those of [`beacon`](turnstile_guests_common::beacon).
#![no_std]
#![no_main]

use turnstile_guests_common::beacon::Beacon;
use turnstile_guests_power64::{cpu, entry, irq, println, timer};

entry!(main);

static BEACON: Beacon = Beacon::new();

fn main() {
    irq::set_handler(Some(tick));
    BEACON.run(timer::arm, wait, end);
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

fn tick(event: u8) {
    if event != irq::TIMER {
        println!("@error unexpected event {event}");
        return;
    }
    timer::arm(BEACON.tick(timer::now()));
}
