// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Measures a register of a device that is not the interrupt controller (seed 004, I/O user): a byte read of a
//! 16550's scratch register, or, where the console is a PL011, a read of its baud-rate divisor. Both only
//! return what was written last. The option `row=` names another row.
#![no_std]
#![no_main]

use turnstile_guests::mmio::{read8, write8};
use turnstile_guests::platform::{UartKind, platform};
use turnstile_guests::{bench, entry, measured_loop, options, println};

entry!(main);

const SCRATCH: u64 = 7;
const PL011_IBRD: u64 = 0x24;
const PATTERN: u8 = 0x5a;

fn main() {
    let Some(uart) = platform().uart else {
        println!("@error the device tree has no UART");
        return;
    };
    let register = match uart.kind {
        UartKind::Uart16550 { shift } => uart.region.base + (SCRATCH << shift),
        UartKind::Pl011 => uart.region.base + PL011_IBRD,
    };
    if matches!(uart.kind, UartKind::Uart16550 { .. }) {
        write8(register, PATTERN);
        if read8(register) != PATTERN {
            println!("@error the scratch register is {:#x}", read8(register));
            return;
        }
    }
    let row = options::get("row").unwrap_or("io-user");
    bench::measure(row, |iterations| reads(iterations, register), empty);
}

fn reads(iterations: u64, register: u64) {
    measured_loop!(iterations, ["ldrb w0, [{a}]"], a = in(reg) register, out("x0") _,);
}

fn empty(iterations: u64) {
    measured_loop!(iterations, ["nop"], out("x0") _,);
}
