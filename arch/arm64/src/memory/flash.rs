// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The flash of a VM, as exits see it: memory that the guest reads and executes, and whose stores come here.
//!
//! While its chips show their cells, a bank is mapped read-only in stage 2, and stores to it end in permission faults.
//! While they show anything else, it is not mapped, and reads exit as well. A bank is mapped and taken away by the entries
//! of its blocks alone: the tables are there from the start of a life to its end.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use turnstile_machine::GuestMachine;
use turnstile_machine::map::{IPA_BITS, Region};
use turnstile_paging::{BLOCK, Blocks, PhysAddr, Stage2, Stage2Attributes};

use super::coherence;
use crate::cpu;

/// The most banks of a machine.
const BANKS: usize = 2;
/// The form of stage 2 tables.
static FORMAT: Stage2 = match Stage2::new(IPA_BITS) {
    Some(format) => format,
    None => panic!("no such width"),
};

/// A place in the flash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The bank.
    pub bank: usize,
    /// The offset in it.
    pub offset: u64,
}

/// What an exit does at a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// Where.
    pub place: Place,
    /// How many bytes.
    pub size: u8,
    /// What is stored; `None` for a load.
    pub value: Option<u64>,
}

/// A bank.
#[derive(Debug)]
struct Bank {
    region: Region,
    /// Whether it is mapped.
    shown: AtomicBool,
}

/// The banks of a VM.
///
/// What is mapped changes between two lives of the VM, and under the lock of the model of its chips. `shown` alone is read
/// by others: who finds it set repeats an access that found no mapping, and who does not goes to the model, which knows.
#[derive(Debug)]
pub struct Flash {
    banks: [Bank; BANKS],
    /// The root of the stage 2 tables.
    root: AtomicU64,
    /// Where the cells are in the machine: bank after bank.
    host: AtomicU64,
}

impl Flash {
    /// Makes that of a machine with `size` bytes in each bank; no life has begun.
    pub fn new(machine: GuestMachine, size: u64) -> Self {
        let mut regions = machine.map().flash_banks(size);
        let bank = |region: Option<Region>| Bank {
            region: region.unwrap_or(Region { base: 0, size: 0 }),
            shown: AtomicBool::new(false),
        };
        let banks = core::array::from_fn(|_| bank(regions.next()));
        Self { banks, root: AtomicU64::new(0), host: AtomicU64::new(0) }
    }

    /// Prepares a life in which all banks are mapped: the root of its stage 2 tables and where the cells are.
    pub fn prepare(&self, root: u64, host: u64) {
        self.root.store(root, Ordering::Relaxed);
        self.host.store(host, Ordering::Relaxed);
        self.banks.iter().for_each(|bank| bank.shown.store(true, Ordering::Relaxed));
    }

    /// Says whether there is any.
    pub fn is_there(&self) -> bool {
        self.banks.iter().any(|bank| bank.region.size != 0)
    }

    /// Finds the place at a guest physical address.
    pub fn place(&self, address: u64) -> Option<Place> {
        let bank = self.banks.iter().position(|bank| bank.region.contains(address))?;
        let region = self.banks.get(bank)?.region;
        Some(Place { bank, offset: cpu::within(address - region.base, region.size) })
    }

    /// Says whether a bank is mapped.
    pub fn is_shown(&self, bank: usize) -> bool {
        self.banks.get(bank).is_some_and(|bank| bank.shown.load(Ordering::Relaxed))
    }

    /// Maps a bank, or takes it away: from the return on no vCPU reads it without an exit. In an exit of a vCPU of the VM,
    /// whose VMID the CPU has, and by one vCPU at a time.
    pub fn show(&self, number: usize, shown: bool) {
        let Some(bank) = self.banks.get(number) else { return };
        let before: u64 = self.banks.iter().take(number).map(|bank| bank.region.size).sum();
        let host = self.host.load(Ordering::Relaxed) + before;
        let blocks = Blocks::new(FORMAT, PhysAddr(self.root.load(Ordering::Relaxed)));
        for offset in (0..bank.region.size).step_by(BLOCK as usize) {
            // SAFETY: the tables of a VM that runs, which EL2 maps one to one; a bank is whole blocks, and what is at
            // `host` are its cells. Entries of a bank are changed here alone.
            unsafe { set_entry(&blocks, bank.region.base + offset, PhysAddr(host + offset), shown) };
        }
        bank.shown.store(shown, Ordering::Relaxed);
        // The stores before the walks of accesses that are repeated, or before the invalidation (Arm ARM D8.17.1); the
        // return to the guest is the context synchronization.
        cpu::dsb_ishst();
        if !shown {
            cpu::tlbi_vmalls12e1is();
            cpu::dsb_ish();
        }
    }
}

