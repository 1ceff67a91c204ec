// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The partition's own translation by radix trees (Power ISA 3.0B Book III, section 5.7.10).

use turnstile_guests_power64::exception::vector;
use turnstile_guests_power64::mmu::{self, PAGE, entry};
use turnstile_guests_power64::platform::platform;
use turnstile_guests_power64::test::{Outcome, Test};
use turnstile_guests_power64::{check, check_eq, cpu, hcall, irq, mmio, skip, timer, trap};

pub const TESTS: &[Test] = &[
    Test { name: "translation-register", run: register },
    Test { name: "translation-window", run: window },
    Test { name: "translation-read-only", run: read_only },
    Test { name: "translation-nothing", run: nothing },
    Test { name: "translation-remapped", run: remapped },
    Test { name: "translation-device", run: device },
    Test { name: "translation-interrupts", run: interrupts },
];

/// Bits of DSISR.
const NO_ENTRY: u64 = 1 << 30;
const PROTECTION: u64 = 1 << 27;
const STORE: u64 = 1 << 25;

fn need() -> Outcome {
    if !platform().radix {
        skip!("no radix trees");
    }
    check_eq!(mmu::init(), hcall::SUCCESS, "H_REGISTER_PROC_TBL");
    Ok(())
}

fn register() -> Outcome {
    if !platform().radix {
        skip!("no radix trees");
    }
    let set = |flags, base, page, size| hcall::call(hcall::REGISTER_PROC_TBL, [flags, base, page, size]);
    let good = mmu::register::NEW | mmu::register::RADIX | mmu::register::GTSE;
    check!(set(good | 1 << 40, mmu::processes(), 0, 0) < 0, "flags that are none are taken");
    check!(set(good, mmu::processes() + 0x100, 0, 0) < 0, "a table that is not aligned is taken");
    check!(set(good, mmu::processes(), 0, 25) < 0, "a table of 2^37 bytes is taken");
    need()
}

fn window() -> Outcome {
    need()?;
    let place = crate::scratch();
    mmio::write64(place, 0x1122_3344_5566_7788);
    let page = mmu::set_page(1, place | entry::USUAL);
    let value = mmu::translated(|| {
        mmio::write64(page + 8, 0x77);
        mmio::read64(page)
    });
    check_eq!(value, 0x1122_3344_5566_7788, "through the window");
    check_eq!(mmio::read64(place + 8), 0x77, "written through it");
    Ok(())
}

fn read_only() -> Outcome {
    need()?;
    let page = mmu::set_page(2, crate::scratch() | entry::USUAL & !entry::WRITE);
    let trap = trap::caught(|| {
        mmu::translated(|| {
            mmio::read64(page);
            mmio::write64(page + 16, 1);
        })
    });
    let Some(trap) = trap else {
        check!(false, "it can be written");
        return Ok(());
    };
    check_eq!(trap.vector, vector::DATA_STORAGE, "the vector");
    check_eq!(trap.status & (NO_ENTRY | PROTECTION | STORE), PROTECTION | STORE, "DSISR");
    check_eq!(trap.address, page + 16, "DAR");
    Ok(())
}

fn nothing() -> Outcome {
    need()?;
    let page = mmu::set_page(3, 0);
    let trap = trap::caught(|| _ = mmu::translated(|| mmio::read64(page)));
    check_eq!(trap.map_or(0, |trap| trap.vector), vector::DATA_STORAGE, "the vector");
    check_eq!(trap.map_or(0, |trap| trap.status) & (NO_ENTRY | STORE), NO_ENTRY, "DSISR");
    // Beyond all trees.
    let trap = trap::caught(|| _ = mmu::translated(|| mmio::read64(1 << 45)));
    check_eq!(trap.map_or(0, |trap| trap.vector), vector::DATA_STORAGE, "the vector beyond the tree");
    Ok(())
}

/// A page that moves is found where it is once it was flushed, also around exits.
fn remapped() -> Outcome {
    need()?;
    let [first, second] = [crate::scratch(), crate::scratch() + PAGE];
    mmio::write64(first, 0x1111);
    mmio::write64(second, 0x2222);
    for round in 0..100 {
        let page = mmu::set_page(4, if round % 2 == 0 { first } else { second } | entry::USUAL);
        let value = mmu::translated(|| {
            hcall::call(hcall::NOTHING, [0; 4]);
            mmio::read64(page)
        });
        check_eq!(value, if round % 2 == 0 { 0x1111 } else { 0x2222 }, "round {round}");
    }
    Ok(())
}

/// A device behind the partition's own translation.
fn device() -> Outcome {
    need()?;
    let Some(uart) = platform().uart else { skip!("no device in memory") };
    let offset = uart.base & (PAGE - 1);
    let page = mmu::set_page(5, uart.base & !(PAGE - 1) | entry::USUAL & !entry::EXECUTE | entry::DEVICE);
    mmu::translated(|| mmio::write8(page + offset + 7, 0xc3));
    check_eq!(mmio::read8(uart.base + 7), 0xc3, "the scratch register");
    check_eq!(mmu::translated(|| mmio::read8(page + offset + 7)), 0xc3, "the scratch register, translated");
    Ok(())
}

/// Interrupts and waits while translation is on.
fn interrupts() -> Outcome {
    need()?;
    for round in 0..50 {
        let before = irq::count(irq::IPI);
        mmu::translated(|| {
            irq_of_memory(before + 1);
            timer::arm(timer::now() + timer::ticks(50));
            let timers = irq::count(irq::TIMER);
            while irq::count(irq::TIMER) == timers {
                cpu::wait();
            }
        });
        check_eq!(irq::count(irq::IPI), before + 1, "interrupts in round {round}");
    }
    Ok(())
}

/// Sends from real mode, where XIVE's pages are, and takes with translation.
fn irq_of_memory(wanted: u32) {
    let translated = cpu::msr();
    cpu::set_msr(cpu::msr::USUAL);
    irq::send(0);
    cpu::set_msr(translated);
    while irq::count(irq::IPI) != wanted {
        cpu::take_interrupts();
    }
}
