// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where the RAM of a VM is in the machine's.

use alloc::sync::Arc;
use core::ops::Range;

use turnstile_arch_common::demand::{self, Touch, block};
use turnstile_arch_common::pooled::{Missing, Pooled};
use turnstile_arch_common::relax;
use turnstile_paging::{BLOCK, Blocks, Partition, PartitionAttributes};

use super::user::Block;

/// The RAM of a VM: guest real addresses from zero up, in one piece.
///
/// Memory that is mapped on demand holds, until it is touched, what another VM has left: [`GuestRam::host`], by which alone the
/// hypervisor reaches it, clears it first. So it is with memory that comes from a pool, where only the tables say where a block is.
#[derive(Clone, Debug, Default)]
pub struct GuestRam {
    /// First physical address; zero if its blocks come from a pool.
    base: u64,
    /// Bytes.
    size: u64,
    /// The bytes that the hypervisor may reach as they are: all, or none if memory is mapped when it is touched.
    settled: u64,
    /// What maps it, if it is mapped on demand.
    blocks: Option<Blocks<Partition>>,
    /// Its blocks, if they come from a pool.
    pooled: Option<Arc<Pooled<Partition>>>,
}

/// No register says whether a doorbell waits, so a block is cleared at once: it takes DCBZ a fourth of what others need.
const NOT_WANTED: fn() -> bool = || false;

impl PartialEq for GuestRam {
    fn eq(&self, other: &Self) -> bool {
        match (&self.pooled, &other.pooled) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (None, None) => (self.base, self.size) == (other.base, other.size),
            _ => false,
        }
    }
}

impl GuestRam {
    /// Makes the RAM of `size` bytes that is at the physical address `base`.
    pub const fn new(base: u64, size: u64) -> Self {
        Self { base, size, settled: size, blocks: None, pooled: None }
    }

    /// The same, mapped on demand by these tables.
    pub fn on_demand(self, blocks: Blocks<Partition>) -> Self {
        Self { settled: 0, blocks: Some(blocks), ..self }
    }

    /// Makes the RAM of `size` bytes whose blocks come from a pool.
    pub fn from_pool(size: u64, pooled: Pooled<Partition>) -> Self {
        Self { base: 0, size, settled: 0, blocks: None, pooled: Some(Arc::new(pooled)) }
    }

    /// Says whether it is mapped on demand: where it is is known before, unlike that of memory from a pool.
    pub const fn is_on_demand(&self) -> bool {
        self.blocks.is_some()
    }

    /// Says whether it is mapped when it is touched, on demand or from a pool.
    #[inline(always)] // A load and a comparison.
    pub const fn comes_later(&self) -> bool {
        self.settled == 0
    }

    /// Returns the physical address of `size` bytes at a guest real address, for the hypervisor or the interrupt controller to read and
    /// write; `None` unless all of them are RAM of the VM, or if a pool has no block for them ([`GuestRam::is_dry`]), or they are in several of
    /// its blocks.
    #[inline]
    pub fn host(&self, address: u64, size: u64) -> Option<u64> {
        let host = self.place(address, size)?;
        if self.comes_later() { self.settled_at(address, size, host) } else { Some(host) }
    }

    /// As [`GuestRam::host`], of bytes whose address is kept beyond an exit: as long as the VM has its memory.
    pub fn host_to_keep(&self, address: u64, size: u64) -> Option<u64> {
        self.pin(address, size);
        self.host(address, size)
    }

