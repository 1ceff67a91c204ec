// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Physical memory: what the hypervisor keeps for itself, what guests get, and the EL2 address space.
//!
//! EL2 maps, one to one: its image (code executable, nothing writable and executable), its arena (heap,
//! stacks, translation tables), the device tree and the bundle, and the devices it drives. Memory of guests
//! is not mapped, except a window of it while `guest.rs` copies or clears, and the cells of its flash. Devices on exits' paths are mapped
//! in the [`window`], at addresses that are known when the image is built.

use buddy_system_allocator::LockedHeap;
use spin::Mutex;
pub use turnstile_arch_common::memory::Error;
use turnstile_arch_common::memory::{ARENA, HEAP, MIB, PAGE, align, cover, map_missing, range};
use turnstile_firmware::Range;
use turnstile_paging::{
    FrameAllocator, FrameRange, PageTable, PhysAddr, Stage1Attributes, Stage1El2, Stage1Regime, Tables,
};
use turnstile_vm::stolen::RECORD;

use super::bulk::zero;
use super::stolen::Records;
use crate::board::discover::{Machine, Release};
use crate::cpu::regs::gicv2::window;
use crate::cpu::{self, mode, regs};

/// Bytes of a physical CPU's stack, without its guard page.
const STACK: u64 = 32 * 1024;
/// Bytes of the stack for fault reports.
const FAULT_STACK: u64 = 16 * 1024;
/// Bytes that are taken for more stacks when there is no room for another.
const MORE_STACKS: u64 = 2 * MIB;
/// Bits of the EL2 address space; `boot.S` has the matching T0SZ.
const EL2_BITS: u32 = 39;

#[global_allocator]
static HEAP_ALLOCATOR: LockedHeap<32> = LockedHeap::empty();

static MEMORY: Mutex<Option<Memory>> = Mutex::new(None);

pub(super) struct Memory {
    pub(super) arena: FrameAllocator<256>,
    /// Stacks, each mapped by itself between unmapped pages. Apart from the arena, because a block that holds
    /// tables in use cannot be split: while it is broken, the tables could not be written.
    stacks: FrameAllocator<16>,
    pub(super) guests: FrameAllocator<128>,
    pub(super) el2: Option<PageTable<Stage1El2>>,
}

/// What must be invalidated when a table changes.
#[derive(Clone, Copy)]
pub(super) enum Regime {
    /// The hypervisor's own, all CPUs.
    El2,
    /// EL1&0 of the VM that this CPU has loaded: tables of guests are changed on their own CPUs only, and before
    /// they are first loaded anywhere.
    Guest,
}

