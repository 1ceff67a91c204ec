// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The machine that must not notice what happens beside it: a line at every tick of its virtual timer, a
//! memory pattern checked each time, the lateness of every tick.
//!
//! Options: those of [`beacon`](turnstile_guests_common::beacon).
#![no_std]
#![no_main]

use turnstile_guests::timer::{self, Timer};
use turnstile_guests::{cpu, entry, gic, irq, mmu, println};
use turnstile_guests_common::beacon::Beacon;

entry!(main);

static BEACON: Beacon = Beacon::new();

fn main() {
    mmu::enable();
    gic::init();
    irq::set_handler(Some(tick));
    gic::enable(Timer::Virtual.intid());
    BEACON.run(arm, wait, || Timer::Virtual.set_control(0));
}

fn arm(due: u64) {
    Timer::Virtual.set_compare(due);
    Timer::Virtual.set_control(timer::ENABLE);
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
