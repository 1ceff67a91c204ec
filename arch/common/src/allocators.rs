// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What physical memory is given out from, and the heap.

use alloc::boxed::Box;

#[cfg(target_os = "none")]
use buddy_system_allocator::LockedHeap;
use turnstile_firmware::Range;
use turnstile_paging::{BLOCK, FrameAllocator, FrameRange};
use turnstile_pool::Pool;

use crate::memory::{ARENA, Error, HEAP, MIB, PAGE, cover, range};

#[cfg(target_os = "none")]
#[global_allocator]
static HEAP_ALLOCATOR: LockedHeap<32> = LockedHeap::empty();

/// The RAM of the machine.
pub struct Allocators {
    /// The hypervisor's own, without the heap: translation tables, and what the hardware reads.
    pub arena: FrameAllocator<256>,
    /// For stacks.
    pub stacks: FrameAllocator<16>,
    /// All the rest, which guests get.
    pub guests: FrameAllocator<128>,
}

/// Takes the pages that these ranges touch out of what guests get.
///
/// # Errors
/// When there are too many of them.
pub fn reserve(guests: &mut FrameAllocator<128>, taken: impl Iterator<Item = Range>) -> Result<(), Error> {
    for taken in taken {
        if let Some((start, size)) = cover(taken.base, taken.size) {
            guests.reserve(range(start, size)?)?;
        }
    }
    Ok(())
}

impl Allocators {
    /// Makes those of no memory at all. They are large: filled in where they are, not moved.
    pub const fn new() -> Self {
        Self { arena: FrameAllocator::new(), stacks: FrameAllocator::new(), guests: FrameAllocator::new() }
    }

    /// Takes the arena from what guests get. Returns where it is.
    ///
    /// # Errors
    /// When no RAM is large enough.
    pub fn take_arena(&mut self) -> Result<FrameRange, Error> {
        self.guests.allocate(ARENA, 2 * MIB).map_err(|_| Error::NoArena)
    }

    /// Begins to give out the arena, and sets up the heap in it.
    ///
    /// # Errors
    /// When the arena is too small for the heap.
    ///
    /// # Safety
    /// Once, with what [`Allocators::take_arena`] has returned, which is mapped one to one for ever.
    pub unsafe fn use_arena(&mut self, own: FrameRange) -> Result<(), Error> {
        self.arena.add(own)?;
        let heap = self.arena.allocate(HEAP, PAGE)?;
        #[cfg(target_os = "none")]
        // SAFETY: the caller's promise, and nobody else gets these frames.
        unsafe {
            HEAP_ALLOCATOR.lock().init(heap.start().0 as usize, heap.size() as usize);
        }
        #[cfg(not(target_os = "none"))]
        let _ = heap;
        Ok(())
    }

    /// Takes so many bytes for stacks from what guests get.
    ///
    /// # Errors
    /// When there is no room for them.
    pub fn add_stacks(&mut self, bytes: u64) -> Result<(), Error> {
        let bytes = bytes.next_multiple_of(2 * MIB);
        let stacks = self.guests.allocate(bytes, 2 * MIB).map_err(|_| Error::NoArena)?;
        Ok(self.stacks.add(stacks)?)
    }

    /// Allocates pages of the hypervisor's own, cleared, for ever, aligned to their size where that is a power of two: for tables
    /// that the hardware reads. Returns their address.
    ///
    /// # Errors
    /// When there is no room.
    pub fn pages(&mut self, count: u64) -> Result<u64, Error> {
        let frames = self.arena.allocate(count * PAGE, (count * PAGE).next_power_of_two())?;
        // SAFETY: frames of the arena that nobody has; the arena is mapped one to one.
        unsafe { core::ptr::write_bytes(frames.start().0 as *mut u8, 0, frames.size() as usize) };
        Ok(frames.start().0)
    }

    /// Takes memory of guests for a pool of so many bytes, whole blocks, for ever.
    ///
    /// # Errors
    /// When so much contiguous memory is not left.
    pub fn pool(&mut self, size: u64) -> Result<&'static Pool, Error> {
        let range = self.guests.allocate(size, BLOCK).map_err(|_| Error::NoPool(size))?;
        let count = usize::try_from(range.size() / BLOCK).map_err(|_| Error::NoPool(size))?;
        Ok(Box::leak(Box::new(Pool::new(range.start().0, BLOCK, count))))
    }

    /// Bytes that are free: (for guests, in the arena). What a VM took comes back when it stops.
    pub fn free_bytes(&self) -> (u64, u64) {
        (self.guests.free_bytes(), self.arena.free_bytes())
    }
}

impl Default for Allocators {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_of_a_pool_is_given_to_nobody_else() {
        let mut allocators = Allocators::new();
        allocators.guests.add(range(BLOCK + PAGE, 4 * BLOCK).unwrap()).unwrap();
        let pool = allocators.pool(2 * BLOCK).unwrap();
        assert_eq!((pool.count(), pool.take()), (2, Some(3 * BLOCK)));
        assert_eq!(allocators.free_bytes().0, 2 * BLOCK);
        assert!(matches!(allocators.pool(2 * BLOCK), Err(Error::NoPool(size)) if size == 2 * BLOCK));
    }
}
