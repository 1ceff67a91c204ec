// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The console: COM1, a 16550A, polled for output, with receive interrupts for input.

pub use turnstile_guests_common::console::Console;

use turnstile_guests_common::console::Block;

use crate::port;

/// Its first port.
pub const COM1: u16 = 0x3f8;
/// Its interrupt on the ISA bus.
pub const IRQ: u8 = 4;
/// Interrupt enable register.
pub const IER: u16 = COM1 + 1;
/// Interrupt identification, and FIFO control when it is written.
pub const FCR: u16 = COM1 + 2;
const LCR: u16 = COM1 + 3;
const MCR: u16 = COM1 + 4;
const LSR: u16 = COM1 + 5;
/// Scratch register.
pub const SCR: u16 = COM1 + 7;
const LSR_DR: u8 = 1 << 0;
const LSR_THRE: u8 = 1 << 5;

/// Sets the UART up: 8 bits, FIFOs, no interrupts.
pub fn init() {
    port::write8(IER, 0);
    port::write8(LCR, 3);
    port::write8(FCR, 1);
    // OUT2 lets the interrupt out.
    port::write8(MCR, 0xb);
}

/// Writes bytes.
pub fn write(block: Block) {
    block.as_slice().iter().copied().for_each(put);
}

/// Writes one byte, waiting for room.
pub fn put(byte: u8) {
    while port::read8(LSR) & LSR_THRE == 0 {}
    port::write8(COM1, byte);
}

/// Returns a received byte, if there is one.
pub fn get() -> Option<u8> {
    (port::read8(LSR) & LSR_DR != 0).then(|| port::read8(COM1))
}

/// Switches the receive interrupt on or off.
pub fn set_receive_interrupt(on: bool) {
    port::write8(IER, u8::from(on));
}
