// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Memory of guests that is cleared and mapped when it is first touched: what an exit does for it.
//!
//! A block is mapped whole, and cleared in slices. The CPU that clears it has its entry: it marks the entry as taken, and nobody
//! else clears or maps meanwhile. Between two slices it looks whether it is wanted elsewhere. If so, it notes in the entry how far
//! it has come, gives the entry back and enters the guest, which takes the interrupt and touches the memory again. So no
//! block is waited for with interrupts masked for longer than a slice takes, and none is mapped before all of it is cleared.

use core::sync::atomic::{AtomicU64, Ordering};

use turnstile_paging::{BLOCK, Blocks, Format, PhysAddr, Progress};

use crate::relax;
use crate::share::Share;

/// Bytes that are cleared before the CPU looks whether it is wanted elsewhere.
pub const SLICE: u64 = 256 << 10;

const _: () = assert!(BLOCK.is_multiple_of(SLICE) && BLOCK / SLICE <= 0xffff);

/// The start of the block that contains an address.
#[inline(always)] // One instruction.
pub const fn block(address: u64) -> u64 {
    address & !(BLOCK - 1)
}

/// How a machine reaches a block of guest memory to clear it.
pub trait Clear: Sized {
    /// An entry as the tables have it in memory, and back: walkers may read them in an order of bytes that is not the CPU's.
    #[inline(always)] // Nothing, or one instruction.
    fn in_memory(entry: u64) -> u64 {
        entry
    }

    /// Lets this CPU reach the block at `host`.
    ///
    /// # Safety
    /// The block is memory of guests, and nobody else reads or writes it before [`Clear::close`].
    unsafe fn open(host: u64) -> Self;

    /// Clears `size` bytes of it, `offset` bytes from its beginning: whole pages.
    fn clear(&mut self, offset: u64, size: u64);

    /// Ends that. A guest that finds the block mapped by a later store finds it cleared, however it reads and fetches.
    fn close(self);
}

/// Where the memory of a VM comes from, and when.
#[derive(Clone, Copy, Debug)]
pub enum Backing {
    /// All of it is its own, cleared and mapped before it starts.
    AtStart,
    /// All of it is its own, cleared and mapped when it is first touched.
    OnDemand,
    /// Each block is taken from a pool when it is first touched.
    Pool(Share),
}

/// What has become of a touch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Touch {
    /// The block is mapped, by this touch.
    Mapped,
    /// It is to be touched again: it is mapped by now, another CPU is clearing it, or this one is wanted elsewhere.
    Again,
    /// The pool has no block for it now. It is to be touched again.
    Dry,
    /// The tables have no place for it: it is no memory that is mapped on demand.
    Foreign,
}

/// Clears and maps the block that contains `address` and is at `host`, unless the CPU `is_wanted` elsewhere meanwhile. Nothing has
/// to be invalidated, since what is not mapped is in no TLB.
///
/// # Safety
/// The tables belong to a VM that has not stopped, nothing but this function changes them meanwhile, and they are mapped one
/// to one. All of the block at `host` is that VM's, and is reached by nobody before it is mapped.
#[inline] // Its caller is on an exit's path.
pub unsafe fn touch<F: Format, C: Clear>(
    blocks: &Blocks<F>,
    address: u64,
    host: u64,
    attributes: F::Attributes,
    is_wanted: impl Fn() -> bool,
) -> Touch {
    // SAFETY: the walk yields tables of the tree, and indexes inside them, mapped for as long as the VM has not stopped. All that
    // changes entries meanwhile is atomic, as are the hardware's walks.
    let word = |table: PhysAddr, index| unsafe { AtomicU64::from_ptr((table.0 as *mut u64).add(index)) };
    let read = |table, index| C::in_memory(word(table, index).load(Ordering::Relaxed));
    let Some(slot) = blocks.slot(address, PhysAddr(host), attributes, read) else { return Touch::Foreign };
    // Where it is no entry says: nothing is to be carried over.
    let Some(found) = slot.progress.map(|found| Progress { host: 0, ..found }) else { return Touch::Again };
    let place = word(slot.table, slot.index);
    let taken = C::in_memory(Progress { taken: true, ..found }.entry());
    let free = C::in_memory(found.entry());
    // Acquire: what another CPU has cleared before it gave the entry back.
    if found.taken || place.compare_exchange(free, taken, Ordering::Acquire, Ordering::Relaxed).is_err() {
        relax();
        return Touch::Again;
    }
    // SAFETY: the block is not mapped yet, and the entry is this CPU's.
    let cleared = unsafe { clear::<C>(host, found.cleared, is_wanted) };
    let is_whole = cleared == BLOCK / SLICE;
    let entry = if is_whole { slot.entry } else { Progress { cleared, taken: false, ..found }.entry() };
    // Release: whoever finds the entry finds what was cleared before. A walk is ordered as the loads behind it are.
    place.store(C::in_memory(entry), Ordering::Release);
    if is_whole { Touch::Mapped } else { Touch::Again }
}

