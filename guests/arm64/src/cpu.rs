// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What each CPU keeps for itself, reached through TPIDR_EL1.

use core::arch::asm;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use turnstile_guests_common::handler::Work;

use crate::read_sysreg;

/// The data of one CPU. Only that CPU touches the fields, except while it starts another.
#[repr(C)]
pub struct Cpu {
    /// Top of the stack for exceptions, SP_EL1.
    pub exception_stack: AtomicU64,
    /// Top of the stack of the program, SP_EL0.
    pub main_stack: AtomicU64,
    /// Address of the function that a secondary CPU enters; gets this CPU's data in x0.
    pub entry: AtomicU64,
    /// The secondary CPU's work.
    pub work: Work,
    /// MAIR_EL1, TCR_EL1, TTBR0_EL1 and SCTLR_EL1 that a secondary CPU starts with; all zero: MMU off.
    pub translation: [AtomicU64; 4],
    /// Index among the CPU nodes of the device tree.
    pub index: AtomicU64,
    /// What to do with the next synchronous exception; see [`crate::trap`].
    pub trap: TrapSlot,
    /// Depth of exceptions that were not expected.
    pub fatal: AtomicU64,
}

/// Where the exception handler leaves an expected trap.
#[repr(C)]
pub struct TrapSlot {
    /// Whether a synchronous exception is expected.
    pub armed: AtomicU64,
    /// Exceptions taken since it was armed.
    pub taken: AtomicU64,
    /// ESR_EL1 of the last one.
    pub esr: AtomicU64,
    /// FAR_EL1 of the last one.
    pub far: AtomicU64,
    /// ELR_EL1 of the last one.
    pub elr: AtomicU64,
    /// Whether the last one was an SError.
    pub serror: AtomicU64,
}

impl Cpu {
    /// Returns the data of a CPU that has not started.
    pub const fn new(index: u64) -> Cpu {
        #[expect(clippy::declare_interior_mutable_const, reason = "a template, copied for each field")]
        const ZERO: AtomicU64 = AtomicU64::new(0);
        Cpu {
            exception_stack: ZERO,
            main_stack: ZERO,
            entry: ZERO,
            work: Work::new(),
            translation: [ZERO, ZERO, ZERO, ZERO],
            index: AtomicU64::new(index),
            trap: TrapSlot { armed: ZERO, taken: ZERO, esr: ZERO, far: ZERO, elr: ZERO, serror: ZERO },
            fatal: ZERO,
        }
    }

    /// Returns this CPU's index among the CPU nodes of the device tree.
    pub fn index(&self) -> usize {
        self.index.load(Relaxed) as usize
    }
}

/// Returns the data of the CPU that runs this.
pub fn this() -> &'static Cpu {
    let data = read_sysreg!("tpidr_el1") as *const Cpu;
    // SAFETY: TPIDR_EL1 is set before any Rust code runs, to data that is never freed.
    unsafe { &*data }
}

/// Returns the affinity fields of this CPU's MPIDR_EL1.
pub fn affinity() -> u64 {
    read_sysreg!("mpidr_el1") & 0xff_00ff_ffff
}

/// Lets IRQs in (PSTATE.I = 0).
pub fn unmask_irq() {
    // SAFETY: the vectors handle interrupts at any point of the program.
    unsafe { asm!("msr daifclr, #2", options(nostack)) };
}

/// Keeps IRQs out (PSTATE.I = 1).
pub fn mask_irq() {
    // SAFETY: changes only the interrupt mask.
    unsafe { asm!("msr daifset, #2", options(nostack)) };
}

/// Lets FIQs in (PSTATE.F = 0).
pub fn unmask_fiq() {
    // SAFETY: the vectors handle interrupts at any point of the program.
    unsafe { asm!("msr daifclr, #1", options(nostack)) };
}

/// Keeps FIQs out (PSTATE.F = 1).
pub fn mask_fiq() {
    // SAFETY: changes only the interrupt mask.
    unsafe { asm!("msr daifset, #1", options(nostack)) };
}

/// Waits for an interrupt; a pending but masked one ends the wait too.
pub fn wfi() {
    // SAFETY: changes no state of the program.
    unsafe { asm!("dsb sy", "wfi", options(nostack)) };
}

/// Waits until everything before it is done and seen (DSB SY, ISB).
pub fn synchronize() {
    // SAFETY: barriers only.
    unsafe { asm!("dsb sy", "isb", options(nostack)) };
}

/// Makes what was written as instructions at `[address, address + bytes)` executable.
pub fn synchronize_instructions(address: u64, bytes: u64) {
    let mut line = address & !15;
    while line < address + bytes {
        // SAFETY: cleaning and invalidating caches by address of own memory changes no value.
        unsafe { asm!("dc cvau, {0}", "dsb ish", "ic ivau, {0}", in(reg) line, options(nostack)) };
        line += 16;
    }
    synchronize();
}

/// Says that this CPU waits for another one: an emulator that runs its CPUs in turn goes on to the next.
pub fn relax() {
    // SAFETY: a hint; it changes nothing.
    unsafe { core::arch::asm!("yield", options(nomem, nostack, preserves_flags)) };
}
