// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A mixed load of interrupts as on the other machines: about 22,000 in a second, of decrementers and of CPUs, with hypervisor
//! calls between. Whoever is below counts what exits that takes.
//!
//! Each CPU takes its own decrementer's interrupts and IPIs, of itself if it is alone, else of the CPU before it.
//!
//! Options: `milliseconds=` (1000), `stay` (it waits at its end, so that what was counted can be read), `marks`
//! (see [`turnstile_guests_power64::bench`]), and rates, in a second of each CPU: `timer=` (8000), `ipi=` (13000), `calls=`
//! H_CONFER (2000).
#![no_std]
#![no_main]

use turnstile_guests_common::load::Load;
use turnstile_guests_power64::console::Console;
use turnstile_guests_power64::platform;
use turnstile_guests_power64::{cpu, entry, hcall, irq, options, power, println, smp, timer};

entry!(main);

static LOAD: Load = Load::new();

fn main() {
    println!("@boot load");
    platform::report();
    irq::init();
    irq::set_handler(Some(handle));
    if !smp::start_others(work) {
        return;
    }
    let milliseconds = LOAD.run(smp::count(), || work(0));
    report(milliseconds);
    if options::get("stay").is_some() {
        power::halt();
    }
}

/// What each CPU does.
fn work(_: u64) {
    let this = cpu::this().index();
    let end = LOAD.join(this == 0);
    let target = (this + 1) % smp::count();
    let mut ipi = LOAD.rhythm("ipi", 13_000);
    let mut calls = LOAD.rhythm("calls", 2000);
    rearm();
    cpu::unmask();
    loop {
        let now = timer::now();
        if now >= end {
            break;
        }
        if ipi.is_due(now) {
            LOAD.send();
            irq::send(target);
        }
        if calls.is_due(now) {
            hcall::call(hcall::CONFER, [u64::MAX, 0, 0, 0]);
        }
    }
    // Before the decrementer falls silent: what others have sent is to be taken.
    timer::wait(1000, || false);
    cpu::mask();
    timer::disarm();
    LOAD.leave();
}

fn rearm() {
    if let Some(period) = timer::frequency().checked_div(options::number("timer", 8000)) {
        timer::arm(timer::now() + period);
    }
}

fn handle(event: u8) {
    if event == irq::TIMER && timer::now() < LOAD.end() {
        rearm();
    }
}

fn report(milliseconds: u64) {
    let of = |event| (0..smp::count()).map(|cpu| u64::from(irq::count_on(cpu, event))).sum::<u64>();
    let [timers, ipis] = [irq::TIMER, irq::IPI].map(of);
    let total = timers + ipis;
    println!(
        "@load milliseconds={milliseconds} cpus={} interrupts={total} timer={timers} ipi={ipis}",
        smp::count()
    );
    LOAD.finish(&mut Console, ipis, smp::count());
}