    /// Keeps bytes from being given back that the hypervisor reaches at any time.
    pub fn pin(&self, address: u64, size: u64) {
        if let Some(pooled) = &self.pooled {
            pooled.pin(address, size);
        }
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
    fn settled_at(&self, address: u64, size: u64, host: u64) -> Option<u64> {
        if let Some(pooled) = &self.pooled {
            return self.settle_pooled(pooled, address, size).ok();
        }
        if let Some(blocks) = &self.blocks {
            self.settle(blocks, address, size);
        }
        Some(host)
    }

    fn settle_pooled(&self, pooled: &Pooled<Partition>, address: u64, size: u64) -> Result<u64, Missing> {
        // SAFETY: the tables of a VM that has not stopped, which nothing else changes while a vCPU of it is in an exit; the hypervisor
        // reaches all memory, and the pool is memory of guests.
        unsafe { pooled.host::<Block>(address, size, PartitionAttributes::RAM) }
    }

    /// Clears and maps what of `size` bytes is mapped on demand, and is not mapped yet.
    fn settle(&self, blocks: &Blocks<Partition>, address: u64, size: u64) {
        let place = |next| self.place(next, BLOCK);
        // SAFETY: the tables of a VM that has not stopped, which nothing else changes; the hypervisor reaches all memory. The blocks
        // are RAM of the VM, which only this type's functions give away.
        unsafe { demand::settle_all::<_, Block>(blocks, address, size, PartitionAttributes::RAM, place) };
    }

    /// Clears and maps the block that a vCPU has touched. A walk that misses the entry faults again.
    #[inline] // Once per exit that maps a block.
    pub fn touch(&self, address: u64) -> Touch {
        self.with_block(address, |blocks, host| {
            // SAFETY: as for `settle`.
            unsafe { demand::touch::<_, Block>(blocks, address, host, PartitionAttributes::RAM, NOT_WANTED) }
        })
    }

    /// The same for who is to know where the block is once it is mapped, because a service of the VM has touched it.
    ///
    /// # Errors
    /// What has become of the touch, if it is not mapped yet.
    pub fn reach(&self, address: u64) -> Result<u64, Touch> {
        if let Some(pooled) = self.pooled.as_ref().filter(|_| address < self.size) {
            // SAFETY: as for `settle_pooled`.
            return unsafe { pooled.reach::<Block>(address, PartitionAttributes::RAM, NOT_WANTED) };
        }
        let Some(blocks) = &self.blocks else { return Err(Touch::Foreign) };
        let Some(host) = self.place(block(address), BLOCK) else { return Err(Touch::Foreign) };
        // SAFETY: as for `settle`.
        unsafe { demand::reach::<_, Block>(blocks, address, host, PartitionAttributes::RAM, NOT_WANTED) }
    }

    /// Does something with the tables, and the physical address of the block that contains `address`.
    #[inline(always)] // Its callers are on an exit's path.
    fn with_block(&self, address: u64, act: impl FnOnce(&Blocks<Partition>, u64) -> Touch) -> Touch {
        let Some(blocks) = &self.blocks else { return self.touch_pooled(address) };
        let Some(host) = self.place(block(address), BLOCK) else { return Touch::Foreign };
        act(blocks, host)
    }

    /// The same of memory from a pool.
    #[cold]
    #[inline(never)] // Not part of what others pay.
    fn touch_pooled(&self, address: u64) -> Touch {
        let Some(pooled) = self.pooled.as_ref().filter(|_| address < self.size) else {
            return Touch::Foreign;
        };
        // SAFETY: as for `settle_pooled`.
        let touched = unsafe { pooled.touch::<Block>(address, PartitionAttributes::RAM, NOT_WANTED) };
        if touched == Touch::Dry {
            // The guest touches it again until there is one: so it takes its interrupts meanwhile, and stops, pauses and yields its CPU as ever.
            relax();
        }
        touched
    }

    /// Says whether `address` is in a block of a pool that is mapped.
    pub fn has(&self, address: u64) -> bool {
        let pooled = self.pooled.as_ref().filter(|_| address < self.size);
        // SAFETY: as for `settle_pooled`.
        pooled.is_some_and(|pooled| unsafe { pooled.has::<Block>(address, PartitionAttributes::RAM) })
    }

    /// Gives the whole blocks of these parts back to the pool, as [`Pooled::give_back`] does; returns how many.
    ///
    /// # Safety
    /// As there.
    pub unsafe fn give_back(&self, parts: &[Range<u64>], invalidate: impl Fn()) -> u64 {
        let Some(pooled) = &self.pooled else { return 0 };
        let parts = parts.iter().map(|part| part.start..part.end.min(self.size));
        // SAFETY: the caller's promise; as for `settle_pooled`.
        unsafe { pooled.give_back::<Block>(parts, PartitionAttributes::RAM, invalidate) }
    }

    /// Gives all blocks back to the pool that came from there, but those that are pinned if `keeps_pinned`.
    ///
    /// # Safety
    /// As for [`Pooled::release`]: nobody reaches the memory any more, but what is pinned if `keeps_pinned`.
    pub unsafe fn release(&self, keeps_pinned: bool) {
        let Some(pooled) = &self.pooled else { return };
        // SAFETY: the caller's promise; as for `settle_pooled`.
        unsafe { pooled.release::<Block>(0..self.size, PartitionAttributes::RAM, keeps_pinned) };
    }

    /// Returns how many bytes of it nobody else may get once it is kept ([`super::kept`]).
    pub fn kept_bytes(&self) -> u64 {
        self.pooled.as_ref().map_or(self.size, |pooled| pooled.pinned_bytes())
    }

    /// Returns its blocks, if they come from a pool.
    pub fn pooled(&self) -> Option<&Pooled<Partition>> {
        self.pooled.as_deref()
    }

    /// Where `size` bytes are that are RAM of the VM: they may hold anything. Of those from a pool it says nothing.
    #[inline]
    const fn place(&self, address: u64, size: u64) -> Option<u64> {
        if address < self.size && size <= self.size - address { Some(self.base + address) } else { None }
    }

    /// As [`GuestRam::host`], of an aligned doubleword, or less: RAM consists of whole pages, so where it begins says all.
    #[inline]
    pub fn host_word(&self, address: u64) -> Option<u64> {
        if address < self.settled { Some(self.base + address) } else { self.host_of_unsettled(address) }
    }

    /// The same, if it takes nothing more to reach that.
    #[inline(always)] // Three instructions.
    pub const fn settled_word(&self, address: u64) -> Option<u64> {
        if address < self.settled { Some(self.base + address) } else { None }
    }

    /// [`GuestRam::host_word`] of what is mapped on demand, or no RAM.
    #[cold]
    #[inline(never)] // Not part of what others pay.
    fn host_of_unsettled(&self, address: u64) -> Option<u64> {
        self.host(address, 1)
    }

    /// Returns how many bytes it has.
    pub const fn size(&self) -> u64 {
        self.size
    }

    /// Returns its first physical address.
    pub const fn base(&self) -> u64 {
        self.base
    }
}

#[cfg(test)]
mod tests {
    use std::slice;

