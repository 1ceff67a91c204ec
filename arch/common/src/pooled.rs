// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The memory of a VM whose blocks come from a pool: where they are, which of them have to stay, and how they go back.
//!
//! The VM's tables alone say where a block is, and which address the hypervisor reaches it by. Who keeps such an address beyond an exit pins the
//! block first ([`Pooled::pin`]): it stays as long as the VM has its memory.

use alloc::boxed::Box;
use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering};

use turnstile_paging::{BLOCK, Blocks, Format};
use turnstile_pool::BATCH;
pub use turnstile_pool::Pool;

use crate::demand::{self, Clear, Touch, block};
pub use crate::share::{Share, Taken};

/// Why there is no address of a VM's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// The pool has no block for it now.
    Dry,
    /// It is no memory of a pool, or its blocks are not one behind the other.
    Foreign,
}

/// The part of a VM's memory that comes from a pool.
#[derive(Debug)]
pub struct Pooled<F> {
    blocks: Blocks<F>,
    share: Share,
    /// A bit for each block of guest addresses that stays.
    pinned: Box<[AtomicU64]>,
}

/// The parts of `size` bytes from `address` on that are in one block each: addresses and sizes.
pub fn parts(address: u64, size: u64) -> impl Iterator<Item = (u64, u64)> {
    let end = address.saturating_add(size);
    let mut next = address;
    core::iter::from_fn(move || {
        let start = next;
        next = block(start).saturating_add(BLOCK).min(end);
        (start < next).then(|| (start, next - start))
    })
}

/// Guest physical addresses of blocks.
type Batch = heapless::Vec<u64, BATCH>;

/// The addresses of the whole blocks in a part.
fn whole(part: Range<u64>) -> impl Iterator<Item = u64> {
    let first = part.start.checked_next_multiple_of(BLOCK).unwrap_or(part.end);
    (first..block(part.end)).step_by(BLOCK as usize)
}

impl<F: Format> Pooled<F> {
    /// Makes it of the tables that are prepared for it, below the guest address `end`.
    pub fn new(blocks: Blocks<F>, share: Share, end: u64) -> Self {
        let words = end.div_ceil(BLOCK).div_ceil(u64::BITS.into());
        Self { blocks, share, pinned: (0..words).map(|_| AtomicU64::new(0)).collect() }
    }

    /// Clears and maps the block that a vCPU has touched, or some of it if its CPU `is_wanted` elsewhere meanwhile.
    ///
    /// # Safety
    /// As for [`demand::touch_pooled`]: of tables and pool.
    pub unsafe fn touch<C: Clear>(
        &self,
        address: u64,
        attributes: F::Attributes,
        is_wanted: impl Fn() -> bool,
    ) -> Touch {
        let take = || self.share.take();
        // SAFETY: the caller's promise.
        unsafe { demand::touch_pooled::<F, C>(&self.blocks, address, take, attributes, is_wanted) }
    }

    /// As [`Pooled::touch`], for who is to know where the block is, once it is mapped, whoever has mapped it.
    ///
    /// # Errors
    /// What [`Pooled::touch`] says, if it is not mapped yet.
    ///
    /// # Safety
    /// As there.
    pub unsafe fn reach<C: Clear>(
        &self,
        address: u64,
        attributes: F::Attributes,
        is_wanted: impl Fn() -> bool,
    ) -> Result<u64, Touch> {
        // SAFETY: the caller's promise.
        match unsafe { self.touch::<C>(address, attributes, is_wanted) } {
            Touch::Mapped | Touch::Again => {
                // SAFETY: as above.
                unsafe { demand::mapped::<F, C>(&self.blocks, address, attributes) }.ok_or(Touch::Again)
            }
            touched => Err(touched),
        }
    }

    /// Returns the physical address of `size` bytes, which are cleared and mapped before if they are not yet.
    ///
    /// # Errors
    /// When the pool has no block for them, or they have no one address.
    ///
    /// # Safety
    /// As for [`Pooled::touch`].
    pub unsafe fn host<C: Clear>(
        &self,
        address: u64,
        size: u64,
        attributes: F::Attributes,
    ) -> Result<u64, Missing> {
        // SAFETY: the caller's promise.
        let settle = |address| unsafe { self.settle::<C>(address, attributes) };
        let first = settle(address)? + (address - block(address));
        for (part, _) in parts(address, size).skip(1) {
            if settle(part)? != first + (part - address) {
                return Err(Missing::Foreign);
            }
        }
        Ok(first)
    }

