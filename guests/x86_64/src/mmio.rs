// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Access to device registers in memory, with the plainest instructions: MOV of a general register.

use core::arch::asm;

/// Reads 32 bits.
pub fn read32(address: u64) -> u32 {
    let value;
    // SAFETY: callers name device registers, which no object of this program is in.
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
