// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where the RAM of a VM is in the machine's.

use alloc::sync::Arc;
use core::ops::Range;

use arrayvec::ArrayVec;
use turnstile_arch_common::demand::{self, Touch, block};
use turnstile_arch_common::pooled::{Missing, Pooled};
use turnstile_arch_common::relax;
use turnstile_paging::{BLOCK, Blocks, Nested, NestedAttributes};

use super::user::Block;

/// The most pieces that the RAM of a VM is in.
pub const MAX_PIECES: usize = 4;

/// A piece of a VM's RAM.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Piece {
    /// First guest physical address.
    pub guest: u64,
    /// Bytes.
    pub size: u64,
    /// First physical address, or [`Piece::FROM_POOL`].
    pub host: u64,
}

/// The RAM of a VM: pieces of guest physical addresses that are RAM, and where they are. What else is mapped for the guest
/// is not in it.
///
/// Memory that is mapped on demand holds, until it is touched, what another VM has left: [`GuestRam::host`] and
/// [`GuestRam::host_in_page`], by which alone the hypervisor reaches it, clear it first. So it is with memory that comes from a pool, where
/// only the tables say where a block is.
#[derive(Clone, Debug, Default)]
#[repr(C)] // What light exits load is together.
pub struct GuestRam {
    /// The largest piece, of which whole pages count: where most of what is looked for is. None of memory that is mapped when it is
    /// touched, so that all of it is looked at.
    main: Piece,
    pieces: ArrayVec<Piece, MAX_PIECES>,
    /// What maps it, if it is mapped on demand.
    blocks: Option<Blocks<Nested>>,
    /// Its blocks, if they come from a pool.
    pooled: Option<Arc<Pooled<Nested>>>,
}

impl Piece {
    /// In the place of a physical address: its blocks come from a pool. No guest has memory there, where a PC's real mode is.
    pub const FROM_POOL: u64 = 0;

    /// Where `size` bytes are, if all of them are in it.
    #[inline(always)] // A few instructions.
    fn place(&self, address: u64, size: u64) -> Option<u64> {
        let offset = address.wrapping_sub(self.guest);
        let inside = offset < self.size && size <= self.size - offset;
        inside.then(|| self.host + offset)
    }
}

impl GuestRam {
    /// Makes the RAM of these pieces, the first ones if there are too many.
    pub fn new(pieces: impl Iterator<Item = Piece>) -> Self {
        let pieces: ArrayVec<Piece, MAX_PIECES> = pieces.take(MAX_PIECES).collect();
        let main = pieces.iter().copied().max_by_key(|piece| piece.size).unwrap_or_default();
        Self { main: Piece { size: main.size & !0xfff, ..main }, pieces, blocks: None, pooled: None }
    }

    /// The same, mapped on demand by these tables.
    pub fn on_demand(self, blocks: Blocks<Nested>) -> Self {
        Self { main: Piece::default(), blocks: Some(blocks), ..self }
    }

    /// The same, of which the pieces that are [`Piece::FROM_POOL`] have their blocks from there.
    pub fn from_pool(self, pooled: Pooled<Nested>) -> Self {
        Self { main: Piece::default(), pooled: Some(Arc::new(pooled)), ..self }
    }

    /// Returns the physical address of `size` bytes at a guest physical address, for the hypervisor to read and write; `None` unless
    /// all of them are RAM of the VM, in one piece, or if a pool has no block for them ([`GuestRam::is_dry`]).
    #[inline]
    pub fn host(&self, address: u64, size: u64) -> Option<u64> {
        let host = self.place(address, size)?;
        if self.main.size == 0 { self.settled(address, size, host) } else { Some(host) }
    }

    /// As [`GuestRam::host`], of bytes whose address is kept beyond an exit: as long as the VM has its memory.
    pub fn host_to_keep(&self, address: u64, size: u64) -> Option<u64> {
        if let Some(pooled) = &self.pooled {
            pooled.pin(address, size);
        }
        self.host(address, size)
    }