    use super::super::tests::{BigEndian, Machine, pooled};
    use super::*;

    #[test]
    fn what_comes_from_a_pool_is_where_the_tables_say() {
        let Machine { ram, pool, host, .. } = pooled(2, 4);
        let there = ram.host_word(3 * BLOCK + 8).unwrap();
        assert_eq!((there, ram.settled_word(3 * BLOCK + 8)), (host + 8, None));
        // SAFETY: memory of the test.
        assert!((0..BLOCK).all(|at| unsafe { ((host + at) as *const u8).read_volatile() } == 0));
        assert_eq!(
            [ram.touch(3 * BLOCK), ram.touch(BLOCK), ram.touch(2 * BLOCK), ram.touch(4 * BLOCK)],
            [Touch::Again, Touch::Mapped, Touch::Dry, Touch::Foreign]
        );
        assert_eq!(
            [3, 2, 4].map(|number| ram.reach(number * BLOCK)),
            [Ok(host), Err(Touch::Dry), Err(Touch::Foreign)]
        );
        assert_eq!(ram.host_to_keep(BLOCK + 16, 8), Some(host + BLOCK + 16));
        assert_eq!((ram.host(2 * BLOCK, 8), ram.is_dry(2 * BLOCK, 8)), (None, true));
        assert_eq!(
            (ram.host(4 * BLOCK, 1), ram.is_dry(4 * BLOCK, 1), ram.is_dry(BLOCK, 8)),
            (None, false, false)
        );
        // SAFETY: nobody uses the tables of the test.
        let given = unsafe { ram.give_back(slice::from_ref(&(0..u64::MAX)), || ()) };
        assert_eq!((given, pool.free(), ram.kept_bytes()), (1, 1, BLOCK), "what is kept stays");
        // SAFETY: as above.
        unsafe { ram.release(true) };
        assert_eq!(pool.free(), 1);
        // SAFETY: as above.
        unsafe { ram.release(false) };
        assert_eq!(pool.free(), 2);
        let other = pooled(2, 4).ram;
        assert!(ram == ram.clone() && ram != other && ram != GuestRam::new(0, 4 * BLOCK));
    }

