// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Single accesses of registers, and what orders accesses of memory that a device reads and writes, too. Devices are little-endian, as services
//! are.
//!
//! On arm64 a device is an observer in the outer shareable domain, so barriers are of that (Arm ARM B2.3.12); those for other CPUs would not do.
//! On POWER a register's access is ordered with those of memory by SYNC alone, and a load is done when something depends on it (Power ISA,
//! Book II, 1.7.1). A PC orders all but stores with later loads; registers are uncached there (AMD APM volume 2, 7.4).

#[cfg(not(target_os = "none"))]
use core::ptr::{with_exposed_provenance, with_exposed_provenance_mut};

/// Reads a register, before all accesses of memory behind it.
///
/// # Safety
/// `size` bytes there, 1, 2, 4 or 8, are readable and aligned.
#[cfg(target_os = "none")]
pub(crate) unsafe fn read(at: usize, size: u8) -> u64 {
    let value: u64;
    /// One load, and what orders it.
    macro_rules! load {
        ($arm:literal, $x86:literal, $power:literal) => {{
            #[cfg(target_arch = "aarch64")]
            core::arch::asm!($arm, "dmb oshld", at = in(reg) at, value = out(reg) value, options(nostack, preserves_flags));
            #[cfg(target_arch = "x86_64")]
            core::arch::asm!($x86, at = in(reg) at, value = out(reg) value, options(nostack, preserves_flags));
            // The trap is never taken: the load is done when it is decided, and ISYNC lets nothing begin before.
            #[cfg(target_arch = "powerpc64")]
            core::arch::asm!(
                "sync", $power, "twi 0, {value}, 0", "isync",
                at = in(reg_nonzero) at, value = out(reg) value, options(nostack, preserves_flags)
            );
        }};
    }
    // SAFETY: the caller's promise; the instructions change nothing but the value (memory is not `nomem`, so the compiler keeps the order).
    unsafe {
        match size {
            1 => load!("ldrb {value:w}, [{at}]", "movzx {value:e}, byte ptr [{at}]", "lbz {value}, 0({at})"),
            2 => load!("ldrh {value:w}, [{at}]", "movzx {value:e}, word ptr [{at}]", "lhz {value}, 0({at})"),
            4 => load!("ldr {value:w}, [{at}]", "mov {value:e}, dword ptr [{at}]", "lwz {value}, 0({at})"),
            _ => load!("ldr {value}, [{at}]", "mov {value}, qword ptr [{at}]", "ld {value}, 0({at})"),
        }
    }
    value
}

/// Writes a register, behind all accesses of memory before it.
///
/// # Safety
/// `size` bytes there, 1, 2, 4 or 8, are a device's and aligned.
#[cfg(target_os = "none")]
pub(crate) unsafe fn write(at: usize, size: u8, value: u64) {
    /// One store, and what orders it.
    macro_rules! store {
        ($arm:literal, $x86:literal, $power:literal) => {{
            #[cfg(target_arch = "aarch64")]
            core::arch::asm!("dmb osh", $arm, at = in(reg) at, value = in(reg) value, options(nostack, preserves_flags));
            #[cfg(target_arch = "x86_64")]
            core::arch::asm!($x86, at = in(reg) at, value = in(reg) value, options(nostack, preserves_flags));
            #[cfg(target_arch = "powerpc64")]
            core::arch::asm!("sync", $power, at = in(reg_nonzero) at, value = in(reg) value, options(nostack, preserves_flags));
        }};
    }
    // SAFETY: the caller's promise; what the device then does to memory is the program's business (no `nomem`).
    unsafe {
        match size {
            1 => {
                #[cfg(target_arch = "x86_64")]
                core::arch::asm!("mov byte ptr [{at}], {value}", at = in(reg) at, value = in(reg_byte) value as u8, options(nostack, preserves_flags));
                #[cfg(not(target_arch = "x86_64"))]
                store!("strb {value:w}, [{at}]", "", "stb {value}, 0({at})");
            }
            2 => store!("strh {value:w}, [{at}]", "mov word ptr [{at}], {value:x}", "sth {value}, 0({at})"),
            4 => store!("str {value:w}, [{at}]", "mov dword ptr [{at}], {value:e}", "stw {value}, 0({at})"),
            _ => store!("str {value}, [{at}]", "mov qword ptr [{at}], {value}", "std {value}, 0({at})"),
        }
    }
}