    /// Says whether [`GuestRam::host`] has no address because a pool has no block: what needs these bytes is to be done again, later.
    #[cold]
    #[inline(never)] // Not part of what others pay.
    pub fn is_dry(&self, address: u64, size: u64) -> bool {
        let Some(pooled) = &self.pooled else { return false };
        self.place(address, size).is_some() && self.settle_pooled(pooled, address, size) == Err(Missing::Dry)
    }

    /// Clears and maps what of `size` bytes is not mapped yet, and returns where they are: at `host`, unless they come from a pool. For a
    /// guest these bytes are what they were before.
    #[cold]
    #[inline(never)] // Not part of what others pay.
    fn settled(&self, address: u64, size: u64, host: u64) -> Option<u64> {
        if let Some(blocks) = &self.blocks {
            self.settle(blocks, address, size);
        }
        match &self.pooled {
            Some(pooled) if self.is_from_pool(address) => self.settle_pooled(pooled, address, size).ok(),
            _ => Some(host),
        }
    }

    fn settle_pooled(&self, pooled: &Pooled<Nested>, address: u64, size: u64) -> Result<u64, Missing> {
        // SAFETY: the tables of a VM that has not stopped, which nothing else changes while a vCPU of it is in an exit; the hypervisor maps
        // its arena and the memory of guests, of which the pool is, one to one.
        unsafe { pooled.host::<Block>(address, size, NestedAttributes::RAM) }
    }

    /// Says whether an address is in a piece whose blocks come from a pool.
    fn is_from_pool(&self, address: u64) -> bool {
        let has = |piece: &Piece| piece.host == Piece::FROM_POOL && piece.place(address, 1).is_some();
        self.pieces.iter().any(has)
    }

    /// Clears and maps what of `size` bytes is mapped on demand, and is not mapped yet.
    fn settle(&self, blocks: &Blocks<Nested>, address: u64, size: u64) {
        let place = |next| self.place(next, BLOCK);
        // SAFETY: the tables of a VM that has not stopped, which nothing else changes; the hypervisor maps its arena one to one. The
        // blocks are RAM of the VM, which only this type's functions give away.
        unsafe { demand::settle_all::<_, Block>(blocks, address, size, NestedAttributes::RAM, place) };
    }

    /// Clears and maps the block that a vCPU has touched, or some of it if its CPU `is_wanted` elsewhere meanwhile.
    #[inline(always)] // One caller.
    pub fn touch(&self, address: u64, is_wanted: impl Fn() -> bool) -> Touch {
        if let Some(pooled) = &self.pooled {
            return self.touch_pooled(pooled, address, is_wanted);
        }
        if !self.is_on_demand() {
            return Touch::Foreign;
        }
        // SAFETY: it is.
        unsafe { self.touch_on_demand(address, is_wanted) }
    }

    #[cold]
    #[inline(never)] // Not part of what others pay.
    fn touch_pooled(&self, pooled: &Pooled<Nested>, address: u64, is_wanted: impl Fn() -> bool) -> Touch {
        // The tables have places for more than is RAM.
        if !self.is_from_pool(address) {
            return Touch::Foreign;
        }
        // SAFETY: as for `settle_pooled`.
        let touched = unsafe { pooled.touch::<Block>(address, NestedAttributes::RAM, is_wanted) };
        if touched == Touch::Dry {
            // The guest touches it again until there is one: so it takes its interrupts meanwhile, and stops, pauses and yields its CPU as ever.
            relax();
        }
        touched
    }