    #[test]
    fn what_begins_in_a_page_of_ram_is_in_it() {
        let ram = GuestRam::new(0x4000_0000, 0x10_0000);
        assert_eq!(ram.host_word(0xf_fff8), Some(0x400f_fff8));
        assert_eq!(ram.host_word(0x10_0000), None);
        assert_eq!(ram.host_word(u64::MAX - 7), None);
    }

    #[test]
    fn what_the_hypervisor_reaches_of_memory_on_demand_is_cleared() {
        use turnstile_paging::{PageTable, PhysAddr};
        let memory = vec![0xee_u8; 4 * BLOCK as usize].leak();
        let host = (memory.as_ptr() as u64).next_multiple_of(BLOCK);
        let mut table = PageTable::new(Partition, &mut BigEndian).unwrap();
        table.map_on_demand(&mut BigEndian, 0, PhysAddr(host), 3 * BLOCK, PartitionAttributes::RAM).unwrap();
        let ram = GuestRam::new(host, 3 * BLOCK).on_demand(table.blocks());
        // SAFETY: memory of the test.
        let byte = |at: u64| unsafe { (at as *const u8).read_volatile() };
        assert_eq!(byte(ram.place(0x1238, 8).unwrap()), 0xee, "as others have left it");
        let word = ram.host_word(BLOCK - 8).unwrap();
        assert_eq!((byte(word), byte(word + 7)), (0, 0));
        let long = ram.host(BLOCK - 4, 8).unwrap();
        assert_eq!((byte(long), byte(long + 7)), (0, 0));
        assert!(table.translate(&BigEndian, BLOCK).is_some(), "and nobody clears it again");
        // SAFETY: memory of the test.
        unsafe { (long as *mut u8).write_volatile(7) };
        assert_eq!(byte(ram.host(BLOCK - 4, 1).unwrap()), 7);
        assert_eq!((ram.reach(BLOCK), ram.reach(3 * BLOCK)), (Ok(host + BLOCK), Err(Touch::Foreign)));
        assert_eq!((ram.touch(BLOCK), ram.touch(2 * BLOCK + 5)), (Touch::Again, Touch::Mapped));
        assert!((2 * BLOCK..3 * BLOCK).all(|offset| byte(host + offset) == 0));
        assert_eq!(table.translate(&BigEndian, 2 * BLOCK).unwrap().address, PhysAddr(host + 2 * BLOCK));
        assert_eq!((ram.host(3 * BLOCK, 1), ram.touch(3 * BLOCK)), (None, Touch::Foreign));
    }

    #[test]
    fn only_what_is_ram_has_an_address() {
        let ram = GuestRam::new(0x4000_0000, 0x10_0000);
        assert_eq!(ram.host(0x1234, 8), Some(0x4000_1234));
        assert_eq!(ram.host(0xf_fff8, 8), Some(0x400f_fff8));
        assert_eq!(ram.host(0xf_fff9, 8), None);
        assert_eq!(ram.host(0x10_0000, 0), None);
        assert_eq!(ram.host(u64::MAX, 1), None);
        assert_eq!(ram.host(0, u64::MAX), None);
        assert_eq!(GuestRam::default().host(0, 1), None);
    }
}
