// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Page tables that lead to strange places but are in memory: those that are not end the machine (see [`crate::fatal`]).

use turnstile_guests_x86_64::mmu::TABLES;
use turnstile_guests_x86_64::mmu::{self, entry};
use turnstile_guests_x86_64::{apic, crash, io_apic, mmio, random, trap};

use crate::{Tally, is_bare, stride};

/// Entries of each level with everything that an entry can say.
pub fn broken(tally: &mut Tally) {
    let mut random = random::stream(19);
    let places = [apic::PAGE, io_apic::base(), crash::outside(), 1 << 38, (1 << 51) - 4096, 0xa_0000];
    for place in places {
        for bits in
            [entry::USUAL, entry::PRESENT, entry::USUAL | entry::DIRTY | entry::ACCESSED, entry::USUAL | 0x18]
        {
            if is_bare() && place != crash::outside() {
                continue;
            }
            let page = mmu::set_page(7, place | bits);
            tally.add(trap::caught(|| _ = mmio::read32(page + 0x30)).is_some());
            tally.add(trap::caught(|| mmio::write32(page + 0x3f0, 0)).is_some());
        }
    }
    // The PML4 as its own lower tables: its entries are those of each level.
    let root = TABLES.0.get() as u64;
    let window = mmu::set_upper(3, root | entry::USUAL);
    for page in (0..512).step_by(stride()) {
        tally.add(trap::caught(|| _ = mmio::read32(window + (page << 12))).is_some());
        tally.add(trap::caught(|| _ = mmio::read32(window + (page << 21))).is_some());
    }
    mmu::set_upper(3, 0);
    // Random entries: of pages, loads only, and not to tables, which may be anywhere.
    for _ in 0..20_000 / stride() {
        let page = mmu::set_page(9, random.special() & !0x8000_0000_0000_0000);
        if !is_bare() {
            tally.add(trap::caught(|| _ = mmio::read32(page + 0x20)).is_some());
        }
    }
    mmu::set_page(9, 0);
    mmu::set_upper(3, 0);
    tally.add(false);
}