/// Clears slices of the block at `host`, whose first ones are cleared already; at least one. Returns how many are.
///
/// # Safety
/// As for [`Clear::open`].
unsafe fn clear<C: Clear>(host: u64, mut cleared: u64, is_wanted: impl Fn() -> bool) -> u64 {
    // SAFETY: the caller's promise.
    let mut window = unsafe { C::open(host) };
    while cleared < BLOCK / SLICE {
        window.clear(cleared * SLICE, SLICE);
        cleared += 1;
        if is_wanted() {
            break;
        }
    }
    window.close();
    cleared
}

/// As [`touch`], for who is to know where the block is once it is mapped, whoever has mapped it.
///
/// # Errors
/// What [`touch`] says, if it is not mapped yet.
///
/// # Safety
/// As for [`touch`].
pub unsafe fn reach<F: Format, C: Clear>(
    blocks: &Blocks<F>,
    address: u64,
    host: u64,
    attributes: F::Attributes,
    is_wanted: impl Fn() -> bool,
) -> Result<u64, Touch> {
    // SAFETY: the caller's promise.
    match unsafe { touch::<F, C>(blocks, address, host, attributes, &is_wanted) } {
        Touch::Mapped => Ok(host),
        Touch::Again if is_mapped::<F, C>(blocks, address, attributes) => Ok(host),
        touched => Err(touched),
    }
}

/// Maps the block that contains `address` and is at `host` in tables of somebody else who reaches that memory, as these `attributes` say.
/// False if these tables have no place for it.
///
/// # Safety
/// The block is cleared. The tables are prepared for it and mapped one to one, and nothing else changes them meanwhile.
pub unsafe fn supply<F: Format, C: Clear>(
    blocks: &Blocks<F>,
    address: u64,
    host: u64,
    attributes: F::Attributes,
) -> bool {
    // SAFETY: as for `touch`, by the caller's promise.
    let word = |table: PhysAddr, index| unsafe { AtomicU64::from_ptr((table.0 as *mut u64).add(index)) };
    let read = |table, index| C::in_memory(word(table, index).load(Ordering::Relaxed));
    let Some(slot) = blocks.slot(address, PhysAddr(block(host)), attributes, read) else { return false };
    // Release: as in `touch`.
    word(slot.table, slot.index).store(C::in_memory(slot.entry), Ordering::Release);
    true
}

/// Clears and maps the block before this returns, as [`touch`] does, unless it is mapped: for memory that the hypervisor itself is
/// about to reach. False if it is no memory that is mapped on demand.
///
/// # Safety
/// As for [`touch`].
unsafe fn settle<F: Format, C: Clear>(
    blocks: &Blocks<F>,
    address: u64,
    host: u64,
    attributes: F::Attributes,
) -> bool {
    loop {
        // Who has taken the entry waits for nobody, and gives it back.
        // SAFETY: the caller's promise.
        match unsafe { reach::<F, C>(blocks, address, host, attributes, || false) } {
            Ok(_) => return true,
            Err(Touch::Foreign) => return false,
            Err(_) => {}
        }
    }
}