/// Stores the entry for a block of cells, or an invalid one.
///
/// # Safety
/// The tables belong to a VM that has not stopped, EL2 maps them one to one, and nothing else changes these entries. The
/// block at `host` is that VM's.
unsafe fn set_entry(blocks: &Blocks<Stage2>, address: u64, host: PhysAddr, valid: bool) {
    // SAFETY: the walk yields tables of the tree, and indexes inside them. Volatile: hardware walkers read them.
    let read =
        |table: PhysAddr, index| unsafe { core::ptr::read_volatile((table.0 as *const u64).add(index)) };
    let Some(slot) = blocks.slot(address, host, coherence::ram(Stage2Attributes::ROM), read) else { return };
    let entry = if valid { slot.entry } else { 0 };
    // SAFETY: as above; an aligned store of a word is seen at once.
    unsafe { core::ptr::write_volatile((slot.table.0 as *mut u64).add(slot.index), entry) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::regs::fakes;
    use turnstile_arch_common::heap::Heap;
    use turnstile_paging::PageTable;

    const SIZE: u64 = 2 * BLOCK;
    const HOST: u64 = 0x8_4020_0000;

    #[test]
    fn places_are_those_of_the_banks() {
        let flash = Flash::new(GuestMachine::Virt, SIZE);
        let place = |bank, offset| Some(Place { bank, offset });
        assert_eq!(flash.place(0), place(0, 0));
        assert_eq!(flash.place(SIZE - 1), place(0, SIZE - 1));
        assert_eq!(flash.place(0x0400_0010), place(1, 0x10));
        for nowhere in [SIZE, 0x03ff_ffff, 0x0400_0000 + SIZE, 0x4000_0000, u64::MAX] {
            assert_eq!(flash.place(nowhere), None, "{nowhere:#x}");
        }
        let none = Flash::new(GuestMachine::Virt, 0);
        assert_eq!((none.place(0), none.is_there(), flash.is_there()), (None, false, true));
        let one = Flash::new(GuestMachine::Kvmtool, SIZE);
        assert_eq!((one.place(0x0200_0000), one.place(0)), (place(0, 0), None));
    }

    #[test]
    fn a_bank_is_hidden_and_shown_alone_and_never_writable() {
        let flash = Flash::new(GuestMachine::Virt, SIZE);
        let mut table = PageTable::new(FORMAT, &mut Heap).unwrap();
        for (bank, base) in [(0, 0), (1, 0x0400_0000)] {
            let host = PhysAddr(HOST + bank * SIZE);
            table.map(&mut Heap, base, host, SIZE, Stage2Attributes::ROM).unwrap();
        }
        flash.prepare(table.root().0, HOST);
        let at = |address| table.translate(&Heap, address).map(|found| found.address.0);
        assert!(flash.is_shown(0) && flash.is_shown(1));
        fakes::take_instructions();
        flash.show(1, false);
        assert_eq!(fakes::take_instructions(), ["dsb ishst", "tlbi vmalls12e1is", "dsb ish"]);
        assert!(flash.is_shown(0) && !flash.is_shown(1));
        assert_eq!((at(0), at(BLOCK + 8)), (Some(HOST), Some(HOST + BLOCK + 8)));
        assert_eq!((at(0x0400_0000), at(0x0400_0000 + BLOCK)), (None, None));
        flash.show(0, false);
        flash.show(1, true);
        assert_eq!((at(0), at(BLOCK)), (None, None));
        assert_eq!(at(0x0400_0000 + BLOCK + 8), Some(HOST + SIZE + BLOCK + 8));
        let found = table.translate(&Heap, 0x0400_0000).unwrap();
        assert_eq!(found.attributes, Stage2Attributes::ROM);
    }
}
