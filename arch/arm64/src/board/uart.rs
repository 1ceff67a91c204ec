// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The machine's own serial port: PL011 (DDI 0183) or 16550, polled output, interrupt-driven input.

use core::sync::atomic::{AtomicBool, Ordering};

use spin::Once;
use turnstile_arch_common::console::{self, Port};

use turnstile_arch_common::mmio::Registers;

/// What kind of serial port the device tree names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UartKind {
    /// Arm PrimeCell UART.
    Pl011,
    /// 16550 and compatible, `1 << shift` bytes apart, accessed in `width` bytes (1 or 4).
    Ns16550 {
        /// Distance between registers as a power of two.
        shift: u8,
        /// Access width in bytes.
        width: u8,
    },
}

/// A serial port that can be written and read a byte at a time.
#[derive(Clone, Copy, Debug)]
pub struct Uart {
    kind: UartKind,
    registers: Registers,
}

const PL011_DR: usize = 0x00;
const PL011_FR: usize = 0x18;
const PL011_IBRD: usize = 0x24;
const PL011_FBRD: usize = 0x28;
const PL011_LCR_H: usize = 0x2c;
const PL011_CR: usize = 0x30;
const PL011_IMSC: usize = 0x38;
const PL011_ICR: usize = 0x44;
const PL011_FR_RXFE: u32 = 1 << 4;
const PL011_FR_TXFF: u32 = 1 << 5;
const PL011_FR_BUSY: u32 = 1 << 3;
const NS_LSR_TEMT: u32 = 1 << 6;
const NS_LSR_DR: u32 = 1;
const NS_LSR_THRE: u32 = 1 << 5;
/// The baud rate where nobody has chosen one.
const BAUD: u64 = 115_200;
/// Output is dropped after this many looks at a transmitter that stays full: a missing or jammed port
/// must not hang the hypervisor.
const PATIENCE: u32 = 1_000_000;
/// The port did not take the last byte.
static JAMMED: AtomicBool = AtomicBool::new(false);

/// The port that is the machine's serial line.
static CONSOLE: Once<Uart> = Once::new();

/// Uses `uart` as the machine's serial line from now on.
pub fn use_as_console(uart: Uart) {
    console::set(CONSOLE.call_once(|| uart));
}

/// Returns what divides a clock of `clock` Hz to 16 times [`BAUD`]: the whole part, and 64ths.
fn pl011_divisor(clock: u32) -> (u32, u32) {
    let sixty_fourths = (u64::from(clock) * 4 + BAUD / 2) / BAUD;
    ((sixty_fourths / 64) as u32, (sixty_fourths % 64) as u32)
}

impl Uart {
    /// Makes a driver.
    ///
    /// # Safety
    /// As for [`Registers::new`].
    pub const unsafe fn new(kind: UartKind, base: u64) -> Self {
        // SAFETY: the caller's promise.
        Self { kind, registers: unsafe { Registers::new(base) } }
    }

    /// Turns on transmitter and receiver, 8 bits and FIFOs. The baud rate stays as the firmware left it; if it left
    /// none, it is made from the reference clock of `clock` Hz, if that is known.
    pub fn start(&self, clock: Option<u32>) {
        if self.kind != UartKind::Pl011 {
            return;
        }
        if let Some(clock) = clock
            && self.registers.read32(PL011_IBRD) == 0
        {
            // The divisor changes while the port is off, and counts from the write of LCR_H on (DDI 0183, 3.3.6).
            let (whole, fraction) = pl011_divisor(clock);
            self.registers.write32(PL011_CR, 0);
            self.registers.write32(PL011_IBRD, whole);
            self.registers.write32(PL011_FBRD, fraction);
        }
        self.registers.write32(PL011_LCR_H, 0x70);
        self.registers.write32(PL011_CR, 0x301);
    }

    fn ns(&self, register: usize, shift: u8, width: u8) -> u32 {
        let offset = register << shift;
        if width == 4 { self.registers.read32(offset) } else { self.registers.read8(offset).into() }
    }

    fn set_ns(&self, register: usize, shift: u8, width: u8, value: u8) {
        let offset = register << shift;
        if width == 4 {
            self.registers.write32(offset, value.into());
        } else {
            self.registers.write8(offset, value);
        }
    }

    fn try_put(&self, byte: u8, patience: u32) -> bool {
        for _ in 0..patience {
            match self.kind {
                UartKind::Pl011 if self.registers.read32(PL011_FR) & PL011_FR_TXFF == 0 => {
                    self.registers.write32(PL011_DR, byte.into());
                    return true;
                }
                UartKind::Ns16550 { shift, width } if self.ns(5, shift, width) & NS_LSR_THRE != 0 => {
                    self.set_ns(0, shift, width, byte);
                    return true;
                }
                _ => crate::cpu::relax(),
            }
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

    /// Waits until everything has left the port: before the machine goes off.
    fn flush(&self) {
        for _ in 0..PATIENCE {
            let busy = match self.kind {
                UartKind::Pl011 => self.registers.read32(PL011_FR) & PL011_FR_BUSY != 0,
                UartKind::Ns16550 { shift, width } => self.ns(5, shift, width) & NS_LSR_TEMT == 0,
            };
            if !busy || JAMMED.load(Ordering::Relaxed) {
                return;
            }
            crate::cpu::relax();
        }
    }

    /// Takes a received byte, if there is one.
    fn get(&self) -> Option<u8> {
        match self.kind {
            UartKind::Pl011 => (self.registers.read32(PL011_FR) & PL011_FR_RXFE == 0)
                .then(|| self.registers.read32(PL011_DR) as u8),
            UartKind::Ns16550 { shift, width } => {
                (self.ns(5, shift, width) & NS_LSR_DR != 0).then(|| self.ns(0, shift, width) as u8)
            }
        }
    }

    /// Enables the receive interrupts (for the PL011 also the receive time-out, for less than a FIFO level).
    fn enable_receive_interrupt(&self) {
        if let UartKind::Pl011 = self.kind {
            self.registers.write32(PL011_ICR, 0x7ff);
        }
        self.mask_receive_interrupt(false);
    }

    fn mask_receive_interrupt(&self, masked: bool) {
        match self.kind {
            UartKind::Pl011 => {
                self.registers.write32(PL011_IMSC, if masked { 0 } else { (1 << 4) | (1 << 6) });
            }
            UartKind::Ns16550 { shift, width } => self.set_ns(1, shift, width, u8::from(!masked)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn divisors_are_those_of_the_manual() {
        assert_eq!(pl011_divisor(48_000_000), (26, 3));
        assert_eq!(pl011_divisor(24_000_000), (13, 1));
        assert_eq!(pl011_divisor(1_843_200), (1, 0));
    }
}