/// As [`touch`], of memory whose blocks come from a pool, by `take`, when they are touched first. Where the block is, its entry says from then on.
///
/// # Safety
/// As for [`touch`]. The pool's blocks are memory of guests.
pub unsafe fn touch_pooled<F: Format, C: Clear>(
    blocks: &Blocks<F>,
    address: u64,
    take: impl FnOnce() -> Option<u64>,
    attributes: F::Attributes,
    is_wanted: impl Fn() -> bool,
) -> Touch {
    // SAFETY: as for `touch`.
    let word = |table: PhysAddr, index| unsafe { AtomicU64::from_ptr((table.0 as *mut u64).add(index)) };
    let read = |table, index| C::in_memory(word(table, index).load(Ordering::Relaxed));
    let Some(slot) = blocks.slot(address, PhysAddr(0), attributes, read) else { return Touch::Foreign };
    let Some(found) = slot.progress else { return Touch::Again };
    let place = word(slot.table, slot.index);
    let taken = C::in_memory(Progress { taken: true, ..found }.entry());
    let free = C::in_memory(found.entry());
    // Acquire: as in `touch`.
    if found.taken || place.compare_exchange(free, taken, Ordering::Acquire, Ordering::Relaxed).is_err() {
        relax();
        return Touch::Again;
    }
    let host = if found.host == 0 { take() } else { Some(found.host) };
    let Some(host) = host else {
        // Relaxed: nothing was done.
        place.store(free, Ordering::Relaxed);
        return Touch::Dry;
    };
    // SAFETY: it was in the pool, which has given it to nobody else, and the entry is this CPU's.
    let cleared = unsafe { clear::<C>(host, found.cleared, is_wanted) };
    let mapped = blocks.leaf(PhysAddr(host), attributes).filter(|_| cleared == BLOCK / SLICE);
    let entry = mapped.unwrap_or(Progress { cleared, taken: false, host }.entry());
    // Release: as in `touch`.
    place.store(C::in_memory(entry), Ordering::Release);
    if mapped.is_some() { Touch::Mapped } else { Touch::Again }
}

/// Takes the block that contains `address` out of the tables, and returns where it is. Nobody maps anything there before [`vacate`]. The caller
/// invalidates what TLBs have of it.
///
/// # Safety
/// As for [`touch`], but that nobody else unmaps it meanwhile.
pub unsafe fn take_away<F: Format, C: Clear>(
    blocks: &Blocks<F>,
    address: u64,
    attributes: F::Attributes,
) -> Option<u64> {
    // SAFETY: as for `touch`.
    let word = |table: PhysAddr, index| unsafe { AtomicU64::from_ptr((table.0 as *mut u64).add(index)) };
    let read = |table, index| C::in_memory(word(table, index).load(Ordering::Relaxed));
    let slot = blocks.slot(address, PhysAddr(0), attributes, read)?;
    let host = slot.mapped?.0;
    let taken = Progress { taken: true, host, cleared: 0 };
    // Relaxed: what orders this before the block's next use is the invalidation.
    word(slot.table, slot.index).store(C::in_memory(taken.entry()), Ordering::Relaxed);
    Some(host)
}

/// Says that nobody reaches the block any more that [`take_away`] has returned: the next touch takes another one. The caller gives it back to the pool.
///
/// # Safety
/// As for [`take_away`], and after it.
pub unsafe fn vacate<F: Format, C: Clear>(blocks: &Blocks<F>, address: u64, attributes: F::Attributes) {
    // SAFETY: as for `touch`.
    let word = |table: PhysAddr, index| unsafe { AtomicU64::from_ptr((table.0 as *mut u64).add(index)) };
    let read = |table, index| C::in_memory(word(table, index).load(Ordering::Relaxed));
    if let Some(slot) = blocks.slot(address, PhysAddr(0), attributes, read) {
        word(slot.table, slot.index).store(C::in_memory(Progress::default().entry()), Ordering::Release);
    }
}

/// Returns where the block that contains `address` is, mapped or not; `None` if it has none.
///
/// # Safety
/// As for [`touch`].
pub unsafe fn place<F: Format, C: Clear>(
    blocks: &Blocks<F>,
    address: u64,
    attributes: F::Attributes,
) -> Option<u64> {
    // SAFETY: as for `touch`. Acquire: what was cleared before it was mapped.
    let word = |table: PhysAddr, index| unsafe { AtomicU64::from_ptr((table.0 as *mut u64).add(index)) };
    let read = |table, index| C::in_memory(word(table, index).load(Ordering::Acquire));
    let slot = blocks.slot(address, PhysAddr(0), attributes, read)?;
    let unmapped = slot.progress.map(|progress| progress.host).filter(|host| *host != 0);
    slot.mapped.map(|host| host.0).or(unmapped)
}

