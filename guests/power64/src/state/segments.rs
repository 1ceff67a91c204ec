// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The segment lookaside buffer (Power ISA 3.0B Book III, 5.7.8), which a radix guest has no use for, but writes and reads. A
//! hypervisor need not keep it; what is in it is this program's, or nothing.

use core::arch::asm;

use super::word;

/// More than any processor has.
const ENTRIES: u64 = 32;
/// The bits of an entry's two words that a segment has: its effective ID and valid bit, its virtual ID.
const EFFECTIVE: u64 = 0xffff_ffff_f000_0000;
const VIRTUAL: u64 = 0x0fff_ffff_ffff_f000;
const VALID: u64 = 1 << 27;

fn words(seed: u64, entry: u64) -> [u64; 2] {
    [word(seed, 2000 + 2 * entry) & EFFECTIVE | VALID, word(seed, 2001 + 2 * entry) & VIRTUAL]
}

/// Gives all entries values of their own.
pub fn fill(seed: u64) {
    for entry in 0..ENTRIES {
        let [effective, virtual_id] = words(seed, entry);
        // SAFETY: nothing is translated by segments.
        let _ = crate::trap::expect(|| unsafe {
            asm!("slbmte {}, {}", in(reg) virtual_id, in(reg) effective | entry, options(nostack));
        });
    }
}

/// Says whether each entry has what was written with this seed, or nothing.
pub fn holds(seed: u64) -> bool {
    (0..ENTRIES).all(|entry| {
        let (mut effective, mut virtual_id) = (0u64, 0u64);
        // SAFETY: reading changes nothing.
        let read = crate::trap::expect(|| unsafe {
            asm!("slbmfee {}, {}", out(reg) effective, in(reg) entry, options(nostack));
            asm!("slbmfev {}, {}", out(reg) virtual_id, in(reg) entry, options(nostack));
        });
        let mine = if seed == 0 { [0; 2] } else { words(seed, entry) };
        read.is_err()
            || [0, mine[0] & EFFECTIVE].contains(&(effective & EFFECTIVE))
                && [0, mine[1]].contains(&(virtual_id & VIRTUAL))
    })
}
