// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Stage 1 tables that lead nowhere: outside the memory, into devices, into themselves.

use turnstile_guests::mmu::{self, BLOCK, descriptor};
use turnstile_guests::platform::platform;
use turnstile_guests::random;
use turnstile_guests::trap::{self, Trap};
use turnstile_guests::{crash, println, read_sysreg};

use crate::{Tally, is_bare, stride};

fn load(address: u64) -> (u64, Option<Trap>) {
    trap::expect(|| {
        let value;
        // SAFETY: the address is in the window, which no object of this program is in.
        unsafe { core::arch::asm!("ldr {}, [{}]", out(reg) value, in(reg) address, options(nostack)) };
        value
    })
}

fn store(address: u64) -> Option<Trap> {
    trap::caught(|| {
        // SAFETY: as above; memory is mapped there read-only.
        unsafe { core::arch::asm!("str xzr, [{}]", in(reg) address, options(nostack)) };
    })
}

fn translate(address: u64) -> Option<Trap> {
    trap::caught(|| {
        // SAFETY: writes PAR_EL1 only.
        unsafe { core::arch::asm!("at s1e1w, {}", "isb", in(reg) address, options(nostack)) };
    })
}

/// Table descriptors to everywhere, and random descriptors.
pub fn broken(tally: &mut Tally) {
    let gicd = platform().gicd.map_or(0, |region| region.base);
    let uart = platform().uart.map_or(0, |uart| uart.region.base);
    let places = [
        ("outside", crash::outside()),
        ("just behind memory", crash::outside() - BLOCK),
        ("zero", 0),
        ("the distributor", gicd),
        ("the UART", uart),
        ("300 GiB", 300 << 30),
        ("512 GiB", 512 << 30),
        ("4 TiB", 4 << 40),
        ("the last page", 0xffff_ffff_f000),
    ];
    for (name, place) in places {
        let window = mmu::set_window_raw(7, place | descriptor::TABLE);
        let (value, trap) = load(window + 0x1008);
        tally.add(trap.is_some());
        match trap {
            Some(trap) => println!("  table at {name}: {trap}"),
            None => println!("  table at {name}: reads {value:#x}"),
        }
        // A fault of stage 2 during AT is an exception, and PAR_EL1 stays as it was.
        let trap = translate(window + 0x1008);
        tally.add(trap.is_some());
        if trap.is_none() && read_sysreg!("par_el1") & 1 == 0 && !is_bare() {
            println!("@error a table at {name} translates to {:#x}", read_sysreg!("par_el1"));
        }
        // Bare machines would really follow descriptors read from devices.
        if !is_bare() {
            tally.add(store(window + 0x2000).is_some());
        }
    }
    // A table that is itself: its entries are descriptors of this level and of the next.
    let table = read_sysreg!("ttbr0_el1") & 0xffff_ffff_f000;
    let window = mmu::set_window_raw(7, table | descriptor::TABLE);
    for page in 0..512 {
        tally.add(load(window + page * 4096).1.is_some());
    }
    noise(tally);
    mmu::set_window_raw(7, 0);
}

/// Random descriptors, loads only: one may lead to memory of this program.
fn noise(tally: &mut Tally) {
    let mut random = random::stream(10);
    for _ in 0..20_000 / stride() {
        let descriptor = random.special();
        // A block of the GIC would acknowledge or a device be read: harmless; memory is only read.
        let window = mmu::set_window_raw(7, descriptor);
        tally.add(load(window + random.below(BLOCK) / 8 * 8).1.is_some());
        tally.add(translate(window).is_some());
    }
}