    /// The same for who is to know where the block is once it is mapped, because a service of the VM has touched it.
    ///
    /// # Errors
    /// What has become of the touch, if it is not mapped yet.
    pub fn reach(&self, address: u64, is_wanted: impl Fn() -> bool) -> Result<u64, Touch> {
        if let Some(pooled) = self.pooled.as_ref().filter(|_| self.is_from_pool(address)) {
            // SAFETY: as for `settle_pooled`.
            return unsafe { pooled.reach::<Block>(address, NestedAttributes::RAM, is_wanted) };
        }
        let Some(blocks) = &self.blocks else { return Err(Touch::Foreign) };
        let Some(host) = self.place(block(address), BLOCK) else { return Err(Touch::Foreign) };
        // SAFETY: as for `settle`.
        unsafe { demand::reach::<_, Block>(blocks, address, host, NestedAttributes::RAM, is_wanted) }
    }

    /// The same of memory that is known to be mapped on demand.
    ///
    /// # Safety
    /// It [is](Self::is_on_demand).
    #[inline(always)] // Its caller is a light exit.
    pub unsafe fn touch_on_demand(&self, address: u64, is_wanted: impl Fn() -> bool) -> Touch {
        // SAFETY: the caller's promise.
        let blocks = unsafe { self.blocks.as_ref().unwrap_unchecked() };
        for piece in &self.pieces {
            if let Some(host) = piece.place(block(address), BLOCK) {
                // SAFETY: as for `settle`. No barrier: the walker of this CPU sees its stores.
                return unsafe {
                    demand::touch::<_, Block>(blocks, address, host, NestedAttributes::RAM, is_wanted)
                };
            }
        }
        Touch::Foreign
    }

    /// Says whether `size` bytes are RAM of the VM, in one piece.
    #[inline]
    pub fn contains(&self, address: u64, size: u64) -> bool {
        self.place(address, size).is_some()
    }

    /// Where `size` bytes are that are RAM of the VM, in one piece: they may hold anything. Of those from a pool it says nothing.
    #[inline]
    fn place(&self, address: u64, size: u64) -> Option<u64> {
        self.pieces.iter().find_map(|piece| piece.place(address, size))
    }

    /// Returns the physical address of bytes that do not reach into the next page; `None` unless they are RAM of the VM. HOT.
    #[inline(always)] // Four instructions where most RAM is.
    pub fn host_in_page(&self, address: u64) -> Option<u64> {
        let offset = address.wrapping_sub(self.main.guest);
        if offset < self.main.size { Some(self.main.host + offset) } else { self.host_elsewhere(address) }
    }

    #[inline(never)] // Out of the way.
    fn host_elsewhere(&self, address: u64) -> Option<u64> {
        let page = self.host(address & !0xfff, 0x1000)?;
        Some(page + (address & 0xfff))
    }

    /// Says whether it is mapped on demand.
    pub fn is_on_demand(&self) -> bool {
        self.blocks.is_some()
    }

    /// Says whether `address` is in a block of a pool that is mapped.
    pub fn has(&self, address: u64) -> bool {
        let pooled = self.pooled.as_ref().filter(|_| self.is_from_pool(address));
        // SAFETY: as for `settle_pooled`.
        pooled.is_some_and(|pooled| unsafe { pooled.has::<Block>(address, NestedAttributes::RAM) })
    }

    /// Gives the whole blocks of these parts back to the pool, as [`Pooled::give_back`] does; returns how many.
    ///
    /// # Safety
    /// As there.
    pub unsafe fn give_back(&self, parts: &[Range<u64>], invalidate: impl Fn()) -> u64 {
        let Some(pooled) = &self.pooled else { return 0 };
        let pieces = self.pieces.iter().filter(|piece| piece.host == Piece::FROM_POOL);
        let parts = pieces.flat_map(|piece| {
            let of_piece =
                |part: &Range<u64>| part.start.max(piece.guest)..part.end.min(piece.guest + piece.size);
            parts.iter().map(of_piece)
        });
        // SAFETY: the caller's promise; as for `settle_pooled`.
        unsafe { pooled.give_back::<Block>(parts, NestedAttributes::RAM, invalidate) }
    }