/// Returns where the block that contains `address` is, if it is mapped.
///
/// # Safety
/// As for [`touch`].
pub unsafe fn mapped<F: Format, C: Clear>(
    blocks: &Blocks<F>,
    address: u64,
    attributes: F::Attributes,
) -> Option<u64> {
    // SAFETY: as for `place`.
    let word = |table: PhysAddr, index| unsafe { AtomicU64::from_ptr((table.0 as *mut u64).add(index)) };
    let read = |table, index| C::in_memory(word(table, index).load(Ordering::Acquire));
    Some(blocks.slot(address, PhysAddr(0), attributes, read)?.mapped?.0)
}

/// [`settle`] for all blocks that `size` bytes from `address` on are in. `place` says where a block is; one that has no place is left.
///
/// # Safety
/// As for [`touch`], wherever `place` says that a block is.
pub unsafe fn settle_all<F: Format, C: Clear>(
    blocks: &Blocks<F>,
    address: u64,
    size: u64,
    attributes: F::Attributes,
    place: impl Fn(u64) -> Option<u64>,
) {
    let mut next = block(address);
    while next < address + size {
        if let Some(host) = place(next) {
            // SAFETY: the caller's promise.
            unsafe { settle::<F, C>(blocks, next, host, attributes) };
        }
        next += BLOCK;
    }
}

