// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The allocators, and the hypervisor's own address space.

use arrayvec::ArrayVec;
use spin::Mutex;
use turnstile_arch_common::allocators::{Allocators, reserve};
use turnstile_arch_common::demand;
pub use turnstile_arch_common::memory::Error;
use turnstile_arch_common::memory::{MIB, PAGE, align, cover, map_missing, range};
use turnstile_firmware::{Range, boot::Region};
use turnstile_paging::{
    Error as PagingError, FrameAllocator, FrameRange, HostAttributes, HostTables, Nested, NestedAttributes,
    PageTable, PhysAddr, Tables,
};

use super::user::{self, Block};
use crate::cpu::regs::CR3;
use crate::cpu::{self, STACK_BLOCK};

/// RAM below this belongs to the firmware, but for the page where other CPUs start.
const LOW: u64 = MIB;
/// The boot-time tables, and registers of 32-bit code that starts CPUs, reach as far.
const REACH: u64 = 1 << 32;
/// Bytes for stacks of vCPUs that share CPUs.
const VCPU_STACKS: u64 = 16 * MIB;

static MEMORY: Mutex<Option<Memory>> = Mutex::new(None);

/// Physical memory.
pub struct Memory {
    /// What it is given out from. Stacks are mapped each by itself, their lowest pages left out.
    pub(super) frames: Allocators,
    host: PageTable<HostTables>,
    /// The form of nested page tables.
    pub(super) nested: Nested,
}

/// Translation tables in the arena.
pub struct Pool<'a>(&'a mut FrameAllocator<256>);

impl<'a> Pool<'a> {
    pub(super) fn new(arena: &'a mut FrameAllocator<256>) -> Self {
        Self(arena)
    }
}

impl Tables for Pool<'_> {
    fn allocate(&mut self, bytes: u64) -> Option<PhysAddr> {
        let frames = self.0.allocate(bytes.max(PAGE), bytes.max(PAGE)).ok()?;
        // SAFETY: frames of the arena that nobody has; the arena is mapped one to one.
        unsafe { core::ptr::write_bytes(frames.start().0 as *mut u8, 0, frames.size() as usize) };
        Some(frames.start())
    }

    fn free(&mut self, table: PhysAddr, bytes: u64) {
        if let Some(frames) = FrameRange::new(table, bytes.max(PAGE)) {
            let _ = self.0.free(frames);
        }
    }

    fn read(&self, table: PhysAddr, index: usize) -> u64 {
        // SAFETY: `table` came from `allocate`, so it is an arena frame that is mapped one to one, and the builder keeps
        // `index` inside the table. Volatile: hardware walkers read it too.
        unsafe { core::ptr::read_volatile((table.0 as *const u64).add(index)) }
    }

    fn write(&mut self, table: PhysAddr, index: usize, entry: u64) {
        // SAFETY: as for `read`; an aligned 64-bit store is atomic.
        unsafe { core::ptr::write_volatile((table.0 as *mut u64).add(index), entry) }
    }

    fn invalidate(&mut self, _address: u64, _size: u64) {
        // The hypervisor's own mappings change while the boot CPU is alone, those of guests before their vCPUs run: then
        // no TLB holds them, because each life of a vCPU begins with a new ASID, or a flush of it.
        // SAFETY: the same tables.
        unsafe { CR3.write(CR3.read()) };
    }
}

unsafe extern "C" {
    static __text_start: u8;
    static __rodata_start: u8;
    static __data_start: u8;
    static __image_end: u8;
}

/// The parts of the image: start, end, attributes.
fn image_parts() -> [(u64, u64, HostAttributes); 3] {
    let symbols =
        [&raw const __text_start, &raw const __rodata_start, &raw const __data_start, &raw const __image_end];
    let [text, rodata, data, end] = symbols.map(|symbol| symbol as u64);
    [
        (text, rodata, HostAttributes::CODE),
        (rodata, data, HostAttributes::CONSTANT),
        (data, end, HostAttributes::DATA),
    ]
}

/// Bits of a physical address (CPUID Fn8000_0008_EAX[7:0]).
pub fn physical_bits() -> u32 {
    cpu::cpuid(0x8000_0008, 0)[0] & 0xff
}

/// Whether pages of 1 GiB can be mapped (CPUID Fn8000_0001_EDX[26]).
pub fn gigabyte_pages() -> bool {
    cpu::cpuid(0x8000_0001, 0)[3] & (1 << 26) != 0
}

/// Whether the CPU has SMAP (CPUID Fn0000_0007_EBX_x0[20]).
pub fn has_smap() -> bool {
    cpu::cpuid(0, 0)[0] >= 7 && cpu::cpuid(7, 0)[1] & (1 << 20) != 0
}