    /// Returns where the block that contains `address` is, which is mapped by then.
    unsafe fn settle<C: Clear>(&self, address: u64, attributes: F::Attributes) -> Result<u64, Missing> {
        loop {
            // SAFETY: the caller's promise.
            if let Some(host) = unsafe { demand::mapped::<F, C>(&self.blocks, address, attributes) } {
                return Ok(host);
            }
            // Who has taken the entry waits for nobody, and gives it back.
            // SAFETY: as above.
            match unsafe { self.touch::<C>(address, attributes, || false) } {
                Touch::Mapped | Touch::Again => {}
                Touch::Dry => return Err(Missing::Dry),
                Touch::Foreign => return Err(Missing::Foreign),
            }
        }
    }

    /// Says whether the block that contains `address` is mapped.
    ///
    /// # Safety
    /// As for [`Pooled::touch`].
    pub unsafe fn has<C: Clear>(&self, address: u64, attributes: F::Attributes) -> bool {
        // SAFETY: the caller's promise.
        unsafe { demand::mapped::<F, C>(&self.blocks, address, attributes) }.is_some()
    }

    /// Keeps the blocks of `size` bytes from being given back, because their physical addresses are kept beyond an exit.
    pub fn pin(&self, address: u64, size: u64) {
        for (part, _) in parts(address, size) {
            if let Some((word, bit)) = self.pin_of(part) {
                // Relaxed: who gives blocks back acquires what the exits of all vCPUs have done.
                word.fetch_or(bit, Ordering::Relaxed);
            }
        }
    }

    fn pin_of(&self, address: u64) -> Option<(&AtomicU64, u64)> {
        let number = address / BLOCK;
        let word = usize::try_from(number / u64::from(u64::BITS)).ok()?;
        Some((self.pinned.get(word)?, 1 << (number % u64::from(u64::BITS))))
    }

    /// Says whether a block stays. One that is beyond the memory has nothing to go.
    fn is_pinned(&self, address: u64) -> bool {
        self.pin_of(address).is_none_or(|(word, bit)| word.load(Ordering::Relaxed) & bit != 0)
    }

    /// Gives the whole blocks of these parts back to the pool, but those that are pinned, or not mapped. `invalidate` makes all CPUs forget the
    /// translations of the VM, or not use them any more; nobody has these blocks before that. Returns how many have gone.
    ///
    /// # Safety
    /// As for [`Pooled::touch`]. No vCPU of the VM is in its guest or in an exit, nor is a service that reaches its memory, and none has
    /// translations of these blocks.
    pub unsafe fn give_back<C: Clear>(
        &self,
        parts: impl Iterator<Item = Range<u64>>,
        attributes: F::Attributes,
        invalidate: impl Fn(),
    ) -> u64 {
        // SAFETY: the caller's promise.
        let take_away = |address: &u64| unsafe {
            demand::take_away::<F, C>(&self.blocks, *address, attributes).is_some()
        };
        let mut taken = parts.flat_map(whole).filter(|address| !self.is_pinned(*address)).filter(take_away);
        let (mut batch, mut given) = (Batch::new(), 0);
        loop {
            batch.clear();
            batch.extend(taken.by_ref().take(BATCH));
            if batch.is_empty() {
                return given;
            }
            // Before anybody else gets one of them.
            invalidate();
            for address in &batch {
                // SAFETY: as above.
                given += u64::from(unsafe { self.give::<C>(*address, attributes) });
            }
        }
    }

    /// Gives the block that contains `address` to the pool, if there is one. Nobody reaches it any more.
    unsafe fn give<C: Clear>(&self, address: u64, attributes: F::Attributes) -> bool {
        // SAFETY: the caller's promise.
        let Some(host) = (unsafe { demand::place::<F, C>(&self.blocks, address, attributes) }) else {
            return false;
        };
        // Before the pool has it: a later touch takes another one, which may be the same.
        // SAFETY: as above.
        unsafe { demand::vacate::<F, C>(&self.blocks, address, attributes) };
        self.share.give(host)
    }

