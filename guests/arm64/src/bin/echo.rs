// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Echoes what the console receives, by receive interrupts, for tests of consoles.
//!
//! A line is a command: `quit` (SYSTEM_OFF), `reset`, `crash` or `crash HOW`, `spin`; any other is printed
//! again as `@echo LINE`.
#![no_std]
#![no_main]

use core::sync::atomic::{AtomicU8, AtomicUsize, Ordering::Relaxed};

use turnstile_guests::platform::platform;
use turnstile_guests::{console, cpu, crash, entry, gic, irq, mmu, print, println, psci};

entry!(main);

const RING: usize = 1024;
const LINE: usize = 256;

static BYTES: [AtomicU8; RING] = [const { AtomicU8::new(0) }; RING];
static WRITTEN: AtomicUsize = AtomicUsize::new(0);

fn main() {
    let Some(uart) = platform().uart else { return };
    mmu::enable();
    gic::init();
    irq::set_handler(Some(received));
    gic::enable(uart.intid);
    console::set_receive_interrupt(true);
    println!("@boot echo");
    print!("echo> ");
    let mut line = [0; LINE];
    let mut len = 0;
    let mut read = 0;
    loop {
        match next_byte(&mut read) {
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

/// Takes what the UART holds; the interrupt goes away with the last byte.
fn received(intid: u32) {
    if Some(intid) != platform().uart.map(|uart| uart.intid) {
        println!("@error unexpected interrupt {intid}");
    }
    while let Some(byte) = console::get() {
        let written = WRITTEN.load(Relaxed);
        if let Some(slot) = BYTES.get(written % RING) {
            slot.store(byte, Relaxed);
        }
        WRITTEN.store(written + 1, Relaxed);
    }
}

fn next_byte(read: &mut usize) -> u8 {
    cpu::mask_irq();
    while WRITTEN.load(Relaxed) == *read {
        cpu::wfi();
        cpu::unmask_irq();
        cpu::mask_irq();
    }
    cpu::unmask_irq();
    let byte = BYTES.get(*read % RING).map_or(0, |slot| slot.load(Relaxed));
    *read += 1;
    byte
}

fn command(line: &str) {
    match line.trim() {
        "" => {}
        "quit" => psci::system_off(),
        "reset" => psci::system_reset(),
        "crash" => crash::die("exception"),
        "spin" => crash::die("spin"),
        line => match line.strip_prefix("crash ") {
            Some(how) => crash::die(how.trim()),
            None => println!("@echo {line}"),
        },
    }
}
