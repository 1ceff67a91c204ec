// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Access to device registers in memory, with the plainest instructions.

use core::arch::asm;

/// Reads a byte.
pub fn read8(address: u64) -> u8 {
    let value: u64;
    // SAFETY: callers name device registers or memory that no object of this program is in.
    unsafe {
        asm!("lbz {}, 0({})", out(reg) value, in(reg_nonzero) address, options(nostack, preserves_flags))
    };
    value as u8
}

/// Writes a byte.
pub fn write8(address: u64, value: u8) {
    // SAFETY: as above.
    unsafe {
        asm!("stb {}, 0({})", in(reg) u64::from(value), in(reg_nonzero) address, options(nostack, preserves_flags))
    };
}

/// Reads 16 bits.
pub fn read16(address: u64) -> u16 {
    let value: u64;
    // SAFETY: as above.
    unsafe {
        asm!("lhz {}, 0({})", out(reg) value, in(reg_nonzero) address, options(nostack, preserves_flags))
    };
    value as u16
}

/// Writes 16 bits.
pub fn write16(address: u64, value: u16) {
    // SAFETY: as above.
    unsafe {
        asm!("sth {}, 0({})", in(reg) u64::from(value), in(reg_nonzero) address, options(nostack, preserves_flags))
    };
}

/// Reads 16 bits of a big-endian register.
pub fn read16_big(address: u64) -> u16 {
    let value: u64;
    // SAFETY: as above.
    unsafe { asm!("lhbrx {}, 0, {}", out(reg) value, in(reg) address, options(nostack, preserves_flags)) };
    value as u16
}

/// Reads 32 bits.
pub fn read32(address: u64) -> u32 {
    let value: u64;
    // SAFETY: as above.
    unsafe {
        asm!("lwz {}, 0({})", out(reg) value, in(reg_nonzero) address, options(nostack, preserves_flags))
    };
    value as u32
}

/// Writes 32 bits.
pub fn write32(address: u64, value: u32) {
    // SAFETY: as above.
    unsafe {
        asm!("stw {}, 0({})", in(reg) u64::from(value), in(reg_nonzero) address, options(nostack, preserves_flags))
    };
}

/// Reads 64 bits.
pub fn read64(address: u64) -> u64 {
    let value;
    // SAFETY: as above.
    unsafe {
        asm!("ld {}, 0({})", out(reg) value, in(reg_nonzero) address, options(nostack, preserves_flags))
    };
    value
}

/// Reads 64 bits of a big-endian register.
pub fn read64_big(address: u64) -> u64 {
    let value;
    // SAFETY: as above.
    unsafe { asm!("ldbrx {}, 0, {}", out(reg) value, in(reg) address, options(nostack, preserves_flags)) };
    value
}

/// Writes 64 bits.
pub fn write64(address: u64, value: u64) {
    // SAFETY: as above.
    unsafe {
        asm!("std {}, 0({})", in(reg) value, in(reg_nonzero) address, options(nostack, preserves_flags))
    };
}