    /// Gives all blocks back to the pool that came from there.
    ///
    /// # Safety
    /// As for [`Pooled::release`]: nobody reaches the memory any more.
    pub unsafe fn release(&self) {
        let Some(pooled) = &self.pooled else { return };
        for piece in self.pieces.iter().filter(|piece| piece.host == Piece::FROM_POOL) {
            // SAFETY: the caller's promise; as for `settle_pooled`.
            unsafe {
                pooled.release::<Block>(piece.guest..piece.guest + piece.size, NestedAttributes::RAM, false);
            }
        }
    }

    /// Returns its blocks, if they come from a pool.
    pub fn pooled(&self) -> Option<&Pooled<Nested>> {
        self.pooled.as_deref()
    }

    /// Returns its pieces, in the order of their guest physical addresses.
    pub fn pieces(&self) -> &[Piece] {
        &self.pieces
    }
}

#[cfg(test)]
mod tests {
    use std::slice;

    use super::*;

    #[test]
    fn what_the_hypervisor_reaches_of_memory_on_demand_is_cleared() {
        use turnstile_arch_common::heap::Heap;
        use turnstile_paging::{PageTable, PhysAddr};
        let memory = vec![0xee_u8; 5 * BLOCK as usize].leak();
        let host = (memory.as_ptr() as u64).next_multiple_of(BLOCK);
        let mut table = PageTable::new(Nested::new(true, 48), &mut Heap).unwrap();
        table.map_on_demand(&mut Heap, 0, PhysAddr(host), 4 * BLOCK, NestedAttributes::RAM).unwrap();
        let piece = Piece { guest: 0, size: 4 * BLOCK, host };
        let ram = GuestRam::new([piece].into_iter()).on_demand(table.blocks());
        // SAFETY: memory of the test.
        let byte = |at: u64| unsafe { (at as *const u8).read_volatile() };
        assert_eq!(byte(ram.place(0x1238, 8).unwrap()), 0xee, "as others have left it");
        assert_eq!(byte(ram.host_in_page(0x1238).unwrap()), 0);
        assert_eq!(byte(ram.host(BLOCK + 8, 8).unwrap()), 0);
        assert!(table.translate(&Heap, BLOCK).is_some(), "and nobody clears it again");
        assert_eq!(
            [ram.reach(BLOCK, || true), ram.reach(4 * BLOCK, || true)],
            [Ok(host + BLOCK), Err(Touch::Foreign)]
        );
        // More than a block.
        let long = ram.host(3 * BLOCK - 4, 8).unwrap();
        assert_eq!((byte(long), byte(long + 7)), (0, 0));
        // What was written stays.
        // SAFETY: memory of the test.
        unsafe { (long as *mut u8).write_volatile(7) };
        assert_eq!(byte(ram.host(3 * BLOCK - 4, 1).unwrap()), 7);
        assert_eq!(ram.host(4 * BLOCK, 1), None);
    }

