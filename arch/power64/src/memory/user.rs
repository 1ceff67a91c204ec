// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reaching memory of guests. A guest may change it at the same time: every access is one that the compiler neither repeats
//! nor splits. Numbers are in this CPU's byte order: those that PAPR has in big-endian order are turned by the caller.

use turnstile_arch_common::demand::Clear;

use crate::cpu;

/// Reads guest memory.
///
/// # Safety
/// `host` is an address that [`super::GuestRam::host`] gave for as many bytes, aligned, of a VM that has not stopped since.
#[inline(always)] // One instruction.
pub unsafe fn read<T: Number>(host: u64) -> T {
    // SAFETY: the caller's promise.
    unsafe { core::ptr::read_volatile(host as *const T) }
}

/// Writes guest memory.
///
/// # Safety
/// As for [`read`].
#[inline(always)] // One instruction.
pub unsafe fn write<T: Number>(host: u64, value: T) {
    // SAFETY: the caller's promise.
    unsafe { core::ptr::write_volatile(host as *mut T, value) }
}

/// What a single access moves.
pub trait Number: Copy {}
impl Number for u8 {}
impl Number for u16 {}
impl Number for u32 {}
impl Number for u64 {}

/// Copies guest memory to `bytes`.
///
/// # Safety
/// As for [`read`], for as many bytes as there are, of any alignment.
pub unsafe fn copy_from(host: u64, bytes: &mut [u8]) {
    for (offset, byte) in bytes.iter_mut().enumerate() {
        // SAFETY: the caller's promise.
        *byte = unsafe { read(host + offset as u64) };
    }
}

/// Copies `bytes` to guest memory.
///
/// # Safety
/// As for [`copy_from`].
pub unsafe fn copy_to(host: u64, bytes: &[u8]) {
    // SAFETY: the caller's promise for the target. Stores that the compiler may choose freely: nothing is read back.
    unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), host as *mut u8, bytes.len()) };
}

/// Clears memory of a guest that does not run, or that it has not touched.
///
/// # Safety
/// As for [`copy_from`].
pub unsafe fn clear(host: u64, size: u64) {
    #[cfg(target_os = "none")]
    {
        /// Bytes that DCBZ clears on POWER9 and POWER10, the only CPUs that this runs on (User Manuals, "data cache").
        const LINE: u64 = 128;
        const TURN: u64 = 8 * LINE;
        if size != 0 && (host | size).is_multiple_of(TURN) {
            // SAFETY: the caller's promise. Memory is cacheable in hypervisor real mode, and the range is whole lines.
            unsafe {
                core::arch::asm!(
                    "mtctr {turns}",
                    "2:",
                    "dcbz 0, {line}", "dcbz {one}, {line}", "dcbz {two}, {line}", "dcbz {three}, {line}",
                    "dcbz {four}, {line}", "dcbz {five}, {line}", "dcbz {six}, {line}", "dcbz {seven}, {line}",
                    "addi {line}, {line}, 1024",
                    "bdnz 2b",
                    line = inout(reg_nonzero) host => _, turns = in(reg) size / TURN,
                    one = in(reg_nonzero) LINE, two = in(reg_nonzero) 2 * LINE, three = in(reg_nonzero) 3 * LINE,
                    four = in(reg_nonzero) 4 * LINE, five = in(reg_nonzero) 5 * LINE, six = in(reg_nonzero) 6 * LINE,
                    seven = in(reg_nonzero) 7 * LINE, out("ctr") _, options(nostack)
                );
            }
            return;
        }
    }
    // SAFETY: the caller's promise.
    unsafe { core::ptr::write_bytes(host as *mut u8, 0, size as usize) };
}

/// A block of guest memory that is cleared at its first touch.
pub struct Block(u64);

impl Clear for Block {
    /// Walkers read entries in big-endian order.
    #[inline(always)] // One instruction.
    fn in_memory(entry: u64) -> u64 {
        entry.to_be()
    }

    #[inline(always)] // Nothing: real mode reaches all memory.
    unsafe fn open(host: u64) -> Self {
        Self(host)
    }

    #[inline(always)] // One caller.
    fn clear(&mut self, offset: u64, size: u64) {
        // SAFETY: memory of guests, by the contract of `open`, and nobody else's meanwhile.
        unsafe { clear(self.0 + offset, size) };
    }

    /// What other guests executed there is forgotten, too.
    #[inline(always)] // One caller.
    fn close(self) {
        cpu::synchronize_code();
    }
}
