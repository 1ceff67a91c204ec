// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Instructions that leave the guest or could: HVC and SMC with all immediates, exception generators, hints
//! and waits, a misaligned stack pointer.

use core::arch::asm;

use turnstile_guests::patch;
use turnstile_guests::timer::{self, Timer};
use turnstile_guests::trap;
use turnstile_guests::{cpu, gic, options, println};

use crate::{Tally, is_bare, stride};

/// A function that no one has, so that the immediate is all there is to look at.
const NO_FUNCTION: u64 = 0x8400_fff0;

fn execute_all(tally: &mut Tally, words: impl Iterator<Item = u32> + Clone, x0: u64) {
    let mut words = words.peekable();
    while words.peek().is_some() {
        let mut count = 0;
        patch::prepare(words.by_ref().take(patch::BATCH).inspect(|_| count += 1));
        for index in 0..count {
            // SAFETY: calls and exception generators change x0 to x17 at most.
            tally.add(unsafe { patch::run(index, x0) }.1.is_some());
        }
    }
}

/// HVC and SMC with every immediate.
pub fn hypercalls(tally: &mut Tally) {
    let immediates = || (0..0x1_0000u32).step_by(stride());
    execute_all(tally, immediates().map(|immediate| 0xd400_0002 | immediate << 5), NO_FUNCTION);
    execute_all(tally, immediates().map(|immediate| 0xd400_0003 | immediate << 5), NO_FUNCTION);
}

/// SVC, BRK, HLT, DCPS, UDF, DRPS, ERET's relatives, hints, barriers and PSTATE writes.
pub fn traps(tally: &mut Tally) {
    let immediates = || (0..0x1_0000u32).step_by(stride() * 64 + 1);
    execute_all(tally, immediates().map(|immediate| 0xd400_0001 | immediate << 5), 0);
    execute_all(tally, immediates().map(|immediate| 0xd420_0000 | immediate << 5), 0);
    if options::get("semihosting").is_none() {
        execute_all(tally, immediates().map(|immediate| 0xd440_0000 | immediate << 5), 0x17);
    }
    for level in 0..4 {
        execute_all(tally, immediates().map(move |immediate| 0xd4a0_0000 | immediate << 5 | level), 0);
    }
    execute_all(tally, immediates(), 0);
    execute_all(tally, core::iter::once(0xd6bf_03e0), 0); // DRPS
    // Hints but WFE and WFI, which `wait` does, and barriers with all options.
    execute_all(tally, (0..128u32).filter(|hint| ![2, 3].contains(hint)).map(hint), 0);
    for crm in 0..16 {
        execute_all(tally, (1..8u32).map(move |op2| 0xd503_301f | crm << 8 | op2 << 5), 0);
    }
    // TSTART, TCOMMIT and the wide WFxT space without an argument in the past.
    execute_all(tally, [0xd523_3060, 0xd503_307f].into_iter(), 0);
}

fn hint(number: u32) -> u32 {
    0xd503_201f | number << 5
}

/// WFI, WFE and their timed forms: with something pending, and with a timer to end them.
pub fn wait(tally: &mut Tally) {
    gic::enable(Timer::Virtual.intid());
    for distance in [0, 0, 50, 200, 1_000] {
        for word in [hint(2), hint(3)] {
            for _ in 0..200 / stride() {
                Timer::Virtual.set_compare(timer::now() + timer::ticks(distance));
                Timer::Virtual.set_control(timer::ENABLE);
                // SAFETY: a wait changes nothing, and the timer ends it.
                tally.add(unsafe { patch::execute(word, 0) }.1.is_some());
                Timer::Virtual.set_control(0);
            }
        }
    }
    for deadline in [0, timer::now(), timer::now() + timer::ticks(500)] {
        for word in [0xd503_1000, 0xd503_1020] {
            // SAFETY: as above; the deadline in x0 ends it.
            tally.add(unsafe { patch::execute(word, deadline) }.1.is_some());
        }
    }
    // An interrupt that waits in an interrupt controller switched off by PSTATE only.
    gic::enable(1);
    gic::send_sgi(gic::sgi_value(1, cpu::affinity()));
    for _ in 0..1000 / stride() {
        // SAFETY: the pending SGI ends each wait.
        tally.add(unsafe { patch::execute(hint(3), 0) }.1.is_some());
    }
}

/// A stack pointer that is misaligned or nowhere; the exceptions have a stack of their own.
pub fn stack(tally: &mut Tally) {
    for bad in [1u64, 4, 8, 0xffff_0000_0000_0008, !15] {
        for _ in 0..100 {
            let trap = trap::caught(|| {
                // SAFETY: the stack pointer is put back before anything else uses it, and the handler runs on
                // its own.
                unsafe {
                    asm!(
                        "mov x9, sp",
                        "mov sp, {bad}",
                        "ldr x10, [sp]",
                        "mov sp, x9",
                        bad = in(reg) bad,
                        out("x9") _,
                        out("x10") _,
                    );
                }
            });
            tally.add(trap.is_some());
        }
    }
    if is_bare() {
        println!("  (QEMU does not check the alignment of the stack pointer)");
    }
}
