// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Invalidations of translations with scopes and partitions that are not this one's, by instructions and by calls.

use turnstile_guests_power64::random;
use turnstile_guests_power64::{hcall, mmu, platform, probe, trap};

use crate::{Tally, is_bare, stride};

/// tlbie and tlbiel: RIC, PRS and R in their fields.
fn instruction(local: bool, ric: u32, prs: u32, radix: u32) -> u32 {
    let extended = if local { 274 } else { 306 };
    0x7c00_0000 | 3 << 21 | ric << 18 | prs << 17 | radix << 16 | 4 << 11 | extended << 1
}

/// Every scope of both, with foreign partitions and processes; calls for the same; and slbia and its kin.
pub fn all(tally: &mut Tally) {
    let mut random = random::stream(30);
    if platform::platform().radix {
        mmu::init();
    }
    for round in 0..4000 / stride() {
        let (local, ric, prs) = (round % 2 == 0, (round >> 1) as u32 & 3, (round >> 3) as u32 & 1);
        // QEMU ends itself at tlbie of hash tables in a radix partition.
        let radix = if is_bare() { 1 } else { (round >> 4) as u32 & 1 };
        let mut input = probe::pattern(round);
        // RS: process in the upper half, partition in the lower one. RB: IS in bits 52 and 53.
        input[3] = random.below(1 << 20) << 32 | random.below(64);
        input[4] = random.special() & !0xc00 | random.below(4) << 10;
        // SAFETY: forgets what can be looked up again.
        tally.add(unsafe { probe::execute(&[instruction(local, ric, prs, radix)], &input) }.is_err());
        let arguments: [u64; 9] = core::array::from_fn(|_| random.special());
        tally.add(trap::caught(|| _ = hcall::call9(hcall::RPT_INVALIDATE, arguments)).is_some());
    }
    // slbmte, slbie, slbieg, slbia, slbsync, tlbsync.
    for code in [0x7c60_2324, 0x7c00_1b64, 0x7c60_23a4, 0x7c00_03e4, 0x7c00_02a4, 0x7c00_046c] {
        for _ in 0..50 {
            let mut input = probe::pattern(7);
            [input[3], input[4]] = [random.special(), random.special()];
            // SAFETY: as above; this partition has no segments.
            tally.add(unsafe { probe::execute(&[code], &input) }.is_err());
        }
    }
}
