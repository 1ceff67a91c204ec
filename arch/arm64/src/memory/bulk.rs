// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Clearing and copying of whole VMs and images.
//!
//! Rust's own routines are compiled for memory that faults on unaligned accesses, and take eight bytes at a time.

#[cfg(target_os = "none")]
use crate::cpu::regs;

/// Bytes that one turn of a loop copies.
#[cfg(target_os = "none")]
const TURN: usize = 128;

/// Clears `size` bytes at `start`, which are the caller's.
#[cfg(not(target_os = "none"))]
pub(super) fn zero(start: u64, size: u64) {
    // SAFETY: memory of a test.
    unsafe { core::ptr::write_bytes(start as *mut u8, 0, size as usize) };
}

/// Clears `size` bytes at `start`, which are the caller's and which EL2 maps writable.
#[cfg(target_os = "none")]
pub(super) fn zero(start: u64, size: u64) {
    let dczid = regs::DCZID_EL0.read();
    let turn = 16 * (4u64 << (dczid & 0xf));
    // DZP: prohibited.
    if size == 0 || dczid & (1 << 4) != 0 || !(start | size).is_multiple_of(turn) {
        // SAFETY: the caller owns the range and EL2 maps it writable.
        unsafe { core::ptr::write_bytes(start as *mut u8, 0, size as usize) };
        return;
    }
    // SAFETY: as above; DC ZVA clears a whole aligned block, and the range is whole turns of 16.
    unsafe {
        core::arch::asm!(
            "2:",
            ".rept 16",
            "dc zva, {address}",
            "add {address}, {address}, {block}",
            ".endr",
            "cmp {address}, {end}",
            "b.lo 2b",
            address = inout(reg) start => _, block = in(reg) turn / 16, end = in(reg) start + size,
            options(nostack)
        );
    }
}

/// Copies `source` to `target`, as many bytes as the shorter of them has.
#[cfg(target_os = "none")]
pub(super) fn copy(target: &mut [u8], source: &[u8]) {
    let length = target.len().min(source.len());
    let (to, from) = (target.as_mut_ptr(), source.as_ptr());
    let words = if (to.addr() | from.addr()).is_multiple_of(8) { length / TURN * TURN } else { 0 };
    if words > 0 {
        // SAFETY: both ranges are `words` bytes, which is at least one turn and whole turns; they do not overlap, since one is
        // borrowed mutably. The accesses are aligned.
        unsafe {
            core::arch::asm!(
                "2:",
                "ldp {a}, {b}, [{from}]",
                "ldp {c}, {d}, [{from}, #16]",
                "ldp {e}, {f}, [{from}, #32]",
                "ldp {g}, {h}, [{from}, #48]",
                "stp {a}, {b}, [{to}]",
                "stp {c}, {d}, [{to}, #16]",
                "stp {e}, {f}, [{to}, #32]",
                "stp {g}, {h}, [{to}, #48]",
                "ldp {a}, {b}, [{from}, #64]",
                "ldp {c}, {d}, [{from}, #80]",
                "ldp {e}, {f}, [{from}, #96]",
                "ldp {g}, {h}, [{from}, #112]",
                "stp {a}, {b}, [{to}, #64]",
                "stp {c}, {d}, [{to}, #80]",
                "stp {e}, {f}, [{to}, #96]",
                "stp {g}, {h}, [{to}, #112]",
                "add {from}, {from}, #128",
                "add {to}, {to}, #128",
                "cmp {to}, {end}",
                "b.lo 2b",
                from = inout(reg) from => _, to = inout(reg) to => _, end = in(reg) to.addr() + words,
                a = out(reg) _, b = out(reg) _, c = out(reg) _, d = out(reg) _,
                e = out(reg) _, f = out(reg) _, g = out(reg) _, h = out(reg) _,
                options(nostack)
            );
        }
    }
    if let (Some(target), Some(source)) = (target.get_mut(words..length), source.get(words..length)) {
        target.copy_from_slice(source);
    }
}
