// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Stage 1 translation (Arm ARM D8): the first 511 GiB one to one, memory as Normal write-back and the rest
//! as Device, and a window of 2 MiB slots above them that a test maps as it likes.
//!
//! 4 KiB granule, 39-bit addresses, tables of level 1 and 2. Everything is writable and executable by EL1:
//! a guest that tests a hypervisor patches its own code.

use core::arch::asm;
use core::cell::UnsafeCell;

use turnstile_guests_common::image::image;

use crate::boot::SCTLR_INITIAL;
use crate::cpu::{self, Cpu};
use crate::platform::platform;
use crate::read_sysreg;

const ENTRIES: usize = 512;
const GIB: u64 = 1 << 30;
/// Bytes that one slot of the window maps.
pub const BLOCK: u64 = 2 << 20;
const WINDOW: u64 = 511 * GIB;
const PARTIAL_TABLES: usize = 4;

/// Descriptor bits.
pub mod descriptor {
    /// A block (levels 1 and 2).
    pub const BLOCK: u64 = 1;
    /// A table, or a page at level 3.
    pub const TABLE: u64 = 3;
    /// Access flag.
    pub const ACCESSED: u64 = 1 << 10;
    /// AP[2]: read only.
    pub const READ_ONLY: u64 = 1 << 7;
    /// Not executable at EL1.
    pub const EXECUTE_NEVER: u64 = 1 << 53;
    /// Normal write-back memory, inner shareable.
    pub const NORMAL: u64 = 1 << 2 | 3 << 8;
    /// Normal memory without caches.
    pub const NON_CACHEABLE: u64 = 2 << 2 | 3 << 8;
    /// Device-nGnRE.
    pub const DEVICE: u64 = 3 << 2;
}

/// MAIR_EL1 of the attributes above: nGnRnE, write-back, non-cacheable, nGnRE.
pub const MAIR: u64 = 0x0444_ff00;
/// TCR_EL1: T0SZ 25, write-back inner-shareable walks, no TTBR1, 40-bit physical addresses.
pub const TCR: u64 = 25 | 1 << 8 | 1 << 10 | 3 << 12 | 1 << 23 | 2 << 32;
const SCTLR_MMU_AND_CACHE: u64 = 1 | 1 << 2;

#[repr(C, align(4096))]
struct Table(UnsafeCell<[u64; ENTRIES]>);

// SAFETY: written by one CPU at a time: before the MMU is on, or by the test that owns the window.
unsafe impl Sync for Table {}

impl Table {
    const fn new() -> Table {
        Table(UnsafeCell::new([0; ENTRIES]))
    }

    fn set(&self, index: usize, descriptor: u64) {
        let entry = self.0.get().cast::<u64>().wrapping_add(index % ENTRIES);
        // SAFETY: in bounds, and volatile because the walker reads it.
        unsafe { entry.write_volatile(descriptor) };
    }

    fn address(&self) -> u64 {
        self.0.get() as u64
    }
}

static ROOT: Table = Table::new();
static PARTIAL: [Table; PARTIAL_TABLES] = [const { Table::new() }; PARTIAL_TABLES];
static SLOTS: Table = Table::new();

fn is_memory(base: u64, size: u64) -> bool {
    platform().memory.as_slice().iter().any(|region| base >= region.base && base + size <= region.end())
}

fn touches_memory(base: u64, size: u64) -> bool {
    platform().memory.as_slice().iter().any(|region| base < region.end() && region.base < base + size)
}

fn block(address: u64, size: u64) -> u64 {
    let kind = if is_memory(address, size) {
        descriptor::NORMAL
    } else {
        descriptor::DEVICE | descriptor::EXECUTE_NEVER
    };
    address | kind | descriptor::ACCESSED | descriptor::BLOCK
}

fn build() {
    let mut partial = PARTIAL.iter();
    for index in 0..ENTRIES - 1 {
        let base = index as u64 * GIB;
        let split = touches_memory(base, GIB) && !is_memory(base, GIB);
        match split.then(|| partial.next()).flatten() {
            Some(table) => {
                for slot in 0..ENTRIES {
                    table.set(slot, block(base + slot as u64 * BLOCK, BLOCK));
                }
                ROOT.set(index, table.address() | descriptor::TABLE);
            }
            None => ROOT.set(index, block(base, GIB)),
        }
    }
    ROOT.set(ENTRIES - 1, SLOTS.address() | descriptor::TABLE);
}

/// Switches MMU and caches on for this CPU; the others that start later get them too.
///
/// # Panics
/// When the image lies outside the memory of the device tree.
pub fn enable() {
    if is_enabled() {
        return;
    }
    let (start, end) = image();
    assert!(touches_memory(start, end - start), "the image is outside the memory");
    build();
    // What was written with the caches off must not be hidden by older clean lines.
    let mut line = start;
    while line < end {
        // SAFETY: no line of the image can be dirty: it was loaded and cleaned by the boot loader.
        unsafe { asm!("dc ivac, {}", in(reg) line, options(nostack)) };
        line += 16;
    }
    let [mair, tcr, ttbr, sctlr] = registers();
    // SAFETY: the tables map image, stacks and devices one to one.
    unsafe {
        asm!(
            "dsb sy",
            "msr mair_el1, {mair}",
            "msr tcr_el1, {tcr}",
            "msr ttbr0_el1, {ttbr}",
            "isb",
            "tlbi vmalle1",
            "ic iallu",
            "dsb sy",
            "isb",
            "msr sctlr_el1, {sctlr}",
            "isb",
            mair = in(reg) mair,
            tcr = in(reg) tcr,
            ttbr = in(reg) ttbr,
            sctlr = in(reg) sctlr,
            options(nostack),
        );
    }
}

/// Returns whether this CPU's MMU is on.
pub fn is_enabled() -> bool {
    read_sysreg!("sctlr_el1") & 1 != 0
}

/// Returns MAIR_EL1, TCR_EL1, TTBR0_EL1 and SCTLR_EL1 with the MMU on.
pub fn registers() -> [u64; 4] {
    [MAIR, TCR, ROOT.address(), SCTLR_INITIAL | SCTLR_MMU_AND_CACHE]
}

/// Maps slot `slot` of the window to the 2 MiB block at `physical` with the given descriptor bits
/// (`BLOCK | ACCESSED` are added), or to nothing; returns the slot's address.
pub fn set_window(slot: usize, target: Option<(u64, u64)>) -> u64 {
    let value = target.map_or(0, |(physical, bits)| {
        physical & !(BLOCK - 1) | bits | descriptor::ACCESSED | descriptor::BLOCK
    });
    set_window_raw(slot, value)
}

/// Stores a descriptor as it is into slot `slot` of the window; returns the slot's address.
pub fn set_window_raw(slot: usize, descriptor: u64) -> u64 {
    SLOTS.set(slot, descriptor);
    flush();
    WINDOW + (slot % ENTRIES) as u64 * BLOCK
}

/// Drops all translations from the TLBs of all CPUs.
pub fn flush() {
    // SAFETY: the walker finds the same tables again.
    unsafe { asm!("dsb ishst", "tlbi vmalle1is", "dsb ish", "isb", options(nostack)) };
}

/// Cleans a CPU's data to memory, for that CPU will first read it with its caches off.
pub fn clean(data: &Cpu) {
    let start = &raw const *data as u64;
    let mut line = start & !15;
    while line < start + size_of::<Cpu>() as u64 {
        // SAFETY: cleaning changes no value.
        unsafe { asm!("dc civac, {}", in(reg) line, options(nostack)) };
        line += 16;
    }
    cpu::synchronize();
}
