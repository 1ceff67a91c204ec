// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Memory whose blocks come from a pool, and go back.

use std::slice;

use turnstile_arch_common::heap::Heap;
use turnstile_arch_common::pooled::{Pool, Pooled, Share};
use turnstile_paging::{BLOCK, Nested, NestedAttributes, PageTable, PhysAddr};

use super::*;
use crate::cpu::regs::{cr0, cr4, efer};
use crate::cpu::svm::event::Exception;
use crate::exit::access::{Access, DS, Failed};
use crate::exit::attend::{Attended, attend};
use crate::state::walks::Root;
use crate::vm::monitor::monitor;

const CLOCK: u32 = 0x4b56_4d01;
const WALL_CLOCK: u32 = 0x4b56_4d00;
const STEAL_TIME: u32 = 0x4b56_4d03;
const PV_EOI: u32 = 0x4b56_4d04;
/// A write by the guest where nothing is.
const WRITE: u64 = 1 << 1 | 1 << 2;
/// Blocks of the VM.
const BLOCKS: u64 = 8;

struct Machine {
    vcpu: &'static Vcpu,
    frame: Frame,
    vmcb: Vmcb,
    pool: &'static Pool,
    table: PageTable<Nested>,
    /// The memory of the pool.
    host: u64,
}

/// A VM, and a pool of so many blocks, in which somebody has left something.
fn pooled(count: u64) -> Machine {
    let memory = vec![0xee_u8; ((count + 1) * BLOCK) as usize].leak();
    let host = (memory.as_ptr() as u64).next_multiple_of(BLOCK);
    let pool: &Pool = Box::leak(Box::new(Pool::new(host, BLOCK, count as usize)));
    let mut table = PageTable::new(Nested::new(true, 48), &mut Heap).unwrap();
    table.map_on_demand(&mut Heap, 0, PhysAddr(0), BLOCKS * BLOCK, NestedAttributes::RAM).unwrap();
    let piece = Piece { guest: 0, size: BLOCKS * BLOCK, host: Piece::FROM_POOL };
    let share = Share::new(pool, Box::leak(Box::default()));
    let ram =
        GuestRam::new([piece].into_iter()).from_pool(Pooled::new(table.blocks(), share, BLOCKS * BLOCK));
    let (vcpu, frame, vmcb) = machine_of(ram, u32::MAX, &[]);
    Machine { vcpu, frame, vmcb, pool, table, host }
}

impl Machine {
    fn is_mapped(&self, address: u64) -> bool {
        self.table.translate(&Heap, address).is_some()
    }

    fn host(&self, address: u64) -> u64 {
        self.vcpu.vm.life().ram.host(address, 1).unwrap()
    }

    /// Puts an entry of eight bytes into the guest's memory.
    fn put(&self, address: u64, entry: u64) {
        // SAFETY: memory of the test.
        unsafe { (self.host(address) as *mut u64).write_volatile(entry) };
    }

    /// Takes the blocks that are left.
    fn drain(&self) -> Vec<u64> {
        core::iter::from_fn(|| self.pool.take()).collect()
    }
}

#[test]
fn a_touch_takes_a_block_and_an_empty_pool_lets_the_guest_touch_again() {
    let mut machine = pooled(1);
    let mut touch = |address| {
        machine.vmcb.set_exit_info([WRITE, address]);
        let code = handle(&mut machine.frame, &mut machine.vmcb, code::NESTED_PAGE_FAULT);
        assert_eq!(code, Code::FULL, "what may find nothing is no light exit");
        let before = bytes(&machine.vmcb);
        crate::exit::memory::full(&mut machine.frame, &mut machine.vmcb, machine.vcpu, monitor());
        changes(&before, &machine.vmcb)
    };
    assert_eq!(touch(BLOCK + 0x123), [0; 0], "the guest does again what it did");
    assert_eq!(
        (machine.pool.free(), machine.table.translate(&Heap, BLOCK).unwrap().address.0),
        (0, machine.host)
    );
    // SAFETY: memory of the test.
    assert!((0..BLOCK).all(|at| unsafe { ((machine.host + at) as *const u8).read_volatile() } == 0));
    let mut touch = |address, cut_short| {
        machine.vmcb.set_exit_info([WRITE, address]);
        machine.vmcb.set_exit_interrupt(cut_short);
        crate::exit::memory::full(&mut machine.frame, &mut machine.vmcb, machine.vcpu, monitor());
        (machine.vmcb.event(), machine.vmcb.rip())
    };
    let rip = touch(3 * BLOCK, 0).1;
    assert_eq!(touch(3 * BLOCK, 0), (0, rip), "neither an exception nor the next instruction");
    let event = event::VALID | event::EXCEPTION | 13;
    assert_eq!(touch(3 * BLOCK, event), (event, rip), "what was being delivered is delivered again");
    assert!(!machine.is_mapped(3 * BLOCK));
}

