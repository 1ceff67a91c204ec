// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Attacks after which this machine cannot go on: the hypervisor stops it with a report, or it spins until it is stopped.

use core::arch::asm;

use turnstile_guests_power64::cpu::msr;
use turnstile_guests_power64::exception::vector;
use turnstile_guests_power64::{cpu, crash, exception, hcall, mmu, timer};

/// Their names.
pub const ATTACKS: &[(&str, fn())] = &[
    ("vectors", || crash::die("vectors")),
    ("stack", || crash::die("stack")),
    ("translated-nowhere", translated_nowhere),
    ("other-order", other_order),
    ("table-outside", table_outside),
    ("source-width", source_width),
    ("timer-storm", timer_storm),
    ("spin", || crash::die("spin")),
    ("halt", || crash::die("halt")),
];

/// Lets storage interrupts lead nowhere: their vectors begin with a branch to itself.
fn spin_at_faults() {
    for vector in [vector::DATA_STORAGE, vector::INSTRUCTION_STORAGE] {
        exception::write_instruction(vector, 0x4800_0000);
    }
}

/// Translation with a process table of nothing: not even the next instruction can be fetched.
fn translated_nowhere() {
    mmu::init();
    let [root, ..] = mmu::tables();
    turnstile_guests_power64::mmio::write64(root, 0);
    mmu::flush();
    spin_at_faults();
    // SAFETY: here and below, nothing of this program is relied on afterwards.
    unsafe { asm!("mtmsrd {}", "isync", "trap", in(reg) cpu::msr() | msr::IR | msr::DR) }
}

/// Interrupts in the other byte order, in which the vectors are no instructions.
fn other_order() {
    hcall::call(hcall::SET_MODE, [0, hcall::set_mode::BYTE_ORDER, 0, 0]);
    // SAFETY: as above.
    unsafe { asm!("trap") }
}

/// A process table behind memory.
fn table_outside() {
    hcall::call(hcall::REGISTER_PROC_TBL, [0x1d, crash::outside() & 0x0fff_ffff_ffff_f000, 0, 0]);
    spin_at_faults();
    // SAFETY: as above.
    unsafe { asm!("mtmsrd {}", "isync", "trap", in(reg) cpu::msr() | msr::IR | msr::DR) }
}

/// A byte of a source's page: a machine check.
fn source_width() {
    turnstile_guests_power64::mmio::read8(turnstile_guests_power64::xive::management_page(0));
}

/// The decrementer is due again before its handler has returned, for ever.
fn timer_storm() {
    exception::write_instruction(vector::DECREMENTER, 0x4c00_0024);
    timer::arm(timer::now());
    cpu::unmask();
    crash::die("spin");
}