/// What [`init`] is told of the machine.
pub struct Plan<'a> {
    /// The memory map.
    pub regions: &'a [Region],
    /// What the boot loader put beside the image and stays readable: the bundle.
    pub in_use: Option<Range>,
    /// Register blocks.
    pub devices: &'a [Range],
    /// Where other CPUs start.
    pub trampoline: u64,
    /// How many CPUs there are.
    pub cpus: usize,
}

/// Adds the usable RAM in `[from, to)` to an allocator, without what is taken.
fn add(guests: &mut FrameAllocator<128>, plan: &Plan<'_>, from: u64, to: u64) -> Result<(), Error> {
    for region in plan.regions.iter().filter(|region| region.usable) {
        let Some((start, size)) = align(region.range.base, region.range.size) else { continue };
        let (start, end) = (start.max(from), (start + size).min(to));
        if start < end {
            guests.add(range(start, end - start)?)?;
        }
    }
    let [(image, ..), _, (_, end, _)] = image_parts();
    let reserved = plan.regions.iter().filter(|region| !region.usable).map(|region| region.range);
    let own = Range { base: image, size: end - image };
    reserve(guests, reserved.chain(plan.in_use).chain([own]))
}

/// Sets up the allocators and the hypervisor's final tables, and uses them.
///
/// # Errors
/// When the memory map cannot hold the hypervisor.
pub fn init(plan: &Plan<'_>) -> Result<(), Error> {
    let limit = 1u64 << physical_bits().min(47);
    let mut frames = Allocators::new();
    add(&mut frames.guests, plan, LOW, REACH)?;
    let own = frames.take_arena()?;
    // SAFETY: frames that were just taken from free RAM, are mapped, and nobody else gets them.
    unsafe { frames.use_arena(own)? };
    add(&mut frames.guests, plan, REACH, limit)?;
    frames.add_stacks(2 * STACK_BLOCK * plan.cpus as u64 + VCPU_STACKS)?;
    let format = HostTables::new(gigabyte_pages(), physical_bits());
    let host = build(format, plan, own, &frames.guests, &mut Pool::new(&mut frames.arena))?;
    if !has_smap() {
        // SAFETY: the boot CPU is alone, and its tables still let it write everything.
        unsafe { user::patch() };
    }
    // SAFETY: the new tables map all that is in use now — code, data, the boot stack inside .bss, the arena, devices —
    // at the same addresses as the boot tables.
    unsafe { CR3.write(host.root().0) };
    let nested = Nested::new(gigabyte_pages(), physical_bits());
    *MEMORY.lock() = Some(Memory { frames, host, nested });
    Ok(())
}

/// Builds the hypervisor's tables.
fn build(
    format: HostTables,
    plan: &Plan<'_>,
    own: FrameRange,
    guests: &FrameAllocator<128>,
    pool: &mut Pool<'_>,
) -> Result<PageTable<HostTables>, Error> {
    let mut table = PageTable::new(format, pool)?;
    for (start, end, attributes) in image_parts() {
        if end > start {
            table.map(pool, start, PhysAddr(start), end - start, attributes)?;
        }
    }
    table.map(pool, own.start().0, own.start(), own.size(), HostAttributes::DATA)?;
    table.map(pool, plan.trampoline, PhysAddr(plan.trampoline), PAGE, HostAttributes::DATA)?;
    if let Some(pages) = plan.in_use.and_then(|range| cover(range.base, range.size)) {
        map_missing(&mut table, pool, pages, HostAttributes::CONSTANT)?;
    }
    for device in plan.devices {
        if let Some(pages) = cover(device.base, device.size) {
            map_missing(&mut table, pool, pages, HostAttributes::DEVICE)?;
        }
    }
    let free: ArrayVec<FrameRange, 128> = guests.free_ranges().collect();
    for frames in free {
        table.map(pool, frames.start().0, frames.start(), frames.size(), HostAttributes::GUEST)?;
    }
    Ok(table)
}

/// Runs `f` on the memory state; it exists from [`init`] on.
pub(super) fn with<R>(f: impl FnOnce(&mut Memory) -> Result<R, Error>) -> Result<R, Error> {
    MEMORY.lock().as_mut().map_or(Err(Error::NoArena), f)
}

/// Returns the physical address of the hypervisor's tables, for CPUs that start.
pub fn root() -> u64 {
    with(|m| Ok(m.host.root().0)).unwrap_or(0)
}

/// Allocates a stack's block, aligned to its size, with an unmapped page at its low end; returns its high end.
///
/// # Errors
/// When there is no room for another stack.
pub fn stack() -> Result<u64, Error> {
    with(|m| {
        let block = m.frames.stacks.allocate(STACK_BLOCK, STACK_BLOCK).map_err(|_| Error::NoStack)?;
        let start = block.start().0 + PAGE;
        let mut pool = Pool::new(&mut m.frames.arena);
        m.host.map(&mut pool, start, PhysAddr(start), STACK_BLOCK - PAGE, HostAttributes::DATA)?;
        Ok(block.end().0)
    })
}