    #[test]
    fn what_comes_from_a_pool_is_where_the_tables_say() {
        use turnstile_arch_common::heap::Heap;
        use turnstile_arch_common::pooled::{Pool, Share};
        use turnstile_paging::{PageTable, PhysAddr};
        let memory = vec![0xee_u8; 4 * BLOCK as usize].leak();
        let host = (memory.as_ptr() as u64).next_multiple_of(BLOCK);
        // The first block of the memory is no block of the pool: the VM's first megabytes are its own.
        let pool: &Pool = Box::leak(Box::new(Pool::new(host + BLOCK, BLOCK, 2)));
        let mut table = PageTable::new(Nested::new(true, 48), &mut Heap).unwrap();
        table.map(&mut Heap, 0, PhysAddr(host), 0xa_0000, NestedAttributes::RAM).unwrap();
        table.map_on_demand(&mut Heap, BLOCK, PhysAddr(0), 3 * BLOCK, NestedAttributes::RAM).unwrap();
        let pieces = [
            Piece { guest: 0, size: 0xa_0000, host },
            Piece { guest: BLOCK, size: 3 * BLOCK, host: Piece::FROM_POOL },
        ];
        let share = Share::new(pool, Box::leak(Box::default()));
        let pooled = Pooled::new(table.blocks(), share, 4 * BLOCK);
        let ram = GuestRam::new(pieces.into_iter()).from_pool(pooled);
        assert_eq!(
            (ram.host(0x1238, 8), ram.host_in_page(0x9_fff8)),
            (Some(host + 0x1238), Some(host + 0x9_fff8))
        );
        assert_eq!((ram.host(0x9_fff9, 8), ram.host(0xa_0000, 1)), (None, None));
        assert!(ram.contains(3 * BLOCK, BLOCK) && !ram.contains(4 * BLOCK, 1) && !ram.contains(BLOCK - 1, 1));
        assert_eq!(pool.free(), 2, "who asks that touches nothing");
        let there = ram.host_in_page(3 * BLOCK + 8).unwrap();
        assert_eq!(there, host + BLOCK + 8);
        // SAFETY: memory of the test.
        assert!((0..BLOCK).all(|at| unsafe { ((host + BLOCK + at) as *const u8).read_volatile() } == 0));
        assert_eq!(ram.touch(3 * BLOCK, || true), Touch::Again, "a vCPU was faster");
        assert_eq!(ram.touch(BLOCK, || false), Touch::Mapped);
        assert_eq!(
            (ram.host(BLOCK, 8), ram.host_to_keep(BLOCK + 16, 8)),
            (Some(host + 2 * BLOCK), Some(host + 2 * BLOCK + 16))
        );
        assert_eq!(
            (ram.touch(2 * BLOCK, || false), ram.reach(2 * BLOCK, || false)),
            (Touch::Dry, Err(Touch::Dry))
        );
        assert_eq!(ram.reach(3 * BLOCK + 8, || true), Ok(host + BLOCK));
        for beside in [0x1000, 0xa_0000, 4 * BLOCK] {
            assert_eq!(ram.touch(beside, || false), Touch::Foreign);
            assert_eq!(ram.reach(beside, || false), Err(Touch::Foreign));
        }
        assert_eq!((ram.host(2 * BLOCK, 8), ram.is_dry(2 * BLOCK, 8)), (None, true));
        assert!(![0x1000, 3 * BLOCK, 4 * BLOCK].into_iter().any(|address| ram.is_dry(address, 8)));
        // SAFETY: nobody uses the tables of the test.
        let given = unsafe { ram.give_back(slice::from_ref(&(0..u64::MAX)), || ()) };
        assert_eq!((given, pool.free()), (1, 1), "what is kept stays");
        assert!(table.translate(&Heap, 0x1000).is_some(), "and what is the VM's own");
        assert!(!ram.is_dry(2 * BLOCK, 8));
        // SAFETY: as above.
        unsafe { ram.release() };
        assert_eq!(pool.free(), 2);
    }

    #[test]
    fn only_what_is_ram_has_an_address() {
        let low = Piece { guest: 0, size: 0xa_0000, host: 0x4000_0000 };
        let high = Piece { guest: 0x10_0000, size: 0x10_0000, host: 0x4010_0000 };
        let ram = GuestRam::new([low, high].into_iter());
        assert_eq!(ram.host(0x1234, 8), Some(0x4000_1234));
        assert_eq!(ram.host(0x9_fff8, 8), Some(0x4009_fff8));
        assert_eq!(ram.host(0x9_fff9, 8), None);
        assert_eq!(ram.host(0xa_0000, 1), None);
        assert_eq!(ram.host(0x10_0000, 0x10_0000), Some(0x4010_0000));
        assert_eq!(ram.host(0x10_0000, 0x10_0001), None);
        assert_eq!(ram.host(u64::MAX, 1), None);
        assert_eq!(ram.host(0x1f_ffff, u64::MAX), None);
        for address in [0, 0x1238, 0x9_fff8, 0xa_0000, 0x10_0000, 0x1f_fff8, 0x20_0000, u64::MAX - 7] {
            assert_eq!(ram.host_in_page(address), ram.host(address, 8), "{address:#x}");
        }
    }
}
