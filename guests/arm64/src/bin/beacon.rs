// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The machine that must not notice what happens beside it: a line at every tick of its virtual timer, a
//! memory pattern checked each time, the lateness of every tick.
//!
//! Options: `count=` beacons (default 100), `period=` microseconds (10000), `after=` microseconds until the first period
//! begins (0), `limit=` microseconds that a tick may be late (none by default; 0 is none).
#![no_std]
#![no_main]

use turnstile_guests::console::Console;
use turnstile_guests::platform::platform;
use turnstile_guests::timer::{self, Timer};
use turnstile_guests::{cpu, entry, gic, irq, mmu, println};
use turnstile_guests_common::beacon::Beacon;

entry!(main);

static BEACON: Beacon = Beacon::new();

fn main() {
    mmu::enable();
    gic::init();
    let (line, clock) = (platform().command_line(), timer::clock());
    irq::set_handler(Some(tick));
    gic::enable(Timer::Virtual.intid());
    Timer::Virtual.set_compare(BEACON.begin(line, &clock));
    Timer::Virtual.set_control(timer::ENABLE);
    let errors = BEACON.run(&mut Console, line, &clock, wait);
    Timer::Virtual.set_control(0);
    BEACON.report(&mut Console, line, &clock, errors);
}

/// Waits for the tick of this number; the mask closes the gap between looking and WFI.
fn wait(beacon: u64) {
    cpu::mask_irq();
    while !BEACON.has_ticked(beacon) {
        cpu::wfi();
        cpu::unmask_irq();
        cpu::mask_irq();
    }
    cpu::unmask_irq();
}

fn tick(intid: u32) {
    if intid != Timer::Virtual.intid() {
        println!("@error unexpected interrupt {intid}");
        return;
    }
    Timer::Virtual.set_compare(BEACON.tick(timer::now()));
}
