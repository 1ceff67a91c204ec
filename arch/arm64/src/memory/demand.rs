// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The RAM of a VM that is mapped when it is touched, as exits see it.

use alloc::sync::Arc;
use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering};

use turnstile_arch_common::demand::{self, Touch, block};
use turnstile_arch_common::pooled::Pooled;
use turnstile_arch_common::vm::ForLife;
use turnstile_machine::map::{IPA_BITS, Region};
use turnstile_paging::{Blocks, PhysAddr, Stage2, Stage2Attributes};

use super::coherence;
use super::window::Window;
use crate::cpu::{self, regs};

/// The form of stage 2 tables.
static FORMAT: Stage2 = match Stage2::new(IPA_BITS) {
    Some(format) => format,
    None => panic!("no such width"),
};

/// Says whether this CPU is wanted elsewhere.
fn is_wanted() -> bool {
    regs::ISR_EL1.read() != 0
}

/// Makes all CPUs forget what they know of stage 2: of all VMs, because this CPU may have loaded another one's.
fn forget() {
    // The table stores before the invalidation, the invalidation before what follows (Arm ARM D8.16.5).
    cpu::dsb_ishst();
    cpu::tlbi_alle1is();
    cpu::dsb_ish();
    cpu::isb();
}

/// The RAM of a VM, and what maps it if it is not mapped from the start.
///
/// Changed between two lives of the VM alone; its start is ordered behind that, so all accesses are relaxed.
#[derive(Debug)]
pub struct Demand {
    /// Where it is to the guest: whole blocks.
    ram: Region,
    /// The root of the stage 2 tables.
    root: AtomicU64,
    /// Where it is in the machine; zero if it is mapped from the start, or in blocks of a pool.
    host: AtomicU64,
    /// Its blocks, if they come from a pool.
    pooled: ForLife<Option<Arc<Pooled<Stage2>>>>,
}

/// Where the RAM is that is mapped when it is touched.
#[derive(Debug, Default)]
pub enum Later {
    /// Nowhere: all of it is mapped from the start.
    #[default]
    Nothing,
    /// From this physical address on.
    At(u64),
    /// In blocks of a pool.
    Pooled(Arc<Pooled<Stage2>>),
}

impl Demand {
    /// Makes it for this RAM; no life has begun.
    pub const fn new(ram: Region) -> Self {
        Self { ram, root: AtomicU64::new(0), host: AtomicU64::new(0), pooled: ForLife::new(None) }
    }

