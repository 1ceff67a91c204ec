// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The vectors' way to real address 0, where POWER wants them.

/// Bytes from real address 0 on that are the vectors', and no one else's.
pub const RESERVED: u64 = 0x1_0000;

/// Puts the vectors in place. Once, by the boot CPU, before any guest runs.
#[cfg(target_os = "none")]
pub fn install() {
    unsafe extern "C" {
        static turnstile_vectors: u8;
        static turnstile_vectors_end: u8;
    }
    let start = &raw const turnstile_vectors;
    let words = (&raw const turnstile_vectors_end as usize - start as usize) / 4;
    assert!(words * 4 <= RESERVED as usize);
    for word in 0..words {
        let at = word * 4;
        // SAFETY: the source is part of the image. The destination is real memory that nothing but vectors is in: skiboot's own
        // are not used once a payload runs. Written by instructions, because address 0 is no place for a Rust pointer; each
        // word is pushed out of the data cache and discarded from the instruction cache.
        unsafe {
            core::arch::asm!(
                "stw {value:r}, 0({to})",
                "dcbst 0, {to}",
                "sync",
                "icbi 0, {to}",
                value = in(reg) start.cast::<u32>().add(word).read(), to = in(reg_nonzero) at, options(nostack, preserves_flags)
            );
        }
    }
    // SAFETY: changes nothing; what was written is fetched from here on.
    unsafe { core::arch::asm!("sync", "isync", options(nostack, preserves_flags)) };
}
