// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Attacks that this machine does not survive; the hypervisor and its other machines must.

use core::arch::asm;

use turnstile_guests::psci::function;
use turnstile_guests::{cpu, crash, println, psci, smp, write_sysreg};

/// Names and what they do.
pub const ATTACKS: &[(&str, fn())] = &[
    ("jump", jump),
    ("tables-gone", tables_gone),
    ("stage1-off-the-map", translation_nowhere),
    ("wild-cpus", wild_cpus),
    ("reset-register", reset_register),
];

/// The program counter outside the memory, and the vectors too: each fault faults.
fn jump() {
    // SAFETY: nothing of this program is relied on afterwards.
    unsafe {
        asm!("msr vbar_el1, {0}", "isb", "br {0}", in(reg) crash::outside(), options(noreturn));
    }
}

/// The translation table outside the memory: no instruction can be fetched, nor the vectors'.
fn tables_gone() {
    // SAFETY: as above.
    unsafe {
        asm!("msr ttbr0_el1, {}", "isb", "tlbi vmalle1", "dsb sy", "isb", "2: b 2b",
            in(reg) crash::outside(), options(noreturn));
    }
}

/// A translation regime of noise.
fn translation_nowhere() {
    // SAFETY: as above.
    unsafe {
        asm!("msr ttbr0_el1, {0}", "msr tcr_el1, {0}", "msr mair_el1, {0}", "isb", "tlbi vmalle1", "dsb sy",
            "isb", "2: b 2b", in(reg) 0xa5a5_5a5a_a5a5_5a5au64, options(noreturn));
    }
}

/// All other CPUs started where nothing is, with vectors that are nowhere; then this one ends itself too.
fn wild_cpus() {
    for index in smp::others() {
        let entry = crash::outside() + 0x1000 * index as u64;
        let result = psci::call(function::CPU_ON, [smp::affinity(index), entry, 0]);
        println!("  CPU_ON of cpu {index} at {entry:#x}: {result}");
    }
    turnstile_guests::timer::delay(50_000);
    jump();
}

/// RMR_EL1 with a reset request: does not exist below a hypervisor, so it is UNDEFINED and reported.
fn reset_register() {
    cpu::synchronize();
    write_sysreg!("S3_0_C12_C0_2", 3);
}