/// Orders a load of memory that the device has written before all accesses behind it.
#[cfg(target_os = "none")]
#[inline(always)] // An instruction, or none.
pub(crate) fn behind_load() {
    // SAFETY: a barrier changes nothing.
    unsafe {
        #[cfg(target_arch = "aarch64")]
        core::arch::asm!("dmb oshld", options(nostack, preserves_flags));
        #[cfg(target_arch = "x86_64")]
        core::arch::asm!("", options(nostack, preserves_flags));
        #[cfg(target_arch = "powerpc64")]
        core::arch::asm!("lwsync", options(nostack, preserves_flags));
    }
}

/// Orders all accesses before it before a store of memory that tells the device of them.
#[cfg(target_os = "none")]
#[inline(always)] // An instruction, or none.
pub(crate) fn before_store() {
    // SAFETY: a barrier changes nothing.
    unsafe {
        // Loads, too: the device may write what was read until then.
        #[cfg(target_arch = "aarch64")]
        core::arch::asm!("dmb osh", options(nostack, preserves_flags));
        #[cfg(target_arch = "x86_64")]
        core::arch::asm!("", options(nostack, preserves_flags));
        #[cfg(target_arch = "powerpc64")]
        core::arch::asm!("lwsync", options(nostack, preserves_flags));
    }
}

/// Orders all accesses of memory before it before all behind it.
#[cfg(target_os = "none")]
#[inline(always)] // An instruction.
pub(crate) fn fence() {
    // SAFETY: a barrier changes nothing.
    unsafe {
        #[cfg(target_arch = "aarch64")]
        core::arch::asm!("dmb osh", options(nostack, preserves_flags));
        #[cfg(target_arch = "x86_64")]
        core::arch::asm!("mfence", options(nostack, preserves_flags));
        #[cfg(target_arch = "powerpc64")]
        core::arch::asm!("sync", options(nostack, preserves_flags));
    }
}

/// Reads a register of a test.
///
/// # Safety
/// As on a machine.
#[cfg(not(target_os = "none"))]
pub(crate) unsafe fn read(at: usize, size: u8) -> u64 {
    // SAFETY: the caller's promise.
    unsafe {
        match size {
            1 => with_exposed_provenance::<u8>(at).read_volatile().into(),
            2 => with_exposed_provenance::<u16>(at).read_volatile().into(),
            4 => with_exposed_provenance::<u32>(at).read_volatile().into(),
            _ => with_exposed_provenance::<u64>(at).read_volatile(),
        }
    }
}

/// Writes a register of a test.
///
/// # Safety
/// As on a machine.
#[cfg(not(target_os = "none"))]
pub(crate) unsafe fn write(at: usize, size: u8, value: u64) {
    // SAFETY: the caller's promise.
    unsafe {
        match size {
            1 => with_exposed_provenance_mut::<u8>(at).write_volatile(value as u8),
            2 => with_exposed_provenance_mut::<u16>(at).write_volatile(value as u16),
            4 => with_exposed_provenance_mut::<u32>(at).write_volatile(value as u32),
            _ => with_exposed_provenance_mut::<u64>(at).write_volatile(value),
        }
    }
}

/// Tests have no device that runs by itself.
#[cfg(not(target_os = "none"))]
pub(crate) fn behind_load() {}

/// As above.
#[cfg(not(target_os = "none"))]
pub(crate) fn before_store() {}

/// As above.
#[cfg(not(target_os = "none"))]
pub(crate) fn fence() {}