/// Maps register blocks of a device, uncacheable, where nothing is mapped yet: it is not in the memory that guests have.
///
/// # Errors
/// When the hypervisor's tables do not reach that far, or there is no memory for them.
pub fn map_registers(base: u64, size: u64) -> Result<(), Error> {
    let pages = cover(base, size).ok_or(Error::Paging(PagingError::Unaligned))?;
    with(|m| map_missing(&mut m.host, &mut Pool::new(&mut m.frames.arena), pages, HostAttributes::DEVICE))
}

/// A range of pages in nested tables that stay: its guest physical address, where it is, its size, and what it allows.
pub type Part = (u64, u64, u64, NestedAttributes);

/// Nested page tables that the boot code or a VM does not have: those of a service.
pub struct NestedTables(PageTable<Nested>);

impl NestedTables {
    /// Builds tables for these parts.
    ///
    /// # Errors
    /// When there is no memory for them.
    pub fn new(parts: &[Part]) -> Result<Self, Error> {
        with(|m| {
            let format = m.nested;
            let mut pool = Pool::new(&mut m.frames.arena);
            let mut table = PageTable::new(format, &mut pool)?;
            for (guest, host, size, attributes) in parts.iter().copied() {
                if let Err(error) = table.map(&mut pool, guest, PhysAddr(host), size, attributes) {
                    table.free_all(&mut pool);
                    return Err(error.into());
                }
            }
            Ok(Self(table))
        })
    }

    /// Returns the physical address of the root.
    pub fn root(&self) -> u64 {
        self.0.root().0
    }

    /// Maps another part, with the largest pages that fit.
    ///
    /// # Errors
    /// When that is not possible, or there is no memory for the tables. Nothing of it is mapped then.
    pub fn map(&mut self, (guest, host, size, attributes): Part) -> Result<(), Error> {
        with(|m| {
            let mut pool = Pool::new(&mut m.frames.arena);
            Ok(self.0.map(&mut pool, guest, PhysAddr(host), size, attributes)?)
        })
    }

    /// Prepares for another part, of which blocks are mapped when they are [supplied](Self::supply).
    ///
    /// # Errors
    /// As for [`Self::map`].
    pub fn map_on_demand(&mut self, (guest, host, size, attributes): Part) -> Result<(), Error> {
        with(|m| {
            let mut pool = Pool::new(&mut m.frames.arena);
            Ok(self.0.map_on_demand(&mut pool, guest, PhysAddr(host), size, attributes)?)
        })
    }

    /// Maps the block that contains `guest` and is at `host`, in a part that was prepared for that. False if none was.
    ///
    /// # Safety
    /// The block is cleared.
    pub unsafe fn supply(&mut self, guest: u64, host: u64, attributes: NestedAttributes) -> bool {
        // SAFETY: the caller's promise; the hypervisor maps its arena one to one, and the reference is unique.
        unsafe { demand::supply::<_, Block>(&self.0.blocks(), guest, host, attributes) }
    }

    /// Unmaps the block that contains `guest`, until it is supplied again. The caller sees to the TLBs.
    ///
    /// # Safety
    /// No CPU walks these tables meanwhile.
    pub unsafe fn withdraw(&mut self, guest: u64, attributes: NestedAttributes) {
        // SAFETY: as for `supply`.
        unsafe { demand::vacate::<_, Block>(&self.0.blocks(), guest, attributes) };
    }

    /// Unmaps a part that was mapped. The caller sees to the TLBs, and that no CPU walks these tables meanwhile.
    pub fn unmap(&mut self, guest: u64, size: u64) {
        // A part that was mapped as a whole is split nowhere, so nothing can fail.
        let _ = with(|m| Ok(self.0.unmap(&mut Pool::new(&mut m.frames.arena), guest, size)?));
    }
}

/// As [`Allocators::pages`].
///
/// # Errors
/// When there is no room.
pub fn pages(count: u64) -> Result<u64, Error> {
    with(|m| m.frames.pages(count))
}

/// Takes memory of guests for a pool of so many bytes, whole blocks. At boot, and for ever.
///
/// # Errors
/// When so much contiguous memory is not left.
pub fn pool(size: u64) -> Result<&'static turnstile_arch_common::pooled::Pool, Error> {
    with(|m| m.frames.pool(size))
}

/// Bytes that are free: (for guests, in the arena). What a VM took comes back when it stops.
pub fn free_bytes() -> (u64, u64) {
    with(|m| Ok(m.frames.free_bytes())).unwrap_or((0, 0))
}
