// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Areas and tables that a hypervisor reads and writes, at addresses where they cannot be, and while they change.

use turnstile_guests_power64::platform::platform;
use turnstile_guests_power64::random;
use turnstile_guests_power64::{cpu, crash, hcall, irq, mmio, mmu, smp};

use crate::calls::areas_away;
use crate::{Tally, scratch, stride};

fn register(function: u64, address: u64) -> i64 {
    hcall::call(hcall::REGISTER_VPA, [function << 45, u64::from(smp::server(0)), address, 0])
}

/// Areas of all kinds at bad addresses; exits follow, in which a hypervisor would write to them.
pub fn addresses(tally: &mut Tally) {
    let mut random = random::stream(10);
    let end = platform().end_of_memory();
    for round in 0..4000 / stride() {
        let address = match round % 8 {
            0 => end - random.below(0x1000),
            1 => end + random.below(0x1000),
            2 => crash::outside(),
            3 => random.special() | 1 << 63,
            4 => crate::pages::any_page(&mut random),
            5 => scratch() + random.below(0x1_0000),
            6 => u64::MAX - random.below(0x1000),
            _ => (random.number() >> 4).max(scratch()),
        };
        if (scratch()..end - 8).contains(&address) {
            mmio::write32(address & !7 | 4, random.special() as u32);
        }
        tally.add(register(random.below(8), address) < 0);
        hcall::call(hcall::NOTHING, [0; 4]);
        irq::send(0);
        cpu::take_interrupts();
        if random.below(4) == 0 {
            areas_away();
        }
    }
    areas_away();
}

/// Areas that are registered, whose contents then change: counts, lengths, flags, all at random.
pub fn moving(tally: &mut Tally) {
    let mut random = random::stream(11);
    for _ in 0..200 / stride().min(200) {
        let area = scratch() + random.below(16) * 0x1000;
        for (function, offset, size) in [(1, 0, 640 << 16), (3, 0x1000, 0x90), (2, 0x2000, 4096)] {
            mmio::write32(area + offset + 4, u32::to_be(size));
            tally.add(register(function, area + offset) < 0);
        }
        for _ in 0..50 {
            let place = area + random.below(0x3000 / 8) * 8;
            mmio::write64(place, random.special());
            match random.below(4) {
                0 => crate::end_waits(),
                1 => irq::send(0),
                2 => _ = hcall::call(hcall::CONFER, [u64::MAX, 0, 0, 0]),
                _ => {
                    crate::end_waits();
                    cpu::wait();
                }
            }
            cpu::take_interrupts();
        }
        areas_away();
    }
}

/// Process tables anywhere, with trees that lead anywhere: to themselves, outside, to devices, to entries that are none.
pub fn tables(tally: &mut Tally) {
    if !platform().radix {
        return;
    }
    let mut random = random::stream(12);
    for _ in 0..2000 / stride() {
        let flags = if random.below(2) == 0 { 0x1d } else { random.special() };
        let base = if random.below(2) == 0 { mmu::processes() } else { random.special() };
        let size = if random.below(2) == 0 { 0 } else { random.special() };
        tally.add(hcall::call(hcall::REGISTER_PROC_TBL, [flags, base, random.special(), size]) < 0);
    }
    for round in 0..1000 / stride() {
        if mmu::init() != hcall::SUCCESS {
            return;
        }
        let [root, gibibytes, large, small] = mmu::tables();
        let target = match round % 6 {
            0 => root,
            1 => crash::outside(),
            2 => crate::pages::any_page(&mut random),
            3 => random.number() & 0x0fff_ffff_ffff_f000,
            4 => platform().end_of_memory() - 0x1000,
            _ => small,
        };
        let value =
            target & 0x0fff_ffff_ffff_ff00 | 1 << 63 | random.below(4) << 61 & !(1 << 62) | random.below(32);
        let leaf = target & 0x01ff_ffff_ffff_f000 | 3 << 62 | random.below(0x1000);
        match round % 3 {
            0 => mmio::write64(gibibytes + 8, value.to_be()),
            1 => mmio::write64(large, value.to_be()),
            _ => mmio::write64(small + 8 * random.below(8), leaf.to_be()),
        }
        mmu::flush();
        let address = mmu::WINDOW + random.below(8) * mmu::PAGE;
        let trap = turnstile_guests_power64::trap::caught(|| {
            mmu::translated(|| {
                mmio::read64(address);
                if random.below(2) == 0 && !(0..scratch()).contains(&(target & !0xfff)) {
                    mmio::write64(address + 0xff0, 1);
                }
            })
        });
        tally.add(trap.is_some());
        // For the next round's `init`.
        (0..8).for_each(|index| mmio::write64(small + 8 * index, 0));
    }
    mmu::init();
}
