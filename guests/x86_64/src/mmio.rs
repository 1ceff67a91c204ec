// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Access to device registers in memory, with the plainest instructions: MOV of a general register.

use core::arch::asm;

/// Reads 8 bits.
pub fn read8(address: u64) -> u8 {
    let value;
    // SAFETY: callers name device registers, or memory that they share with a device and that no object of this program is in.
    unsafe { asm!("mov {}, [{}]", out(reg_byte) value, in(reg) address, options(nostack, preserves_flags)) };
    value
}

/// Writes 8 bits.
pub fn write8(address: u64, value: u8) {
    // SAFETY: as above.
    unsafe { asm!("mov [{}], {}", in(reg) address, in(reg_byte) value, options(nostack, preserves_flags)) };
}

/// Reads 16 bits.
pub fn read16(address: u64) -> u16 {
    let value;
    // SAFETY: as above.
    unsafe { asm!("mov {:x}, [{}]", out(reg) value, in(reg) address, options(nostack, preserves_flags)) };
    value
}

/// Writes 16 bits.
pub fn write16(address: u64, value: u16) {
    // SAFETY: as above.
    unsafe { asm!("mov [{}], {:x}", in(reg) address, in(reg) value, options(nostack, preserves_flags)) };
}

/// Reads 32 bits.
pub fn read32(address: u64) -> u32 {
    let value;
    // SAFETY: as above.
    unsafe { asm!("mov {:e}, [{}]", out(reg) value, in(reg) address, options(nostack, preserves_flags)) };
    value
}

/// Writes 32 bits.
pub fn write32(address: u64, value: u32) {
    // SAFETY: as above.
    unsafe { asm!("mov [{}], {:e}", in(reg) address, in(reg) value, options(nostack, preserves_flags)) };
}

/// Reads 64 bits of a record that a hypervisor writes.
pub fn read64(address: u64) -> u64 {
    let value;
    // SAFETY: as above.
    unsafe { asm!("mov {}, [{}]", out(reg) value, in(reg) address, options(nostack, preserves_flags)) };
    value
}

/// Writes 64 bits.
pub fn write64(address: u64, value: u64) {
    // SAFETY: as above.
    unsafe { asm!("mov [{}], {}", in(reg) address, in(reg) value, options(nostack, preserves_flags)) };
}
