// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The machine's own serial port: a 16550 (PC16550D data sheet) in I/O space, polled output, interrupt-driven input.

use core::sync::atomic::{AtomicBool, Ordering};

use turnstile_arch_common::console::Port;

use crate::cpu;
use crate::cpu::ports;

/// A 16550 whose first register is at a port.
#[derive(Clone, Copy, Debug)]
pub struct Uart {
    port: u16,
}

/// The first serial port of a PC.
pub static COM1: Uart = Uart { port: 0x3f8 };

/// Its line to the interrupt controllers of a PC.
pub const COM1_IRQ: u8 = 4;

const DATA: u16 = 0;
const IER: u16 = 1;
const FCR: u16 = 2;
const LCR: u16 = 3;
const MCR: u16 = 4;
const LSR: u16 = 5;
const LSR_DR: u8 = 1;
const LSR_THRE: u8 = 1 << 5;
const LSR_TEMT: u8 = 1 << 6;
const LCR_DLAB: u8 = 1 << 7;
const LCR_8N1: u8 = 0b11;
/// DTR, RTS, and OUT2, which lets the interrupt out on a PC.
const MCR_ON: u8 = 0b1011;
/// FIFOs on and empty.
const FCR_ON: u8 = 0b111;
/// Divides the clock of a PC's port to 115200 Bd.
const DIVISOR_115200: u8 = 1;
/// Output is dropped after this many looks at a transmitter that stays full: a missing or jammed port must not hang the
/// hypervisor.
const PATIENCE: u32 = 1_000_000;
/// The port did not take the last byte.
static JAMMED: AtomicBool = AtomicBool::new(false);

impl Uart {
    fn read(&self, register: u16) -> u8 {
        // SAFETY: the hypervisor's own port; no guest has it.
        unsafe { ports::read8(self.port + register) }
    }

    fn write(&self, register: u16, value: u8) {
        // SAFETY: as for `read`; a 16550 does not reach memory.
        unsafe { ports::write8(self.port + register, value) }
    }

    /// Sets the port up: 115200 Bd, 8 bits, no parity, FIFOs.
    pub fn start(&self) {
        self.write(IER, 0);
        self.write(LCR, LCR_DLAB | LCR_8N1);
        self.write(DATA, DIVISOR_115200);
        self.write(IER, 0);
        self.write(LCR, LCR_8N1);
        self.write(FCR, FCR_ON);
        self.write(MCR, MCR_ON);
    }

    fn try_put(&self, byte: u8, patience: u32) -> bool {
        for _ in 0..patience {
            if self.read(LSR) & LSR_THRE != 0 {
                self.write(DATA, byte);
                return true;
            }
            cpu::relax();
        }
        false
    }
}

impl Port for Uart {
    /// Sends a byte, waiting for room. Once a port has not taken any for a long time, bytes are dropped at once
    /// until it does.
    fn put(&self, byte: u8) {
        let patience = if JAMMED.load(Ordering::Relaxed) { 1 } else { PATIENCE };
        JAMMED.store(!self.try_put(byte, patience), Ordering::Relaxed);
    }

    fn flush(&self) {
        for _ in 0..PATIENCE {
            if self.read(LSR) & LSR_TEMT != 0 || JAMMED.load(Ordering::Relaxed) {
                return;
            }
            cpu::relax();
        }
    }

    fn get(&self) -> Option<u8> {
        (self.read(LSR) & LSR_DR != 0).then(|| self.read(DATA))
    }

    fn enable_receive_interrupt(&self) {
        self.mask_receive_interrupt(false);
    }

    fn mask_receive_interrupt(&self, masked: bool) {
        self.write(IER, u8::from(!masked));
    }
}
