// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The EL2 address space: its translation tables, in the arena. Those of guests are built in the same way.
//!
//! EL2 maps, one to one: its image (code executable, nothing writable and executable), its arena (heap,
//! stacks, translation tables), the device tree and the bundle, and the devices it drives. Memory of guests
//! is not mapped, except in a CPU's own window while that copies or clears (`window.rs`), and the cells of its flash. Devices on exits' paths are mapped
//! in the [`window`], at addresses that are known when the image is built.
//!
//! [`window`]: crate::cpu::regs::gicv2::window

use turnstile_arch_common::memory::{Error, PAGE, cover, map_missing};
use turnstile_firmware::Range;
use turnstile_paging::{
    FrameAllocator, FrameRange, PageTable, PhysAddr, Stage1Attributes, Stage1El2, Stage1Regime, Tables,
};

use super::bulk::zero;
use super::window;
use crate::cpu::{self, mode};

/// Bits of the EL2 address space; `boot.S` has the matching T0SZ.
const EL2_BITS: u32 = 39;

/// What must be invalidated when a table changes.
#[derive(Clone, Copy)]
pub enum Regime {
    /// The hypervisor's own, all CPUs.
    El2,
    /// EL1&0 of the VM that this CPU has loaded: tables of guests are changed on their own CPUs only, and before
    /// they are first loaded anywhere.
    Guest,
    /// EL1&0 of all numbers there are, on all CPUs.
    Guests,
}

/// Translation tables in the arena.
pub struct Pool<'a> {
    pub(super) arena: &'a mut FrameAllocator<256>,
    pub(super) regime: Regime,
}

impl Tables for Pool<'_> {
    fn allocate(&mut self, bytes: u64) -> Option<PhysAddr> {
        let frames = self.arena.allocate(bytes, bytes.max(PAGE)).ok()?;
        zero(frames.start().0, bytes);
        cpu::dsb_ishst();
        Some(frames.start())
    }

    fn free(&mut self, table: PhysAddr, bytes: u64) {
        if let Some(frames) = FrameRange::new(table, bytes) {
            let _ = self.arena.free(frames);
        }
    }

    fn read(&self, table: PhysAddr, index: usize) -> u64 {
        // SAFETY: `table` came from `allocate`, so it is an arena frame that EL2 maps one to one, and the
        // builder keeps `index` inside the table. Volatile: hardware walkers read it too.
        unsafe { core::ptr::read_volatile((table.0 as *const u64).add(index)) }
    }

    fn write(&mut self, table: PhysAddr, index: usize, entry: u64) {
        // SAFETY: as for `read`; an aligned 64-bit store is single-copy atomic.
        unsafe { core::ptr::write_volatile((table.0 as *mut u64).add(index), entry) }
    }

    fn invalidate(&mut self, _address: u64, _size: u64) {
        // The table stores before the invalidation, the invalidation before what follows (D8.16.5).
        cpu::dsb_ishst();
        match self.regime {
            Regime::El2 => cpu::tlbi_alle2is(),
            Regime::Guest => cpu::tlbi_vmalls12e1is(),
            Regime::Guests => cpu::tlbi_alle1is(),
        }
        cpu::dsb_ish();
        cpu::isb();
    }
}

unsafe extern "C" {
    static _start: u8;
    static __text_start: u8;
    static __rodata_start: u8;
    static __data_start: u8;
    static __image_end: u8;
    static mut early_l1: u8;
    fn enable_el2_mmu(root: u64);
}

fn address_of(symbol: *const u8) -> u64 {
    symbol as u64
}

/// Where the image is.
pub(super) fn image() -> Range {
    let base = address_of(&raw const _start);
    Range { base, size: image_parts()[2].1 - image_parts()[0].0 }
}

/// The parts of the image: (start, end, attributes).
fn image_parts() -> [(u64, u64, Stage1Attributes); 3] {
    let (text, rodata, data, end) =
        (&raw const __text_start, &raw const __rodata_start, &raw const __data_start, &raw const __image_end);
    let (text, rodata, data, end) = (address_of(text), address_of(rodata), address_of(data), address_of(end));
    [
        (text, rodata, Stage1Attributes::CODE),
        (rodata, data, Stage1Attributes::CONSTANT),
        (data, end, Stage1Attributes::DATA),
    ]
}

/// Makes the boot tables describe the gigabytes of `range` as Normal memory: they know RAM only where the image
/// and the device tree are, and DC ZVA and exclusives need Normal memory.
pub(super) fn make_normal(range: FrameRange) {
    /// What a block of Normal memory has that one of device memory has not: attribute 2, inner shareable.
    const NORMAL: u64 = 2 << 2 | 0b11 << 8;
    const ATTRIBUTE: u64 = 0b111 << 2;
    let first = range.start().0 >> 30;
    let last = (range.end().0 - 1) >> 30;
    for gigabyte in first..=last {
        // SAFETY: the boot tables have 512 entries, and RAM beyond 39 bits was cut off. An entry that is Normal
        // already maps the code that runs and stays; another maps nothing in use but device registers that are
        // not accessed meanwhile. Broken before made (Arm ARM D8.16.1).
        unsafe {
            let entry = (&raw mut early_l1).cast::<u64>().add(gigabyte as usize & 511);
            let block = entry.read_volatile();
            if block & ATTRIBUTE == NORMAL & ATTRIBUTE {
                continue;
            }
            entry.write_volatile(0);
            cpu::dsb_ish();
            cpu::tlbi_alle2is();
            cpu::dsb_ish();
            entry.write_volatile(block | NORMAL);
            cpu::dsb_ish();
            cpu::isb();
        }
    }
}

/// Builds the final EL2 tables, and uses them: what they map is said in `host.rs:init`.
pub(super) fn build(
    arena: &mut FrameAllocator<256>,
    own: FrameRange,
    in_use: &[Range],
    devices: &[Range],
    fixed: &[(u64, u64)],
) -> Result<PageTable<Stage1El2>, Error> {
    let mut pool = Pool { arena, regime: Regime::El2 };
    let regime = if mode::is_vhe() { Stage1Regime::El2And0 } else { Stage1Regime::El2 };
    let format = Stage1El2::new(regime, EL2_BITS).ok_or(Error::NoArena)?;
    let mut table = PageTable::new(format, &mut pool)?;
    for (start, end, attributes) in image_parts() {
        if end > start {
            table.map(&mut pool, start, PhysAddr(start), end - start, attributes)?;
        }
    }
    table.map(&mut pool, own.start().0, own.start(), own.size(), Stage1Attributes::DATA)?;
    for (ranges, attributes) in [(in_use, Stage1Attributes::CONSTANT), (devices, Stage1Attributes::DEVICE)] {
        for one in ranges {
            if let Some(pages) = cover(one.base, one.size) {
                map_missing(&mut table, &mut pool, pages, attributes)?;
            }
        }
    }
    for (address, page) in fixed {
        table.map(&mut pool, *address, PhysAddr(*page), PAGE, Stage1Attributes::DEVICE)?;
    }
    let windows = PhysAddr(window::BASE);
    table.map_on_demand(&mut pool, window::BASE, windows, window::SIZE, Stage1Attributes::DATA)?;
    window::set(table.blocks());
    cpu::dsb_ish();
    // SAFETY: the new tables map all that is in use now — code, data, the boot stack inside .bss, the
    // arena, devices — at the same addresses as the boot tables.
    unsafe { enable_el2_mmu(table.root().0) };
    Ok(table)
}
