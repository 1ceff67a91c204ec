// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Echoes what the console receives, for tests of consoles. It looks for input a hundred times a second, as Linux does where
//! the terminal has no interrupt.
//!
//! A line is a command: `quit` (power-off), `reset`, `crash` or `crash HOW`, `spin`; any other is printed
//! again as `@echo LINE`.
#![no_std]
#![no_main]

use turnstile_guests_common::echo::{self, Ends};
use turnstile_guests_power64::console::Console;
use turnstile_guests_power64::{console, cpu, crash, entry, power, timer};

entry!(main);

const PERIOD_MICROSECONDS: u64 = 10_000;

fn main() {
    let ends = Ends { off: power::off, reset: power::reset, die: crash::die };
    echo::run(&mut Console, console::put, next_byte, &ends)
}

fn next_byte() -> u8 {
    loop {
        if let Some(byte) = console::get() {
            return byte;
        }
        timer::arm(timer::now() + timer::ticks(PERIOD_MICROSECONDS));
        cpu::wait();
    }
}
