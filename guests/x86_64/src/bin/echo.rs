// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Echoes what the console receives, by receive interrupts through the I/O APIC, for tests of consoles.
//!
//! A line is a command: `quit` (power-off), `reset`, `crash` or `crash HOW`, `spin`; any other is printed
//! again as `@echo LINE`.
#![no_std]
#![no_main]

use turnstile_guests_common::echo::{self, Ends, Port, Ring};
use turnstile_guests_x86_64::console::Console;
use turnstile_guests_x86_64::{apic, console, cpu, crash, entry, io_apic, irq, pic, power, println};

entry!(main);

const VECTOR: u8 = 0x52;

static RECEIVED: Ring = Ring::new();
const PORT: Port = Port { get: console::get, set_receive_interrupt: console::set_receive_interrupt };

fn main() {
    pic::init();
    apic::init();
    irq::set_handler(Some(received));
    io_apic::route_isa(console::IRQ, VECTOR, apic::id());
    let ends = Ends { off: power::off, reset: power::reset, die: crash::die };
    echo::run(&mut Console, console::put, next_byte, &ends)
}

/// Takes what the UART holds; the interrupt goes away with the last byte.
fn received(vector: u8) {
    if vector != VECTOR {
        println!("@error unexpected interrupt {vector}");
    }
    RECEIVED.fill(&PORT);
}

fn next_byte() -> u8 {
    loop {
        if let Some(byte) = RECEIVED.pop_or_refill(&PORT) {
            // What comes while a line is being dealt with is taken.
            cpu::take_interrupts();
            return byte;
        }
        cpu::wait();
    }
}