    /// Prepares a life: the root of its stage 2 tables, and where its RAM is that is mapped later.
    ///
    /// # Safety
    /// As for [`ForLife::begin`].
    pub unsafe fn prepare(&self, root: u64, later: Later) {
        let (host, pooled) = match later {
            Later::Nothing => (0, None),
            Later::At(host) => (host, None),
            Later::Pooled(pooled) => (0, Some(pooled)),
        };
        self.root.store(root, Ordering::Relaxed);
        self.host.store(host, Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { self.pooled.begin(pooled) };
    }

    /// Clears and maps the block that a vCPU of the VM has touched and that stage 2 does not translate, or some of it if an interrupt
    /// comes meanwhile. The guest does again what it did, unless the block is none that is mapped on demand.
    pub fn touch(&self, address: u64) -> Touch {
        self.with_block(address, Touch::Foreign, |blocks, host| {
            // SAFETY: what `with_block` says.
            unsafe {
                demand::touch::<_, Window>(
                    blocks,
                    address,
                    host,
                    coherence::ram(Stage2Attributes::RAM),
                    is_wanted,
                )
            }
        })
    }

    /// The same for who is to know where the block is once it is mapped, because a service of the VM has touched it.
    ///
    /// # Errors
    /// What has become of the touch, if it is not mapped yet.
    pub fn reach(&self, address: u64) -> Result<u64, Touch> {
        if let Some(pooled) = self.pooled(address) {
            // SAFETY: as for `touch_pooled`.
            let reached =
                unsafe { pooled.reach::<Window>(address, coherence::ram(Stage2Attributes::RAM), is_wanted) };
            cpu::dsb_ishst();
            return reached;
        }
        self.with_block(address, Err(Touch::Foreign), |blocks, host| {
            // SAFETY: what `with_block` says.
            unsafe {
                demand::reach::<_, Window>(
                    blocks,
                    address,
                    host,
                    coherence::ram(Stage2Attributes::RAM),
                    is_wanted,
                )
            }
        })
    }

    /// As [`Demand::touch`], of memory whose blocks come from a pool: apart, and asked last, so that others pay nothing for it.
    #[cold]
    pub fn touch_pooled(&self, address: u64) -> Touch {
        let Some(pooled) = self.pooled(address) else { return Touch::Foreign };
        // SAFETY: tables of a VM that runs, or is about to, which nothing else changes meanwhile; EL2 maps its arena one to one. The pool's
        // blocks are memory of guests.
        let touched =
            unsafe { pooled.touch::<Window>(address, coherence::ram(Stage2Attributes::RAM), is_wanted) };
        // As in `with_block`.
        cpu::dsb_ishst();
        touched
    }

    /// Returns the blocks of the RAM that contains `address`, if they come from a pool.
    fn pooled(&self, address: u64) -> Option<&Pooled<Stage2>> {
        // The tables have places for more than is RAM.
        self.pooled.get().as_deref().filter(|_| self.ram.contains(address))
    }

    /// Says whether its blocks come from a pool.
    pub fn is_pooled(&self) -> bool {
        self.pooled.get().is_some()
    }

    /// Says whether `address` is in a block of a pool that is mapped.
    pub fn has(&self, address: u64) -> bool {
        let attributes = coherence::ram(Stage2Attributes::RAM);
        // SAFETY: as for `touch_pooled`.
        self.pooled(address).is_some_and(|pooled| unsafe { pooled.has::<Window>(address, attributes) })
    }

    /// Gives the whole blocks of these parts back to the pool, as [`Pooled::give_back`] does; returns how many.
    ///
    /// # Safety
    /// As there.
    pub unsafe fn give_back(&self, parts: &[Range<u64>]) -> u64 {
        let Some(pooled) = self.pooled.get() else { return 0 };
        let Region { base, size } = self.ram;
        let parts = parts.iter().map(|part| part.start.max(base)..part.end.min(base + size));
        // SAFETY: the caller's promise; as for `touch_pooled`.
        unsafe { pooled.give_back::<Window>(parts, coherence::ram(Stage2Attributes::RAM), forget) }
    }

    /// Does something with the tables, and the physical address of the block that contains `address`. The tables are those of a VM that
    /// runs, or is about to, which nothing else changes meanwhile; EL2 maps its arena one to one. RAM is whole blocks, so the block
    /// is the VM's.
    #[inline(always)] // Its callers are on an exit's path.
    fn with_block<T>(&self, address: u64, foreign: T, act: impl FnOnce(&Blocks<Stage2>, u64) -> T) -> T {
        let host = self.host.load(Ordering::Relaxed);
        if host == 0 || !self.ram.contains(address) {
            return foreign;
        }
        let blocks = Blocks::new(FORMAT, PhysAddr(self.root.load(Ordering::Relaxed)));
        let host = host + (block(address) - self.ram.base);
        let touched = act(&blocks, host);
        // The store before the walk of the access that is repeated (Arm ARM D8.17.1); the return to the guest is the
        // context synchronization.
        cpu::dsb_ishst();
        touched
    }
}

#[cfg(test)]
mod tests {
    use std::slice;

    use turnstile_arch_common::heap::Heap;
    use turnstile_arch_common::pooled::{Pool, Share};
    use turnstile_paging::{BLOCK, Memory, PageTable};

    use super::*;
    use crate::cpu::regs::fakes;

    #[test]
    fn a_touch_clears_and_maps_its_block_and_nothing_else() {
        const RAM: Region = Region { base: 0x4000_0000, size: 4 * BLOCK };
        let memory = vec![0xee_u8; 5 * BLOCK as usize].leak();
        let host = (memory.as_ptr() as u64).next_multiple_of(BLOCK);
        // SAFETY: memory of the test.
        let byte = |offset: u64| unsafe { ((host + offset) as *const u8).read_volatile() };
        let mut table = PageTable::new(FORMAT, &mut Heap).unwrap();
        table.map_on_demand(&mut Heap, RAM.base, PhysAddr(host), RAM.size, Stage2Attributes::RAM).unwrap();
        let demand = Demand::new(RAM);
        assert_eq!(demand.touch(RAM.base), Touch::Foreign, "no life has begun");
        // SAFETY: the test has one thread.
        let prepare = |later| unsafe { demand.prepare(table.root().0, later) };
        prepare(Later::Nothing);
        assert_eq!(demand.touch(RAM.base), Touch::Foreign, "all is mapped");
        prepare(Later::At(host));
        assert_eq!(demand.touch_pooled(RAM.base), Touch::Foreign, "it comes from no pool");
        assert_eq!(demand.touch(RAM.base + BLOCK + 0x1234), Touch::Mapped);
        assert!((BLOCK..2 * BLOCK).all(|offset| byte(offset) == 0));
        assert_eq!((byte(BLOCK - 1), byte(2 * BLOCK)), (0xee, 0xee));
        let at = |address| table.translate(&Heap, address).map(|found| found.address.0);
        assert_eq!(at(RAM.base + BLOCK + 8), Some(host + BLOCK + 8));
        assert_eq!((at(RAM.base), at(RAM.base + 2 * BLOCK)), (None, None));
        assert_eq!(table.translate(&Heap, RAM.base + BLOCK).unwrap().attributes, Stage2Attributes::RAM);
        // Memory that is mapped later is as that which is mapped from the start: cacheable whatever the guest says, where it can be.
        coherence::force();
        // An interrupt comes first.
        regs::fakes::set("ISR_EL1", 1 << 7);
        assert_eq!(demand.touch(RAM.base), Touch::Again);
        assert_eq!((at(RAM.base), byte(0), byte(BLOCK - 1)), (None, 0, 0xee));
        regs::fakes::set("ISR_EL1", 0);
        assert_eq!(demand.touch(RAM.base), Touch::Mapped);
        assert_eq!(
            table.translate(&Heap, RAM.base).unwrap().attributes,
            Stage2Attributes { memory: Memory::Forced, ..Stage2Attributes::RAM }
        );
        assert_eq!((demand.touch(RAM.base), demand.reach(RAM.base)), (Touch::Again, Ok(host)));
        for outside in [0, RAM.base - 1, RAM.base + RAM.size, u64::MAX] {
            assert_eq!(demand.touch(outside), Touch::Foreign, "{outside:#x}");
        }
    }