    /// Gives all blocks of a range of whole ones to the pool, mapped or not: the VM's memory is over. Those that are pinned are lost if
    /// `keeps_pinned`.
    ///
    /// # Safety
    /// As for [`Pooled::touch`]. Nobody reaches the memory any more by any translation, or by an address that was kept, but those of pinned
    /// blocks if `keeps_pinned`.
    pub unsafe fn release<C: Clear>(
        &self,
        blocks: Range<u64>,
        attributes: F::Attributes,
        keeps_pinned: bool,
    ) {
        for address in blocks.step_by(BLOCK as usize).filter(|at| !(keeps_pinned && self.is_pinned(*at))) {
            // SAFETY: the caller's promise.
            unsafe { self.give::<C>(address, attributes) };
        }
    }

    /// Returns how many bytes are in blocks that are pinned.
    pub fn pinned_bytes(&self) -> u64 {
        let bits = |word: &AtomicU64| u64::from(word.load(Ordering::Relaxed).count_ones());
        self.pinned.iter().map(bits).sum::<u64>() * BLOCK
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::{iter, slice};

    use turnstile_paging::{Nested, NestedAttributes, PageTable, PhysAddr};

    use super::*;
    use crate::heap::Heap;

    /// A machine that clears nothing: the blocks are no memory of the test.
    struct Nothing;

    impl Clear for Nothing {
        unsafe fn open(_: u64) -> Self {
            Self
        }

        fn clear(&mut self, _: u64, _: u64) {}

        fn close(self) {}
    }

    const RAM: NestedAttributes = NestedAttributes::RAM;
    /// Where the pool begins.
    const BASE: u64 = 0x100 * BLOCK;
    /// Blocks of the VM.
    const BLOCKS: u64 = 80;

    struct Machine {
        table: PageTable<Nested>,
        pool: &'static Pool,
        taken: &'static Taken,
        pooled: Pooled<Nested>,
    }

    /// A VM, and a pool of so many blocks.
    fn machine(count: usize) -> Machine {
        let mut table = PageTable::new(Nested::new(true, 48), &mut Heap).unwrap();
        table.map_on_demand(&mut Heap, 0, PhysAddr(0), BLOCKS * BLOCK, RAM).unwrap();
        let pool = Box::leak(Box::new(Pool::new(BASE, BLOCK, count)));
        let taken: &Taken = Box::leak(Box::default());
        let pooled = Pooled::new(table.blocks(), Share::new(pool, taken), BLOCKS * BLOCK);
        Machine { table, pool, taken, pooled }
    }

    impl Machine {
        fn host(&self, address: u64, size: u64) -> Result<u64, Missing> {
            // SAFETY: tables of the test.
            unsafe { self.pooled.host::<Nothing>(address, size, RAM) }
        }

        fn taken(&self) -> u64 {
            self.taken.bytes() / BLOCK
        }

        fn is_mapped(&self, number: u64) -> bool {
            self.table.translate(&Heap, number * BLOCK).is_some()
        }

        fn give_back(&self, blocks: Range<u64>, invalidate: impl Fn()) -> u64 {
            self.give_back_parts(slice::from_ref(&(blocks.start * BLOCK..blocks.end * BLOCK)), invalidate)
        }

        fn give_back_parts(&self, parts: &[Range<u64>], invalidate: impl Fn()) -> u64 {
            // SAFETY: nobody uses the tables of the test.
            unsafe { self.pooled.give_back::<Nothing>(parts.iter().cloned(), RAM, invalidate) }
        }
    }

    #[test]
    fn an_address_is_where_the_tables_say() {
        let machine = machine(4);
        assert_eq!(machine.host(5 * BLOCK + 8, 8), Ok(BASE + 8));
        assert_eq!(machine.host(5 * BLOCK, 8), Ok(BASE), "it stays there");
        assert_eq!(machine.host(3 * BLOCK, 8), Ok(BASE + BLOCK));
        assert_eq!(machine.host(4 * BLOCK, 8), Ok(BASE + 2 * BLOCK));
        assert_eq!(machine.host(4 * BLOCK - 4, 8), Ok(BASE + 2 * BLOCK - 4), "one behind the other");
        assert_eq!(machine.host(5 * BLOCK - 4, 8), Err(Missing::Foreign), "no one address");
        assert_eq!(machine.host(9 * BLOCK - 4, 8), Err(Missing::Dry), "half of it is there");
        assert_eq!(machine.host(9 * BLOCK, 8), Err(Missing::Dry));
        assert_eq!(machine.host(8 * BLOCK + 8, 8), Ok(BASE + 3 * BLOCK + 8), "which stays");
        assert_eq!(machine.host(512 * BLOCK, 8), Err(Missing::Foreign));
    }

    #[test]
    fn who_reaches_a_block_is_told_where_it_is() {
        let machine = machine(1);
        // SAFETY: as above.
        let reach =
            |address, is_wanted: bool| unsafe { machine.pooled.reach::<Nothing>(address, RAM, || is_wanted) };
        assert_eq!(reach(BLOCK + 8, true), Err(Touch::Again), "a slice of it is cleared");
        assert_eq!([reach(BLOCK + 8, false), reach(BLOCK + 8, true)], [Ok(BASE), Ok(BASE)]);
        assert_eq!([reach(0, false), reach(512 * BLOCK, false)], [Err(Touch::Dry), Err(Touch::Foreign)]);
    }

    #[test]
    fn what_is_given_back_is_nobodys_before_all_have_forgotten_it() {
        let machine = machine(4);
        for number in [1, 2, 3] {
            machine.host(number * BLOCK, 1).unwrap();
        }
        machine.pooled.pin(2 * BLOCK + 8, 8);
        let calls = Cell::new(0);
        let given = machine.give_back(0..5, || {
            calls.set(calls.get() + 1);
            assert!(
                [1, 3].into_iter().all(|number| !machine.is_mapped(number)),
                "walks find nothing any more"
            );
            assert_eq!((machine.pool.free(), machine.taken()), (1, 3), "and nobody has it");
            // SAFETY: as above.
            let touched = unsafe { machine.pooled.touch::<Nothing>(BLOCK, RAM, || false) };
            assert_eq!((touched, machine.pool.free()), (Touch::Again, 1), "nor a new one there");
        });
        assert_eq!((given, calls.get(), machine.pool.free(), machine.taken()), (2, 1, 3, 1));
        assert!(machine.is_mapped(2), "what is pinned stays");
        assert_eq!(machine.give_back(0..5, || panic!("nothing has gone")), 0);
        assert!(machine.host(3 * BLOCK, 1).is_ok(), "another one comes at the next touch");
    }

    /// Whoever takes a block that was given back finds it in no table of who had it: nothing is done there any more.
    #[test]
    fn no_table_names_what_is_in_the_pool() {
        std::thread_local! {
            static POOL: Cell<Option<&'static Pool>> = const { Cell::new(None) };
        }
        /// Hears of each access to the tables.
        struct Watching;
        impl Clear for Watching {
            fn in_memory(entry: u64) -> u64 {
                assert!(POOL.get().is_none_or(|pool| pool.free() == 0), "it is somebody else's by now");
                entry
            }

            unsafe fn open(_: u64) -> Self {
                Self
            }

            fn clear(&mut self, _: u64, _: u64) {}

            fn close(self) {}
        }
        for gives_back in [true, false] {
            let machine = machine(1);
            machine.host(0, 1).unwrap();
            POOL.set(Some(machine.pool));
            // SAFETY: nobody uses the tables of the test.
            unsafe {
                match gives_back {
                    true => _ = machine.pooled.give_back::<Watching>(iter::once(0..BLOCK), RAM, || ()),
                    false => machine.pooled.release::<Watching>(0..BLOCK, RAM, false),
                }
            }
            assert_eq!((machine.pool.free(), machine.is_mapped(0)), (1, false));
        }
    }

    #[test]
    fn what_a_vm_has_and_what_is_free_is_the_pool() {
        let machine = machine(3);
        let figures = || (machine.taken(), machine.pool.free(), machine.taken.waits());
        assert_eq!(figures(), (0, 3, false));
        machine.host(0, 1).unwrap();
        machine.host(8, 1).unwrap();
        assert_eq!(figures(), (1, 2, false), "a block is counted once");
        // SAFETY: as above.
        unsafe { machine.pooled.touch::<Nothing>(BLOCK, RAM, || true) };
        assert_eq!(figures(), (2, 1, false), "also before it is mapped");
        machine.host(2 * BLOCK, 1).unwrap();
        assert_eq!(machine.host(3 * BLOCK, 1), Err(Missing::Dry));
        assert_eq!(figures(), (3, 0, true), "not one that is not there");
        assert!(!machine.pooled.share.give(BASE + 1), "it is none of the pool's");
        assert_eq!(machine.taken.bytes(), 3 * BLOCK);
        machine.give_back(2..3, || ());
        assert_eq!(figures(), (2, 1, true));
        machine.host(3 * BLOCK, 1).unwrap();
        assert_eq!(figures(), (3, 0, false), "it has what it waited for");
    }

    #[test]
    fn parts_of_blocks_stay() {
        let machine = machine(4);
        for number in 0..3 {
            machine.host(number * BLOCK, 1).unwrap();
        }
        let given = machine.give_back_parts(slice::from_ref(&(1..3 * BLOCK - 1)), || ());
        assert_eq!((given, [0, 1, 2].map(|number| machine.is_mapped(number))), (1, [true, false, true]));
        let none =
            [BLOCK..BLOCK, Range { start: 2 * BLOCK, end: BLOCK }, 1..BLOCK + 1, u64::MAX - 1..u64::MAX];
        assert_eq!(machine.give_back_parts(&none, || panic!("nothing has gone")), 0);
    }

    #[test]
    fn tlbs_are_told_once_of_all_parts() {
        let machine = machine(8);
        for number in [0, 1, 4, 5, 7] {
            machine.host(number * BLOCK, 1).unwrap();
        }
        let calls = Cell::new(0);
        let parts = [7 * BLOCK..8 * BLOCK, 0..2 * BLOCK, BLOCK..2 * BLOCK, 4 * BLOCK..7 * BLOCK];
        let given = machine.give_back_parts(&parts, || {
            calls.set(calls.get() + 1);
            assert!((0..8).all(|number| !machine.is_mapped(number)), "all of them are out by then");
            assert_eq!((machine.pool.free(), machine.taken()), (3, 5), "and nobody has one");
        });
        assert_eq!((given, calls.get(), machine.pool.free()), (5, 1, 8));
    }

    #[test]
    fn a_pin_across_a_border_is_of_both_blocks() {
        let machine = machine(80);
        machine.pooled.pin(64 * BLOCK - 1, 2);
        for number in 62..66 {
            machine.host(number * BLOCK, 1).unwrap();
        }
        assert_eq!((machine.give_back(0..BLOCKS, || ()), machine.pooled.pinned_bytes()), (2, 2 * BLOCK));
        assert_eq!([62, 63, 64, 65].map(|number| machine.is_mapped(number)), [false, true, true, false]);
        machine.pooled.pin(u64::MAX - 8, 8);
    }

    #[test]
    fn many_go_at_once_and_tlbs_are_told_seldom() {
        let machine = machine(BLOCKS as usize);
        for number in 0..BLOCKS {
            machine.host(number * BLOCK, 1).unwrap();
        }
        let calls = Cell::new(0);
        assert_eq!(machine.give_back(0..BLOCKS, || calls.set(calls.get() + 1)), BLOCKS);
        assert_eq!((calls.get(), machine.pool.free()), (2, BLOCKS as usize));
    }

    #[test]
    fn all_returns_when_the_memory_is_over() {
        for keeps_pinned in [false, true] {
            let machine = machine(8);
            for number in [0, 7, 70] {
                machine.host(number * BLOCK, 1).unwrap();
            }
            machine.pooled.pin(7 * BLOCK, 1);
            // One of which a slice is cleared.
            // SAFETY: as above.
            unsafe { machine.pooled.touch::<Nothing>(9 * BLOCK, RAM, || true) };
            assert_eq!((machine.pool.free(), machine.taken()), (4, 4));
            // SAFETY: as above.
            unsafe { machine.pooled.release::<Nothing>(0..BLOCKS * BLOCK, RAM, keeps_pinned) };
            assert_eq!(machine.pool.free(), if keeps_pinned { 7 } else { 8 });
            assert_eq!(machine.taken(), u64::from(keeps_pinned), "what is lost is still the VM's");
        }
    }

    #[test]
    fn parts_are_in_one_block_each() {
        let of = |address, size| parts(address, size).collect::<Vec<_>>();
        assert_eq!(of(8, 16), [(8, 16)]);
        assert_eq!(of(BLOCK - 1, BLOCK + 2), [(BLOCK - 1, 1), (BLOCK, BLOCK), (2 * BLOCK, 1)]);
        assert_eq!(of(8, 0), []);
        assert_eq!(of(u64::MAX - 1, 8), [(u64::MAX - 1, 1)], "it ends");
    }
}
