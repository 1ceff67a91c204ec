// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Exits as often as it is told, for tests of whoever counts them, and then waits for ever.
//!
//! Options: `hypercalls=` H_CONFER to nobody in particular, `unknown=` calls that no hypervisor has, `prods=` H_PROD of itself
//! with H_CEDE, `stores=` to the 16550A's scratch register, `ipis=` interrupts to itself, `timers=` waits for the decrementer
//! by H_CEDE, of 20 ms each (0 of each by default). All else that it does is the same for any numbers.
#![no_std]
#![no_main]

use turnstile_guests_power64::platform::platform;
use turnstile_guests_power64::{cpu, entry, hcall, irq, mmio, options, power, println, smp, timer};

entry!(main);

const WAIT_MICROSECONDS: u64 = 20_000;
/// The 16550A's scratch register.
const SCRATCH: u64 = 7;

fn main() {
    irq::init();
    let server = u64::from(smp::server(0));
    each("hypercalls", || _ = hcall::call(hcall::CONFER, [u64::MAX, 0, 0, 0]));
    each("unknown", || _ = hcall::call(hcall::NOTHING, [0; 4]));
    each("prods", || {
        hcall::call(hcall::PROD, [server, 0, 0, 0]);
        cpu::wait();
    });
    match platform().uart {
        Some(uart) => each("stores", || mmio::write8(uart.base + SCRATCH, 0x5a)),
        None if options::number("stores", 0) != 0 => println!("@error this machine has no 16550A"),
        None => {}
    }
    each("ipis", || {
        irq::send(0);
        cpu::take_interrupts();
    });
    if u64::from(irq::count(irq::IPI)) != options::number("ipis", 0) {
        println!("@error {} interrupts were taken", irq::count(irq::IPI));
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
    let count = irq::count(irq::TIMER);
    timer::arm(timer::now() + timer::ticks(WAIT_MICROSECONDS));
    while irq::count(irq::TIMER) == count {
        cpu::wait();
    }
}