    #[test]
    fn blocks_of_a_pool_come_at_a_touch_and_go_back_when_all_cpus_have_forgotten_them() {
        const RAM: Region = Region { base: 0x4000_0000, size: 4 * BLOCK };
        let memory = vec![0xee_u8; 3 * BLOCK as usize].leak();
        let host = (memory.as_ptr() as u64).next_multiple_of(BLOCK);
        // SAFETY: memory of the test.
        let byte = |offset: u64| unsafe { ((host + offset) as *const u8).read_volatile() };
        let pool: &Pool = Box::leak(Box::new(Pool::new(host, BLOCK, 2)));
        let mut table = PageTable::new(FORMAT, &mut Heap).unwrap();
        // More than is RAM has a place in the tables.
        table.map_on_demand(&mut Heap, RAM.base, PhysAddr(0), 8 * BLOCK, Stage2Attributes::RAM).unwrap();
        let demand = Demand::new(RAM);
        let share = Share::new(pool, Box::leak(Box::default()));
        let pooled = Arc::new(Pooled::new(table.blocks(), share, RAM.base + RAM.size));
        // SAFETY: the test has one thread.
        unsafe { demand.prepare(table.root().0, Later::Pooled(pooled)) };
        for outside in [0, RAM.base - 1, RAM.base + RAM.size, u64::MAX] {
            assert_eq!(demand.touch_pooled(outside), Touch::Foreign, "{outside:#x}");
            assert_eq!(demand.reach(outside), Err(Touch::Foreign), "{outside:#x}");
        }
        assert_eq!(demand.touch(RAM.base), Touch::Foreign, "it is nowhere by itself");
        fakes::set("ISR_EL1", 1 << 7);
        assert_eq!(demand.touch_pooled(RAM.base + BLOCK), Touch::Again, "an interrupt comes first");
        fakes::set("ISR_EL1", 0);
        assert_eq!(demand.touch_pooled(RAM.base + BLOCK + 8), Touch::Mapped);
        assert!((0..BLOCK).all(|offset| byte(offset) == 0));
        assert_eq!(demand.reach(RAM.base + BLOCK + 0x1008), Ok(host));
        assert_eq!(demand.reach(RAM.base), Ok(host + BLOCK));
        assert_eq!(demand.touch_pooled(RAM.base + 2 * BLOCK), Touch::Dry);
        assert_eq!(demand.reach(RAM.base + 3 * BLOCK), Err(Touch::Dry));
        fakes::take_instructions();
        // SAFETY: nobody uses the tables of the test.
        let give_back = |part| unsafe { demand.give_back(slice::from_ref(&part)) };
        assert_eq!((give_back(0..RAM.base), give_back(RAM.base + RAM.size..u64::MAX)), (0, 0));
        assert_eq!(fakes::take_instructions(), [""; 0]);
        assert_eq!((give_back(0..RAM.base + BLOCK), pool.free()), (1, 1));
        assert_eq!(fakes::take_instructions(), ["dsb ishst", "tlbi alle1is", "dsb ish", "isb"]);
        let at = |address| table.translate(&Heap, address).map(|found| found.address.0);
        assert_eq!((at(RAM.base), at(RAM.base + BLOCK)), (None, Some(host)));
        assert_eq!(demand.touch_pooled(RAM.base + 3 * BLOCK), Touch::Mapped, "it is for who needs one");
    }
}
