// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The machine that must not notice what happens beside it: a line at every tick of its decrementer, a
//! memory pattern checked each time, the lateness of every tick.
//!
//! Options: `count=` beacons (default 100), `period=` microseconds (10000), `after=` microseconds until the first period
//! begins (0), `limit=` microseconds that a tick may be late (none by default; 0 is none).
#![no_std]
#![no_main]

use turnstile_guests_common::beacon::Beacon;
use turnstile_guests_power64::console::Console;
use turnstile_guests_power64::platform::platform;
use turnstile_guests_power64::{cpu, entry, irq, println, timer};

entry!(main);

static BEACON: Beacon = Beacon::new();

fn main() {
    let (line, clock) = (platform().command_line(), timer::clock());
    irq::set_handler(Some(tick));
    timer::arm(BEACON.begin(line, &clock));
    let errors = BEACON.run(&mut Console, line, &clock, wait);
    cpu::mask();
    timer::disarm();
    BEACON.report(&mut Console, line, &clock, errors);
}

/// Waits for the tick of this number. Ticks come afterwards, too.
fn wait(beacon: u64) {
    cpu::mask();
    while !BEACON.has_ticked(beacon) {
        cpu::wait();
    }
    cpu::unmask();
}

fn tick(event: u8) {
    if event != irq::TIMER {
        println!("@error unexpected event {event}");
        return;
    }
    timer::arm(BEACON.tick(timer::now()));
}
