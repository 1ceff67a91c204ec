// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The interrupt descriptor tables (APM vol. 2, 8.6 and 4.8.4), which all CPUs share.

use core::cell::UnsafeCell;

use crate::cpu::descriptors::{CODE_SELECTOR, Pointer};
use crate::irq::interrupts::{APIC_ERROR, CONSOLE, DEVICE, DEVICES, KICK, RESCHEDULE, SPURIOUS, TIMER};

/// A gate of the interrupt descriptor table (APM vol. 2, 4.8.4).
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Gate([u64; 2]);

impl Gate {
    const NONE: Self = Self([0; 2]);

    /// An interrupt gate to `entry`, on the stack `ist`, or on the current one if that is zero.
    const fn new(entry: u64, ist: u64) -> Self {
        const PRESENT_INTERRUPT: u64 = 0x8e << 40;
        let low = entry & 0xffff
            | (CODE_SELECTOR as u64) << 16
            | ist << 32
            | PRESENT_INTERRUPT
            | (entry >> 16 & 0xffff) << 48;
        Self([low, entry >> 32])
    }
}

/// An interrupt descriptor table.
#[derive(Debug)]
#[repr(C, align(16))]
pub struct Table([Gate; 256]);

unsafe extern "C" {
    fn turnstile_exceptions();
    fn turnstile_interrupt_devices();
    fn turnstile_interrupt_console();
    fn turnstile_interrupt_timer();
    fn turnstile_interrupt_kick();
    fn turnstile_interrupt_reschedule();
    fn turnstile_interrupt_apic_error();
    fn turnstile_interrupt_spurious();
}

/// Distance between the entries of exceptions, and of PCI functions, in `interrupts.S`.
const ENTRY: u64 = 16;
/// Exceptions there can be.
const EXCEPTIONS: usize = 32;

impl Table {
    const EMPTY: Self = Self([Gate::NONE; 256]);

    /// Fills the table in; exceptions run on the stack `ist`.
    fn fill(&mut self, ist: u64) {
        let exceptions = turnstile_exceptions as *const () as u64;
        for (vector, gate) in self.0.iter_mut().enumerate().take(EXCEPTIONS) {
            *gate = Gate::new(exceptions + vector as u64 * ENTRY, ist);
        }
        let interrupts: [(u8, unsafe extern "C" fn()); 6] = [
            (CONSOLE, turnstile_interrupt_console),
            (TIMER, turnstile_interrupt_timer),
            (KICK, turnstile_interrupt_kick),
            (RESCHEDULE, turnstile_interrupt_reschedule),
            (APIC_ERROR, turnstile_interrupt_apic_error),
            (SPURIOUS, turnstile_interrupt_spurious),
        ];
        for (vector, entry) in interrupts {
            self.0[usize::from(vector)] = Gate::new(entry as *const () as u64, 0);
        }
        let devices = turnstile_interrupt_devices as *const () as u64;
        for number in 0..DEVICES {
            self.0[usize::from(DEVICE + number)] = Gate::new(devices + u64::from(number) * ENTRY, 0);
        }
    }
}

/// The tables of all CPUs: of those that have not entered a guest, whose exceptions have a stack of their own; and of the
/// others. A guest's task register stays in the CPU when it exits, and with it what the CPU would take for the stack.
struct Tables(UnsafeCell<[Table; 2]>);

// SAFETY: written by the boot CPU before any other runs, and only read from then on.
unsafe impl Sync for Tables {}

static TABLES: Tables = Tables(UnsafeCell::new([Table::EMPTY; 2]));

/// Builds the interrupt descriptor tables; on the boot CPU, once, before any other runs.
///
/// # Safety
/// No CPU uses them yet.
pub unsafe fn build() {
    // SAFETY: the caller's promise.
    let tables = unsafe { &mut *TABLES.0.get() };
    tables[0].fill(1);
    tables[1].fill(0);
}

fn load(number: usize) {
    let base = TABLES.0.get() as u64 + (number * size_of::<Table>()) as u64;
    let pointer = Pointer { limit: size_of::<Table>() as u16 - 1, base };
    // SAFETY: a table that was built, and lives for ever.
    unsafe { core::arch::asm!("lidt [{}]", in(reg) &pointer, options(readonly, nostack, preserves_flags)) };
}

/// From now on exceptions of this CPU use the stack they happen on: it is about to enter its first guest, whose task
/// register stays in the CPU.
pub fn expect_guests() {
    load(1);
}

/// Exceptions of this CPU have a stack of their own, until [`expect_guests`].
///
/// # Safety
/// The tables are built, and the CPU has its task state segment.
pub unsafe fn begin() {
    load(0);
}
