// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Memory where the loader says it is, nothing elsewhere, and the CPU's own translation.

use core::arch::asm;

use turnstile_guests_common::memory;
use turnstile_guests_x86_64::exception::vector;
use turnstile_guests_x86_64::mmu::{self, PAGE, entry};
use turnstile_guests_x86_64::platform::platform;
use turnstile_guests_x86_64::test::{Outcome, Test};
use turnstile_guests_x86_64::{boot, check, check_eq, crash, mmio, skip, trap};

pub const TESTS: &[Test] = &[
    Test { name: "memory-all", run: all },
    Test { name: "memory-hole", run: hole },
    Test { name: "memory-read-only", run: read_only },
    Test { name: "memory-accessed", run: accessed },
    Test { name: "memory-remapped", run: remapped },
];

/// A word of each 64 KiB can be written, and keeps its value.
fn all() -> Outcome {
    memory::keeps_words(platform().free_blocks(boot::image().1, 64 << 10), mmio::read32, mmio::write32)
}

/// Where nothing is, reads give ones, and writes go nowhere.
fn hole() -> Outcome {
    if crate::is_bare() {
        skip!("QEMU's chip set answers differently");
    }
    for place in [crash::outside(), 0xd000_0000, 0xfed8_0000] {
        mmio::write32(place, 0x1234_5678);
        check_eq!(mmio::read32(place), u32::MAX, "the word at {place:#x}");
    }
    Ok(())
}

fn scratch() -> u64 {
    boot::image().1.next_multiple_of(mmu::WINDOW_SIZE)
}

fn read_only() -> Outcome {
    let page = mmu::set_page(3, scratch() | entry::PRESENT);
    mmio::read32(page);
    let trap = trap::caught(|| mmio::write32(page + 8, 1));
    let Some(trap) = trap else {
        check!(false, "it can be written");
        return Ok(());
    };
    check_eq!(trap.vector, vector::PF, "the exception");
    check_eq!(trap.error, 3, "the error code");
    check_eq!(trap.address, page + 8, "CR2");
    Ok(())
}

fn accessed() -> Outcome {
    let page = mmu::set_page(4, scratch() | entry::USUAL);
    let slot = mmu::page_slot(4);
    mmu::flush_page(page);
    mmio::read32(page);
    check_eq!(mmio::read64(slot) & (entry::ACCESSED | entry::DIRTY), entry::ACCESSED, "after a read");
    mmio::write32(page, 1);
    check_eq!(mmio::read64(slot) & entry::DIRTY, entry::DIRTY, "after a write");
    Ok(())
}

/// A page that moves is found where it is once it was flushed, also by instructions that exit.
fn remapped() -> Outcome {
    let [first, second] = [scratch(), scratch() + PAGE];
    mmio::write32(first, 0x1111);
    mmio::write32(second, 0x2222);
    for round in 0..100 {
        let page = mmu::set_page(5, if round % 2 == 0 { first } else { second } | entry::USUAL);
        mmu::flush_page(page);
        check_eq!(mmio::read32(page), if round % 2 == 0 { 0x1111 } else { 0x2222 }, "round {round}");
        // SAFETY: changes the registers named.
        unsafe {
            asm!("push rbx", "cpuid", "pop rbx", inout("eax") 0 => _, inout("ecx") 0 => _, out("edx") _)
        };
    }
    Ok(())
}
