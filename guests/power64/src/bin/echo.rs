// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Echoes what the console receives, for tests of consoles. It looks for input a hundred times a second, as Linux does where
//! the terminal has no interrupt.
//!
//! A line is a command: `quit` (power-off), `reset`, `crash` or `crash HOW`, `spin`; any other is printed
//! again as `@echo LINE`.
#![no_std]
#![no_main]

use turnstile_guests_power64::{console, cpu, crash, entry, power, print, println, timer};

entry!(main);

const LINE: usize = 256;
const PERIOD_MICROSECONDS: u64 = 10_000;

fn main() {
    println!("@boot echo");
    print!("echo> ");
    let mut line = [0; LINE];
    let mut len = 0;
    loop {
        match next_byte() {
            b'\r' | b'\n' => {
                println!();
                command(line.get(..len).and_then(|bytes| core::str::from_utf8(bytes).ok()).unwrap_or(""));
                len = 0;
                print!("echo> ");
            }
            8 | 127 => {
                if len > 0 {
                    len -= 1;
                    print!("\x08 \x08");
                }
            }
            byte => {
                console::put(byte);
                if let Some(slot) = line.get_mut(len) {
                    *slot = byte;
                    len += 1;
                }
            }
        }
    }
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

fn command(line: &str) {
    match line.trim() {
        "" => {}
        "quit" => power::off(),
        "reset" => power::reset(),
        "crash" => crash::die("exception"),
        "spin" => crash::die("spin"),
        line => match line.strip_prefix("crash ") {
            Some(how) => crash::die(how.trim()),
            None => println!("@echo {line}"),
        },
    }
}
