// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The console: PL011 (DDI 0183) or 16550A, polled for output, with receive interrupts for input; or, in a
//! domain of Xen that has no UART, Xen's console, for output only.

pub use turnstile_guests_common::console::Console;

use core::arch::asm;

use turnstile_guests_common::console::Block;

use crate::mmio::{read8, read32, write8, write32};
use crate::platform::{Uart, UartKind, platform};
use crate::xen;

mod pl011 {
    pub const DR: u64 = 0x00;
    pub const FR: u64 = 0x18;
    pub const IBRD: u64 = 0x24;
    pub const LCR_H: u64 = 0x2c;
    pub const CR: u64 = 0x30;
    pub const IMSC: u64 = 0x38;
    pub const ICR: u64 = 0x44;
    pub const FR_RXFE: u32 = 1 << 4;
    pub const FR_TXFF: u32 = 1 << 5;
    pub const RX_INTERRUPTS: u32 = 1 << 4 | 1 << 6;
}

mod ns16550 {
    pub const DATA: u64 = 0;
    pub const IER: u64 = 1;
    pub const FCR: u64 = 2;
    pub const LCR: u64 = 3;
    pub const MCR: u64 = 4;
    pub const LSR: u64 = 5;
    pub const SCR: u64 = 7;
    pub const LSR_DR: u8 = 1 << 0;
    pub const LSR_THRE: u8 = 1 << 5;
}

fn register(uart: &Uart, offset: u64) -> u64 {
    match uart.kind {
        UartKind::Pl011 => uart.region.base + offset,
        UartKind::Uart16550 { shift } => uart.region.base + (offset << shift),
    }
}

/// Sets the UART up: 8 bits, FIFOs, no interrupts.
pub fn init() {
    let Some(uart) = &platform().uart else { return };
    match uart.kind {
        UartKind::Pl011 => {
            write32(register(uart, pl011::IMSC), 0);
            write32(register(uart, pl011::LCR_H), 0x70);
            write32(register(uart, pl011::CR), 0x301);
        }
        UartKind::Uart16550 { .. } => {
            write8(register(uart, ns16550::IER), 0);
            write8(register(uart, ns16550::LCR), 3);
            write8(register(uart, ns16550::FCR), 1);
            // OUT2 lets the interrupt out on machines that keep the PC's wiring.
            write8(register(uart, ns16550::MCR), 0xb);
        }
    }
}

/// Writes bytes.
pub fn write(block: Block) {
    block.as_slice().iter().copied().for_each(put);
}

/// Writes one byte, waiting for room.
pub fn put(byte: u8) {
    let Some(uart) = &platform().uart else {
        if platform().xen {
            xen::put(byte);
        }
        return;
    };
    match uart.kind {
        UartKind::Pl011 => {
            while read32(register(uart, pl011::FR)) & pl011::FR_TXFF != 0 {}
            write32(register(uart, pl011::DR), u32::from(byte));
        }
        UartKind::Uart16550 { .. } => {
            while read8(register(uart, ns16550::LSR)) & ns16550::LSR_THRE == 0 {}
            write8(register(uart, ns16550::DATA), byte);
        }
    }
}

/// Returns a received byte, if there is one.
pub fn get() -> Option<u8> {
    let uart = platform().uart.as_ref()?;
    match uart.kind {
        UartKind::Pl011 if read32(register(uart, pl011::FR)) & pl011::FR_RXFE == 0 => {
            Some(read32(register(uart, pl011::DR)) as u8)
        }
        UartKind::Uart16550 { .. } if read8(register(uart, ns16550::LSR)) & ns16550::LSR_DR != 0 => {
            Some(read8(register(uart, ns16550::DATA)))
        }
        _ => None,
    }
}

/// Switches the receive interrupt of the UART on or off.
pub fn set_receive_interrupt(on: bool) {
    let Some(uart) = &platform().uart else { return };
    match uart.kind {
        UartKind::Pl011 => {
            write32(register(uart, pl011::ICR), 0x7ff);
            write32(register(uart, pl011::IMSC), if on { pl011::RX_INTERRUPTS } else { 0 });
        }
        UartKind::Uart16550 { .. } => write8(register(uart, ns16550::IER), u8::from(on)),
    }
}

/// Writes x20 to a device register that holds what is written, and reads it into x21 and, with its sign extended, into x0.
macro_rules! written_and_read {
    ($store:literal, $load:literal, $signed:literal, $address:expr, $value:expr) => {{
        let (read, signed): (u64, u64);
        // SAFETY: device registers hold no object of this program; a wrong address ends in the vectors.
        unsafe {
            asm!(
                $store, $load, $signed,
                a = in(reg) $address, in("x20") $value, out("x21") read, out("x0") signed,
                options(nostack)
            );
        }
        [read, signed]
    }};
}

/// Says whether accesses by registers that calls preserve, loads that extend a sign, and all others reach the same UART: a hypervisor
/// may handle them in different places.
pub fn is_one_device() -> bool {
    const VALUE: u64 = 0x5a;
    let Some(uart) = &platform().uart else { return true };
    let (read, plain) = match uart.kind {
        UartKind::Pl011 => {
            let at = register(uart, pl011::IBRD);
            let read = written_and_read!("str w20, [{a}]", "ldr w21, [{a}]", "ldrsw x0, [{a}]", at, VALUE);
            (read, u64::from(read32(at)))
        }
        UartKind::Uart16550 { .. } => {
            let at = register(uart, ns16550::SCR);
            let read = written_and_read!("strb w20, [{a}]", "ldrb w21, [{a}]", "ldrsb x0, [{a}]", at, VALUE);
            (read, u64::from(read8(at)))
        }
    };
    read == [VALUE; 2] && plain == VALUE
}