/// Whether a block is mapped, and so cleared.
fn is_mapped<F: Format, C: Clear>(blocks: &Blocks<F>, address: u64, attributes: F::Attributes) -> bool {
    let read = |table: PhysAddr, index| {
        // SAFETY: as for `touch`, whose caller's promise this is. Acquire: what was cleared before it was mapped.
        C::in_memory(unsafe { AtomicU64::from_ptr((table.0 as *mut u64).add(index)).load(Ordering::Acquire) })
    };
    blocks.slot(address, PhysAddr(0), attributes, read).is_some_and(|slot| slot.progress.is_none())
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::sync::Barrier;

    use turnstile_paging::{Nested, NestedAttributes, PageTable};
    use turnstile_pool::Pool;

    use super::*;
    use crate::heap::Heap;

    /// A machine that reaches all memory.
    struct Plain(u64);

    impl Clear for Plain {
        unsafe fn open(host: u64) -> Self {
            Self(host)
        }

        fn clear(&mut self, offset: u64, size: u64) {
            // SAFETY: memory of the test.
            unsafe { core::ptr::write_bytes((self.0 + offset) as *mut u8, 0, size as usize) };
        }

        fn close(self) {}
    }

    const RAM: NestedAttributes = NestedAttributes::RAM;

    /// Tables of two blocks, and the memory behind them, in which somebody has left something.
    fn machine() -> (Blocks<Nested>, u64) {
        let memory = vec![0xee_u8; 3 * BLOCK as usize].leak();
        let host = (memory.as_ptr() as u64).next_multiple_of(BLOCK);
        let mut table = PageTable::new(Nested::new(true, 48), &mut Heap).unwrap();
        table.map_on_demand(&mut Heap, 0, PhysAddr(host), 2 * BLOCK, RAM).unwrap();
        (table.blocks(), host)
    }

    /// What is at an offset in the memory.
    fn byte(host: u64, offset: u64) -> u8 {
        // SAFETY: memory of the test.
        unsafe { ((host + offset) as *const u8).read_volatile() }
    }

    fn touched(machine: &(Blocks<Nested>, u64), is_wanted: impl Fn() -> bool) -> Touch {
        // SAFETY: tables and memory of the test.
        unsafe { touch::<_, Plain>(&machine.0, 0x1234, machine.1, RAM, is_wanted) }
    }

    #[test]
    fn a_block_is_cleared_whole_before_it_is_mapped() {
        let machine = machine();
        assert_eq!(touched(&machine, || false), Touch::Mapped);
        assert!((0..BLOCK).all(|offset| byte(machine.1, offset) == 0));
        assert_eq!(byte(machine.1, BLOCK), 0xee, "and no other");
        assert_eq!(touched(&machine, || panic!("nothing is cleared")), Touch::Again);
        // SAFETY: as above.
        let outside = unsafe { touch::<_, Plain>(&machine.0, 4 << 30, machine.1, RAM, || false) };
        assert_eq!(outside, Touch::Foreign);
    }

    #[test]
    fn a_cpu_that_is_wanted_elsewhere_goes_there_after_a_slice() {
        let machine = machine();
        for slice in 1..BLOCK / SLICE {
            assert_eq!(touched(&machine, || true), Touch::Again);
            assert!(!is_mapped::<_, Plain>(&machine.0, 0, RAM), "{slice}");
            assert_eq!(byte(machine.1, slice * SLICE - 1), 0);
            assert_eq!(byte(machine.1, slice * SLICE), 0xee, "no further");
        }
        assert_eq!(touched(&machine, || true), Touch::Mapped, "it ends all the same");
    }

    #[test]
    fn a_block_that_another_cpu_clears_is_left_alone() {
        let machine = machine();
        let other = Cell::new(None);
        let wanted = || {
            other.set(Some(touched(&machine, || panic!("two at once"))));
            false
        };
        assert_eq!(touched(&machine, wanted), Touch::Mapped);
        assert_eq!(other.get(), Some(Touch::Again));
    }

    #[test]
    fn what_the_hypervisor_reaches_is_cleared_first() {
        let machine = machine();
        assert_eq!(touched(&machine, || true), Touch::Again, "one slice of it is");
        // SAFETY: as above.
        let settled = |address| unsafe { settle::<_, Plain>(&machine.0, address, machine.1, RAM) };
        assert!(settled(0x1000));
        assert!((0..BLOCK).all(|offset| byte(machine.1, offset) == 0));
        assert!(settled(0x1000), "once");
        assert!(!settled(4 << 30));
    }

    #[test]
    fn who_reaches_a_block_knows_when_it_is_mapped() {
        let machine = machine();
        // SAFETY: as above.
        let reached =
            |is_wanted: bool| unsafe { reach::<_, Plain>(&machine.0, 0x1234, machine.1, RAM, || is_wanted) };
        assert_eq!(reached(true), Err(Touch::Again), "one slice of it is cleared");
        assert_eq!(reached(false), Ok(machine.1));
        assert_eq!(reached(true), Ok(machine.1), "and stays so");
    }

    #[test]
    fn others_get_a_block_in_their_own_tables() {
        let mut table = PageTable::new(Nested::new(true, 48), &mut Heap).unwrap();
        let there = (1 << 30) + BLOCK;
        table
            .map_on_demand(&mut Heap, there, PhysAddr(4 * BLOCK), 2 * BLOCK, NestedAttributes::DATA)
            .unwrap();
        // SAFETY: tables of the test, of which nobody uses what they map.
        let supplied = |address, host| unsafe {
            supply::<_, Plain>(&table.blocks(), address, host, NestedAttributes::DATA)
        };
        assert!(supplied(there + BLOCK + 0x1234, 5 * BLOCK + 0x1234));
        let found = table.translate(&Heap, there + BLOCK + 8).unwrap();
        assert_eq!((found.address.0, found.size), (5 * BLOCK + 8, BLOCK));
        assert_eq!(found.attributes, NestedAttributes::DATA);
        assert!(table.translate(&Heap, there).is_none(), "and no other");
        assert!(!supplied(4 << 30, 0), "where nothing is prepared");
    }

    /// Tables of eight blocks of a VM, a pool of so many blocks in which somebody has left something, and where that begins.
    fn pooled(count: usize) -> (Blocks<Nested>, Pool, u64) {
        let memory = vec![0xee_u8; (count + 1) * BLOCK as usize].leak();
        let host = (memory.as_ptr() as u64).next_multiple_of(BLOCK);
        let mut table = PageTable::new(Nested::new(true, 48), &mut Heap).unwrap();
        table.map_on_demand(&mut Heap, 0, PhysAddr(0), 8 * BLOCK, RAM).unwrap();
        (table.blocks(), Pool::new(host, BLOCK, count), host)
    }

    /// Touches a block of that.
    fn touched_there((blocks, pool, _): &(Blocks<Nested>, Pool, u64), number: u64, is_wanted: bool) -> Touch {
        // SAFETY: tables and memory of the test.
        unsafe {
            touch_pooled::<_, Plain>(blocks, number * BLOCK + 0x1234, || pool.take(), RAM, || is_wanted)
        }
    }

    fn place_of((blocks, ..): &(Blocks<Nested>, Pool, u64), number: u64) -> Option<u64> {
        // SAFETY: as above.
        unsafe { place::<_, Plain>(blocks, number * BLOCK + 5, RAM) }
    }

    #[test]
    fn blocks_come_from_the_pool_and_go_back() {
        let machine = pooled(2);
        assert_eq!(place_of(&machine, 3), None);
        assert_eq!(touched_there(&machine, 3, true), Touch::Again, "a slice of it is cleared");
        let host = place_of(&machine, 3).unwrap();
        assert_eq!((byte(host, 0), byte(host, SLICE)), (0, 0xee));
        assert_eq!((touched_there(&machine, 3, false), place_of(&machine, 3)), (Touch::Mapped, Some(host)));
        assert!((0..BLOCK).all(|offset| byte(host, offset) == 0));
        assert_eq!(touched_there(&machine, 3, false), Touch::Again, "it is mapped");
        assert_eq!(touched_there(&machine, 1, false), Touch::Mapped);
        assert_eq!((touched_there(&machine, 0, false), place_of(&machine, 0)), (Touch::Dry, None));
        assert_eq!(touched_there(&machine, 9 << 10, false), Touch::Foreign);
        // SAFETY: memory of the test.
        unsafe { (host as *mut u8).write_volatile(7) };
        // SAFETY: nobody else uses the tables.
        let away = |number| unsafe { take_away::<_, Plain>(&machine.0, number * BLOCK + 8, RAM) };
        assert_eq!((away(3), away(3), away(0), away(9 << 10)), (Some(host), None, None, None));
        assert_eq!(touched_there(&machine, 3, false), Touch::Again, "while it goes, nobody gets another one");
        // SAFETY: as above.
        unsafe { vacate::<_, Plain>(&machine.0, 3 * BLOCK, RAM) };
        assert_eq!((place_of(&machine, 3), touched_there(&machine, 3, false)), (None, Touch::Dry));
        assert!(machine.1.give(host));
        assert_eq!((touched_there(&machine, 0, false), place_of(&machine, 0)), (Touch::Mapped, Some(host)));
        assert_eq!(byte(host, 0), 0, "what was there is gone");
    }

    /// CPUs that touch the same blocks at once, of which there are fewer: each block is mapped once, and none is lost.
    #[test]
    fn cpus_that_share_a_pool_have_blocks_of_their_own() {
        for round in 0..20 {
            let machine = pooled(5);
            let start = Barrier::new(4);
            std::thread::scope(|scope| {
                for cpu in 0..4 {
                    let (machine, start) = (&machine, &start);
                    scope.spawn(move || {
                        start.wait();
                        for step in 0..64 {
                            touched_there(machine, (step + cpu) % 8, (round + step) % 3 == 0);
                        }
                    });
                }
            });
            let places: Vec<u64> = (0..8).filter_map(|number| place_of(&machine, number)).collect();
            let distinct: std::collections::BTreeSet<_> = places.iter().collect();
            assert_eq!((places.len(), distinct.len(), machine.1.free()), (5, 5, 0));
        }
    }

    /// CPUs that touch a block at once, some of them interrupted: each writes a byte as soon as the block is mapped, and nobody
    /// clears it any more.
    #[test]
    fn cpus_that_touch_a_block_at_once_keep_what_they_write() {
        const CPUS: u64 = 4;
        for round in 0..40 {
            let machine = machine();
            let start = Barrier::new(CPUS as usize);
            std::thread::scope(|scope| {
                for cpu in 0..CPUS {
                    let (machine, start) = (&machine, &start);
                    scope.spawn(move || {
                        start.wait();
                        while !is_mapped::<_, Plain>(&machine.0, 0, RAM) {
                            touched(machine, || (round + cpu) % 3 == 0);
                        }
                        for slice in 0..BLOCK / SLICE {
                            let own = slice * SLICE + cpu;
                            assert_eq!(byte(machine.1, own), 0, "uncleared memory is seen");
                            // SAFETY: memory of the test; each CPU has bytes of its own.
                            unsafe { ((machine.1 + own) as *mut u8).write_volatile(0xaa) };
                        }
                    });
                }
            });
            for own in (0..BLOCK / SLICE).flat_map(|slice| slice * SLICE..slice * SLICE + CPUS) {
                assert_eq!(byte(machine.1, own), 0xaa, "it was cleared once more");
            }
        }
    }
}
