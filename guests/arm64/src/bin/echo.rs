// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Echoes what the console receives, by receive interrupts, for tests of consoles.
//!
//! A line is a command: `quit` (SYSTEM_OFF), `reset`, `crash` or `crash HOW`, `spin`; any other is printed
//! again as `@echo LINE`.
#![no_std]
#![no_main]

use turnstile_guests::console::Console;
use turnstile_guests::platform::platform;
use turnstile_guests::{console, cpu, crash, entry, gic, irq, mmu, println, psci};
use turnstile_guests_common::echo::{self, Ends, Port, Ring};

entry!(main);

static RECEIVED: Ring = Ring::new();
const PORT: Port = Port { get: console::get, set_receive_interrupt: console::set_receive_interrupt };

fn main() {
    let Some(uart) = platform().uart else { return };
    if !console::is_one_device() {
        return println!("@error accesses of the console by some registers reach something else");
    }
    mmu::enable();
    gic::init();
    irq::set_handler(Some(received));
    gic::enable(uart.intid);
    let ends = Ends { off: psci::system_off, reset: psci::system_reset, die: crash::die };
    echo::run(&mut Console, console::put, next_byte, &ends)
}

/// Takes what the UART holds; the interrupt goes away with the last byte.
fn received(intid: u32) {
    if Some(intid) != platform().uart.map(|uart| uart.intid) {
        println!("@error unexpected interrupt {intid}");
    }
    RECEIVED.fill(&PORT);
}

fn next_byte() -> u8 {
    loop {
        cpu::mask_irq();
        let received = RECEIVED.pop_or_refill(&PORT);
        if received.is_none() {
            cpu::wfi();
        }
        cpu::unmask_irq();
        if let Some(byte) = received {
            return byte;
        }
    }
}
