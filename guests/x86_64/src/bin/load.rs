// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A mixed load of interrupts like the one in seed 003's table: about 21,500 in a second, of the APIC's timer, of CPUs,
//! and of devices through the I/O APIC, with and without paravirtual EOI. Whoever is below counts what exits that takes.
//!
//! Each CPU takes its own timer's interrupts (periodic) and IPIs, of itself if it is alone, else of the CPU before it. The first
//! CPU has the devices, too: the 8254, and COM1, whose transmitter says that it is empty whenever it is asked. COM1's interrupt is
//! a level, whose end is always written.
//!
//! Options: `milliseconds=` (1000), `pv-eoi=off`, `stay` (it halts at its end, so that what was counted can be read), `marks`
//! (see [`turnstile_guests_x86_64::bench`]), and rates, in a second of each CPU: `timer=` (4000), `ipi=` (13000), and of the
//! first: `pit=` (4000), `com1=` (500), `ports=` reads of a port (2000).
#![no_std]
#![no_main]

use core::sync::atomic::{AtomicBool, Ordering::SeqCst};

use turnstile_guests_common::load::Load;
use turnstile_guests_x86_64::console::Console;
use turnstile_guests_x86_64::platform;
use turnstile_guests_x86_64::{
    apic, console, cpu, entry, io_apic, irq, options, pic, pit, port, power, println, pv_eoi, smp, timer,
};

entry!(main);

const TIMER: u8 = 0x51;
const IPI: u8 = 0x61;
const PIT: u8 = 0x71;
const COM1: u8 = 0x81;

static LOAD: Load = Load::new();
/// The transmitter's interrupt is under way.
static ASKED: AtomicBool = AtomicBool::new(false);

fn main() {
    platform::report();
    pic::init();
    apic::init();
    timer::apic_ticks();
    irq::set_handler(Some(handle));
    if !smp::start_others(work) {
        return;
    }
    let offered = if pv_eoi::is_wanted() { "on" } else { "off" };
    println!("@boot load pv-eoi={offered}");
    let milliseconds = LOAD.run(smp::count(), || work(0));
    report(milliseconds);
    if options::get("stay").is_some() {
        power::halt();
    }
}

/// What each CPU does.
fn work(_: u64) {
    let first = cpu::this().index() == 0;
    if pv_eoi::is_wanted() {
        pv_eoi::enable();
    }
    let end = LOAD.join(first);
    start_sources(first);
    let target = smp::apic_id((cpu::this().index() + 1) % smp::count());
    let mut ipi = LOAD.rhythm("ipi", 13_000);
    let mut com1 = LOAD.rhythm("com1", 500);
    let mut ports = LOAD.rhythm("ports", 2000);
    cpu::unmask();
    loop {
        let now = timer::now();
        if now >= end {
            break;
        }
        if ipi.is_due(now) {
            LOAD.send();
            match smp::count() {
                1 => apic::send_to_self(IPI),
                _ => apic::send_to(target, IPI),
            }
        }
        if first && com1.is_due(now) && !ASKED.swap(true, SeqCst) {
            port::write8(console::IER, 2);
        }
        if first && ports.is_due(now) {
            port::read8(pic::MASK);
        }
    }
    // Before the sources fall silent: what others have sent is to be taken.
    timer::wait(1000, || false);
    cpu::mask();
    apic::stop_timer();
    pit::stop();
    pv_eoi::disable();
    LOAD.leave();
}

fn start_sources(devices: bool) {
    if let Some(period) = timer::frequency().checked_div(options::number("timer", 4000)) {
        // In the APIC's own mode for steady ticks: no exit is needed to set it anew.
        let period = (period * timer::apic_ticks()) >> 20;
        apic::set_timer(TIMER, apic::PERIODIC, period as u32);
    }
    if devices {
        io_apic::route_isa(0, PIT, apic::id());
        io_apic::route_isa_as_level(console::IRQ, COM1, apic::id());
        if let Some(count) = pit::FREQUENCY.checked_div(options::number("pit", 4000)) {
            pit::start_periodic(count.min(0xffff) as u16);
        }
    }
}

fn handle(vector: u8) {
    if vector == COM1 {
        // Reading the identification takes the transmitter's interrupt back.
        port::read8(console::FCR);
        port::write8(console::IER, 0);
        ASKED.store(false, SeqCst);
    }
}

fn report(milliseconds: u64) {
    let of = |vector| (0..smp::count()).map(|cpu| u64::from(irq::count_on(cpu, vector))).sum::<u64>();
    let [timers, ipis, pits, com1] = [TIMER, IPI, PIT, COM1].map(of);
    let total = timers + ipis + pits + com1;
    println!(
        "@load milliseconds={milliseconds} cpus={} interrupts={total} timer={timers} ipi={ipis} pit={pits} \
         com1={com1} spared={}",
        smp::count(),
        pv_eoi::spared()
    );
    LOAD.finish(&mut Console, ipis, smp::count());
}