#[test]
fn an_instruction_whose_operand_finds_no_block_is_executed_again() {
    let mut machine = pooled(2);
    // Its page tables have a block, and what they map none: 4 KiB at 0, and 2 MiB behind.
    for (address, entry) in [(0x1000, 0x2007), (0x2000, 0x3007), (0x3000, 0x4007), (0x4000, (3 * BLOCK) | 7)]
    {
        machine.put(address, entry);
    }
    machine.put(0x4000 + 8, 0x5007);
    machine.put(0x3000 + 8, (4 * BLOCK) | 7);
    machine.vmcb.set_cr0(cr0::PE | cr0::PG | cr0::WP);
    machine.vmcb.set_cr3(0x1000);
    machine.vmcb.set_cr4(cr4::PAE);
    machine.vmcb.set_efer(efer::LMA | efer::LME);
    let left = machine.drain();
    assert_eq!(left.len(), 1);
    let mut access = Access { vmcb: &mut machine.vmcb, vcpu: machine.vcpu, monitor: monitor() };
    assert_eq!(access.load(DS, 0x10, 4), Err(Failed::Dry), "the operand");
    assert_eq!(access.store(DS, 0xffe, 4, 1), Err(Failed::Dry), "half of it");
    assert_eq!(access.probe(DS, 0x1ffe, 4, true), Err(Exception::page_fault(0x2000, 1 << 1).into()));
    assert_eq!(access.load(DS, BLOCK, 4), Err(Failed::Dry), "a table");
    assert_eq!(access.load(DS, 0x1010, 4), Ok(0));
    let before = bytes(access.vmcb);
    Failed::Dry.inject(access.vmcb);
    assert_eq!(changes(&before, access.vmcb), [0; 0], "without an exception");
    assert!(machine.pool.give(left[0]));
    let mut access = Access { vmcb: &mut machine.vmcb, vcpu: machine.vcpu, monitor: monitor() };
    assert_eq!(access.store(DS, 0xffe, 4, 0x1122_3344), Ok(()));
    assert_eq!(access.load(DS, 0xffe, 4), Ok(0x1122_3344));
}

#[test]
fn a_register_that_names_a_record_waits_for_its_block() {
    for (number, value) in [
        (CLOCK, (3 * BLOCK) | 1),
        (WALL_CLOCK, 3 * BLOCK),
        (STEAL_TIME, (3 * BLOCK) | 1),
        (PV_EOI, (3 * BLOCK) | 1),
    ] {
        let mut machine = pooled(1);
        let left = machine.drain();
        let rip = machine.vmcb.rip();
        let mut write = |value| {
            let result = msr_of(machine.vcpu, &mut machine.frame, &mut machine.vmcb, number, Some(value));
            (result.is_ok(), machine.vmcb.rip())
        };
        assert_eq!(write(value), (true, rip), "{number:#x}: it is executed again");
        assert!(!write((9 * BLOCK) | 1).0, "where no memory is");
        assert!(machine.pool.give(left[0]));
        assert_eq!(write(value), (true, rip + 2));
        assert_eq!(
            machine.vcpu.vm.give_back(slice::from_ref(&(0..u64::MAX))),
            0,
            "the hypervisor keeps its address"
        );
        assert_eq!((machine.pool.free(), machine.is_mapped(3 * BLOCK)), (0, true));
    }
}

#[test]
fn nobody_uses_old_translations_once_a_block_has_gone() {
    let machine = pooled(2);
    let (vcpu, mut frame) = (machine.vcpu, machine.frame);
    let host = machine.vcpu.vm.life().ram.host(0x10_0000, 8).unwrap();
    machine.vcpu.vm.life().ram.host(BLOCK, 8).unwrap();
    vcpu.with_vmcb(|vmcb| crate::vcpu::asid::renew(vcpu, vmcb));
    let root = Root { cr3: 0x10_0000, la57: 0 };
    vcpu.owned(|owned| owned.walks.note(0x7000, root, &[[0x10_0000, 0]], host, &vcpu.vm.life().ram));
    assert!(vcpu.owned(|owned| owned.walks.find(0x7000, root)).is_some());
    let asid = vcpu.with_vmcb(|vmcb| vmcb.asid());
    vcpu.attention.take();
    assert_eq!(vcpu.vm.give_back(slice::from_ref(&(BLOCK..2 * BLOCK))), 1);
    assert_eq!(
        (machine.pool.free(), vcpu.attention.is_pending()),
        (1, true),
        "it looks before its guest runs"
    );
    assert_eq!(attend(&mut frame, vcpu, monitor()), Attended::Same);
    assert_ne!(vcpu.with_vmcb(|vmcb| vmcb.asid()), asid);
    assert_eq!(vcpu.owned(|owned| owned.walks.find(0x7000, root)), None);
    assert_eq!(vcpu.vm.give_back(slice::from_ref(&(BLOCK..2 * BLOCK))), 0);
    assert!(!vcpu.attention.is_pending(), "nothing has gone");
}
