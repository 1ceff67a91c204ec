// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The two 8259 interrupt controllers of a PC (Intel 231468).

use crate::port;

/// The first vector of the first controller.
pub const BASE: u8 = 0x20;
/// The first vector behind those of the second.
pub const END: u8 = 0x30;
/// Command port of the first controller.
pub const COMMAND: u16 = 0x20;
/// Mask register of the first controller.
pub const MASK: u16 = 0x21;
/// Command port of the second controller.
pub const COMMAND2: u16 = 0xa0;
/// Mask register of the second controller.
pub const MASK2: u16 = 0xa1;

/// Sets both up, in the cascade of a PC, all lines masked.
pub fn init() {
    for (command, data, base, cascade) in [(COMMAND, MASK, BASE, 4), (COMMAND2, MASK2, BASE + 8, 2)] {
        // ICW1: cascaded, with ICW4. ICW2: vectors. ICW3: cascade. ICW4: 8086 mode.
        port::write8(command, 0x11);
        port::write8(data, base);
        port::write8(data, cascade);
        port::write8(data, 1);
        port::write8(data, 0xff);
    }
}

/// Lets one line in and masks all others.
pub fn unmask_only(line: u8) {
    let lines: u16 = !(1 << line | u16::from(line >= 8) << 2);
    port::write8(MASK, lines as u8);
    port::write8(MASK2, (lines >> 8) as u8);
}

/// Ends an interrupt of one of these vectors.
pub fn end(vector: u8) {
    if vector >= BASE + 8 {
        port::write8(COMMAND2, 0x20);
    }
    port::write8(COMMAND, 0x20);
}