/// Translation tables in the arena.
pub(super) struct Pool<'a> {
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
fn make_normal(range: FrameRange) {
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

/// Sets up the allocators and the final EL2 tables. `in_use` are the ranges that were loaded beside the
/// image and stay readable (device tree, bundle); `devices` are register blocks, `fixed` are pages of registers, each
/// with its address in the [`window`] and its physical one.
///
/// # Errors
/// When the memory map cannot hold the hypervisor.
pub fn init(
    machine: &Machine<'_>,
    in_use: &[Range],
    devices: &[Range],
    fixed: &[(u64, u64)],
) -> Result<(), Error> {
    let mut guests = FrameAllocator::<128>::new();
    for memory in &machine.memory {
        if let Some((start, size)) = align(memory.base, memory.size)
            && start < window::BASE
        {
            guests.add(range(start, size.min(window::BASE - start))?)?;
        }
    }
    let image = Range { base: address_of(&raw const _start), size: image_parts()[2].1 - image_parts()[0].0 };
    let spin_tables = machine.cpus.iter().filter_map(|cpu| match cpu.release {
        Release::SpinTable(base) => Some(Range { base, size: 8 }),
        Release::Psci => None,
    });
    let taken = machine.reserved.iter().chain(in_use).chain([&image]).copied();
    for taken in taken.chain(spin_tables) {
        if let Some((start, size)) = cover(taken.base, taken.size) {
            guests.reserve(range(start, size)?)?;
        }
    }
    let own = guests.allocate(ARENA, 2 * MIB).map_err(|_| Error::NoArena)?;
    make_normal(own);
    let mut arena = FrameAllocator::<256>::new();
    arena.add(own)?;
    let heap = arena.allocate(HEAP, PAGE)?;
    // SAFETY: the heap's frames were just taken from free RAM, are mapped, and nobody else gets them.
    unsafe { HEAP_ALLOCATOR.lock().init(heap.start().0 as usize, heap.size() as usize) };
    let mut stacks = FrameAllocator::<16>::new();
    let stack_bytes = machine.cpus.len() as u64 * (STACK + FAULT_STACK + 2 * PAGE);
    stacks
        .add(guests.allocate(stack_bytes.next_multiple_of(2 * MIB), 2 * MIB).map_err(|_| Error::NoArena)?)?;
    let mut memory = Memory { arena, stacks, guests, el2: None };
    memory.build_el2(own, in_use, devices, fixed)?;
    *MEMORY.lock() = Some(memory);
    Ok(())
}

impl Memory {
    fn build_el2(
        &mut self,
        own: FrameRange,
        in_use: &[Range],
        devices: &[Range],
        fixed: &[(u64, u64)],
    ) -> Result<(), Error> {
        let mut pool = Pool { arena: &mut self.arena, regime: Regime::El2 };
        let regime = if mode::is_vhe() { Stage1Regime::El2And0 } else { Stage1Regime::El2 };
        let format = Stage1El2::new(regime, EL2_BITS).ok_or(Error::NoArena)?;
        let mut table = PageTable::new(format, &mut pool)?;
        for (start, end, attributes) in image_parts() {
            if end > start {
                table.map(&mut pool, start, PhysAddr(start), end - start, attributes)?;
            }
        }
        table.map(&mut pool, own.start().0, own.start(), own.size(), Stage1Attributes::DATA)?;
        for (ranges, attributes) in
            [(in_use, Stage1Attributes::CONSTANT), (devices, Stage1Attributes::DEVICE)]
        {
            for one in ranges {
                if let Some(pages) = cover(one.base, one.size) {
                    map_missing(&mut table, &mut pool, pages, attributes)?;
                }
            }
        }
        for (address, page) in fixed {
            table.map(&mut pool, *address, PhysAddr(*page), PAGE, Stage1Attributes::DEVICE)?;
        }
        cpu::dsb_ish();
        // SAFETY: the new tables map all that is in use now — code, data, the boot stack inside .bss, the
        // arena, devices — at the same addresses as the boot tables.
        unsafe { enable_el2_mmu(table.root().0) };
        self.el2 = Some(table);
        Ok(())
    }
}

/// Runs `f` on the memory state; it exists from [`init`] on.
pub(super) fn with<R>(f: impl FnOnce(&mut Memory) -> Result<R, Error>) -> Result<R, Error> {
    MEMORY.lock().as_mut().map_or(Err(Error::NoArena), f)
}

/// Returns the physical address of the EL2 tables' root, for secondary CPUs.
pub fn el2_root() -> u64 {
    with(|m| Ok(m.el2.as_ref().map_or(0, |t| t.root().0))).unwrap_or(0)
}

/// Allocates a stack with an unmapped guard page below it and returns its top.
///
/// The page above it is the next stack's guard.
fn stack(size: u64) -> Result<u64, Error> {
    with(|m| {
        let frames = match m.stacks.allocate(size + PAGE, PAGE) {
            Ok(frames) => frames,
            Err(_) => {
                m.stacks.add(m.guests.allocate(MORE_STACKS, 2 * MIB).map_err(|_| Error::NoArena)?)?;
                m.stacks.allocate(size + PAGE, PAGE)?
            }
        };
        let start = frames.start().0 + PAGE;
        let mut pool = Pool { arena: &mut m.arena, regime: Regime::El2 };
        if let Some(table) = m.el2.as_mut() {
            table.map(&mut pool, start, PhysAddr(start), size, Stage1Attributes::DATA)?;
            cpu::dsb_ish();
            cpu::isb();
        }
        Ok(frames.end().0)
    })
}

/// Allocates a CPU's stack; returns its top.
///
/// # Errors
/// When there is no room for another stack.
pub fn cpu_stack() -> Result<u64, Error> {
    stack(STACK)
}

/// Allocates the stack of a vCPU that shares CPUs; returns its top.
///
/// # Errors
/// When there is no room for another stack.
pub fn vcpu_stack() -> Result<u64, Error> {
    stack(STACK)
}

/// Allocates a CPU's stack for fault reports; returns its top.
///
/// # Errors
/// When there is no room for another stack.
pub fn fault_stack() -> Result<u64, Error> {
    stack(FAULT_STACK)
}

/// Allocates the records of stolen time of a VM of `vcpus` vCPUs: whole pages of cleared memory, for ever.
///
/// # Errors
/// When there is no room.
pub fn stolen_time_records(vcpus: usize) -> Result<Records, Error> {
    with(|m| {
        let frames = m.arena.allocate((vcpus as u64 * RECORD).next_multiple_of(PAGE), PAGE)?;
        zero(frames.start().0, frames.size());
        // SAFETY: just allocated and cleared; the arena is mapped for ever, and nothing here is ever freed.
        Ok(unsafe { Records::new(frames.start().0, frames.size()) })
    })
}

/// Bytes that are free: (for guests, in the arena). What a VM took comes back when it stops.
pub fn free_bytes() -> (u64, u64) {
    with(|m| Ok((m.guests.free_bytes(), m.arena.free_bytes()))).unwrap_or((0, 0))
}

/// Maps memory that EL2 does not usually see, one to one.
pub(super) fn open_window(start: u64, size: u64) -> Result<(), Error> {
    with(|m| {
        let mut pool = Pool { arena: &mut m.arena, regime: Regime::El2 };
        let table = m.el2.as_mut().ok_or(Error::NoArena)?;
        table.map(&mut pool, start, PhysAddr(start), size, Stage1Attributes::DATA)?;
        cpu::dsb_ish();
        cpu::isb();
        Ok(())
    })
}

/// Takes the mapping of [`open_window`] away again.
pub(super) fn close_window(start: u64, size: u64) -> Result<(), Error> {
    with(|m| {
        let mut pool = Pool { arena: &mut m.arena, regime: Regime::El2 };
        let table = m.el2.as_mut().ok_or(Error::NoArena)?;
        table.unmap(&mut pool, start, size)?;
        Ok(())
    })
}

/// Writes a CPU's release address in its spin table (Devicetree Specification 3.8.1).
///
/// # Errors
/// When the page cannot be mapped.
pub fn write_release_address(address: u64, entry: u64) -> Result<(), Error> {
    let page = address & !(PAGE - 1);
    open_window(page, PAGE)?;
    // SAFETY: the page was just mapped writable; the device tree gives this word to whoever starts the CPU.
    unsafe { core::ptr::write_volatile(address as *mut u64, entry) };
    cpu::clean_to_poc(address, 8);
    close_window(page, PAGE)
}
