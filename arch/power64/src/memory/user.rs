// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reaching memory of guests. A guest may change it at the same time: every access is one that the compiler neither repeats
//! nor splits. Numbers are in this CPU's byte order: those that PAPR has in big-endian order are turned by the caller.

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

/// Clears memory of a guest that does not run.
///
/// # Safety
/// As for [`copy_from`].
pub unsafe fn clear(host: u64, size: u64) {
    // SAFETY: the caller's promise.
    unsafe { core::ptr::write_bytes(host as *mut u8, 0, size as usize) };
}
