// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Exits as often as it is told, for tests of whoever counts them, and then waits for ever.
//!
//! Options: `hypercalls=` VMMCALL, `cpuids=` CPUID, `msrs=` writes of the x2APIC's TPR by WRMSR, `ports=` reads of the
//! 8259's mask, `reads=` of the I/O APIC's window, `ipis=` interrupts to itself, ended by the EOI register, `timers=`
//! waits for the APIC's timer by HLT, of 20 ms each (0 of each by default). All else that it does is the same for any
//! numbers.
#![no_std]
#![no_main]

use turnstile_guests_x86_64::apic::register;
use turnstile_guests_x86_64::{
    apic, cpu, entry, io_apic, irq, kvm, mmio, options, pic, port, power, println, timer,
};

entry!(main);

const WAIT_MICROSECONDS: u64 = 20_000;
const TIMER: u8 = 0x51;
const IPI: u8 = 0x61;

fn main() {
    pic::init();
    apic::init();
    timer::apic_ticks();
    mmio::write32(io_apic::base() + io_apic::SELECT, io_apic::VERSION);
    each("hypercalls", || _ = kvm::hypercall(0x7fff, [0; 4]));
    each("cpuids", || _ = cpu::cpuid(0, 0));
    each("msrs", || apic::write(register::TPR, 0));
    each("ports", || _ = port::read8(pic::MASK));
    each("reads", || _ = mmio::read32(io_apic::base() + io_apic::WINDOW));
    each("ipis", || {
        apic::send_to_self(IPI);
        cpu::take_interrupts();
    });
    if u64::from(irq::count(IPI)) != options::number("ipis", 0) {
        println!("@error {} interrupts were taken", irq::count(IPI));
    }
    each("timers", wait_for_timer);
    println!("@done exits");
    power::halt()
}

/// Does something as often as the option says.
fn each(option: &str, mut act: impl FnMut()) {
    (0..options::number(option, 0)).for_each(|_| act());
}

/// Lets the timer fire once.
fn wait_for_timer() {
    let count = irq::count(TIMER);
    timer::arm(TIMER, timer::now() + timer::ticks(WAIT_MICROSECONDS));
    while irq::count(TIMER) == count {
        cpu::wait();
    }
}
