// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Access to I/O ports (AMD APM vol. 3, IN and OUT).

use core::arch::asm;

/// Reads a byte.
pub fn read8(port: u16) -> u8 {
    let value;
    // SAFETY: a port's device changes no memory of this program.
    unsafe { asm!("in al, dx", in("dx") port, out("al") value, options(nostack, preserves_flags)) };
    value
}

/// Writes a byte.
pub fn write8(port: u16, value: u8) {
    // SAFETY: as above.
    unsafe { asm!("out dx, al", in("dx") port, in("al") value, options(nostack, preserves_flags)) };
}

/// Reads a word.
pub fn read16(port: u16) -> u16 {
    let value;
    // SAFETY: as above.
    unsafe { asm!("in ax, dx", in("dx") port, out("ax") value, options(nostack, preserves_flags)) };
    value
}

/// Writes a word.
pub fn write16(port: u16, value: u16) {
    // SAFETY: as above.
    unsafe { asm!("out dx, ax", in("dx") port, in("ax") value, options(nostack, preserves_flags)) };
}

/// Reads a double word.
pub fn read32(port: u16) -> u32 {
    let value;
    // SAFETY: as above.
    unsafe { asm!("in eax, dx", in("dx") port, out("eax") value, options(nostack, preserves_flags)) };
    value
}

/// Writes a double word.
pub fn write32(port: u16, value: u32) {
    // SAFETY: as above.
    unsafe { asm!("out dx, eax", in("dx") port, in("eax") value, options(nostack, preserves_flags)) };
}
