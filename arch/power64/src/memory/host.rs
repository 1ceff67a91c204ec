// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The allocators.

use spin::Mutex;
use turnstile_arch_common::allocators::{Allocators, reserve};
pub use turnstile_arch_common::memory::Error;
use turnstile_arch_common::memory::{MIB, PAGE, align, range};
use turnstile_firmware::Range;
use turnstile_paging::{FrameAllocator, FrameRange, PhysAddr, Tables};

use crate::board::discover::Machine;

/// Bytes of a stack, and its alignment.
pub const STACK_BLOCK: u64 = 64 * 1024;
/// RAM below this is the vectors', and the firmware's.
const LOW: Range = Range { base: 0, size: MIB };
/// Bytes for stacks of vCPUs that share CPUs.
const VCPU_STACKS: u64 = 16 * MIB;

static MEMORY: Mutex<Option<Allocators>> = Mutex::new(None);

/// Translation tables in the arena. Walkers read them in big-endian order.
pub struct Pool<'a>(&'a mut FrameAllocator<256>);

impl<'a> Pool<'a> {
    pub(super) fn new(arena: &'a mut FrameAllocator<256>) -> Self {
        Self(arena)
    }
}

impl Tables for Pool<'_> {
    fn allocate(&mut self, bytes: u64) -> Option<PhysAddr> {
        let frames = self.0.allocate(bytes.max(PAGE), bytes.max(PAGE)).ok()?;
        // SAFETY: frames of the arena that nobody has.
        unsafe { core::ptr::write_bytes(frames.start().0 as *mut u8, 0, frames.size() as usize) };
        Some(frames.start())
    }

    fn free(&mut self, table: PhysAddr, bytes: u64) {
        if let Some(frames) = FrameRange::new(table, bytes.max(PAGE)) {
            let _ = self.0.free(frames);
        }
    }

    fn read(&self, table: PhysAddr, index: usize) -> u64 {
        // SAFETY: `table` came from `allocate`, so it is an arena frame, and the builder keeps `index` inside the table.
        // Volatile: hardware walkers read it too.
        u64::from_be(unsafe { core::ptr::read_volatile((table.0 as *const u64).add(index)) })
    }

    fn write(&mut self, table: PhysAddr, index: usize, entry: u64) {
        // SAFETY: as for `read`; an aligned 64-bit store is atomic.
        unsafe { core::ptr::write_volatile((table.0 as *mut u64).add(index), entry.to_be()) }
    }

    fn invalidate(&mut self, _address: u64, _size: u64) {
        // A partition's tables change before its vCPUs run: its entry is set behind that, which forgets everything.
        crate::cpu::ptesync();
    }
}

unsafe extern "C" {
    static __text_start: u8;
    static __image_end: u8;
}

/// Sets up the allocators. `in_use` is what the boot loader put beside the image and stays.
///
/// # Errors
/// When the memory map cannot hold the hypervisor.
pub fn init(machine: &Machine<'_>, in_use: &[Range]) -> Result<(), Error> {
    let mut memory = Allocators::new();
    for ram in &machine.memory {
        if let Some((start, size)) = align(ram.base, ram.size) {
            memory.guests.add(range(start, size)?)?;
        }
    }
    let image = (&raw const __text_start) as u64;
    let own = Range { base: image, size: (&raw const __image_end) as u64 - image };
    let taken = machine.reserved.iter().chain(in_use).chain([&own, &LOW]);
    reserve(&mut memory.guests, taken.copied())?;
    let own = memory.take_arena()?;
    // SAFETY: frames that were just taken from free RAM, and nobody else gets them.
    unsafe { memory.use_arena(own)? };
    memory.add_stacks(2 * STACK_BLOCK * machine.cpus.len() as u64 + VCPU_STACKS)?;
    *MEMORY.lock() = Some(memory);
    Ok(())
}

/// Runs `f` on the memory state; it exists from [`init`] on.
pub(super) fn with<R>(f: impl FnOnce(&mut Allocators) -> Result<R, Error>) -> Result<R, Error> {
    MEMORY.lock().as_mut().map_or(Err(Error::NoArena), f)
}

/// Allocates a stack, aligned to its size; returns its high end.
///
/// # Errors
/// When there is no room for another stack.
pub fn stack() -> Result<u64, Error> {
    with(|m| {
        let block = m.stacks.allocate(STACK_BLOCK, STACK_BLOCK).map_err(|_| Error::NoStack)?;
        Ok(block.end().0)
    })
}

/// As [`Allocators::pages`].
///
/// # Errors
/// When there is no room.
pub fn pages(count: u64) -> Result<u64, Error> {
    with(|m| m.pages(count))
}

/// Takes memory of guests for a pool of so many bytes, whole blocks. At boot, and for ever.
///
/// # Errors
/// When so much contiguous memory is not left.
pub fn pool(size: u64) -> Result<&'static turnstile_arch_common::pooled::Pool, Error> {
    with(|m| m.pool(size))
}

/// Bytes that are free: (for guests, in the arena). What a VM took comes back when it stops.
pub fn free_bytes() -> (u64, u64) {
    with(|m| Ok(m.free_bytes())).unwrap_or((0, 0))
}
