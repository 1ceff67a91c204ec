// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Exits on the host: what a handler changes of the control block, of the frame and of the machine, and nothing else.

use std::vec::Vec;

use turnstile_paging::{BLOCK, Blocks, Nested, NestedAttributes, PageTable, PhysAddr, Tables};
use turnstile_vm::attention::Reasons;
use turnstile_vm::lifecycle::OnCrash;

use super::event::Nmi;
use super::*;
use crate::cpu;
use crate::frame::number;
use crate::memory::{GuestRam, Piece};
use crate::regs::fakes;
use crate::svm::vmcb::{Segment, attribute, event, interrupt, part};
use crate::switch::BootState;
use crate::vm::{Vm, VmParts};

/// Bytes of RAM that the test's VM has, from guest physical address zero.
const RAM: usize = 64 * 1024;

/// A VM with a vCPU that executes 64-bit code without paging's being looked at, its frame, and its RAM.
pub(crate) fn machine() -> (&'static Vcpu, Frame, Vmcb, &'static mut [u8]) {
    // A page more: RAM is aligned, as page tables in it must be.
    let ram = Box::leak(vec![0u8; RAM + 4096].into_boxed_slice());
    let skip = ram.as_ptr().align_offset(4096);
    let ram = &mut ram[skip..skip + RAM];
    let piece = Piece { guest: 0, size: RAM as u64, host: ram.as_ptr() as u64 };
    let (vcpu, frame, vmcb) = machine_of(piece, None);
    (vcpu, frame, vmcb, ram)
}

/// The same with RAM of the caller's.
fn machine_of(piece: Piece, blocks: Option<Blocks<Nested>>) -> (&'static Vcpu, Frame, Vmcb) {
    fakes::reset();
    let vm: &'static Vm = Box::leak(Box::new(Vm::new(VmParts {
        id: 0,
        name: "test".into(),
        on_crash: OnCrash::Stop,
        statistics: false,
        x2apic: true,
        kvm: Some(0),
        vcpus: 1,
    })));
    let vcpu: &'static Vcpu = Box::leak(Box::new(Vcpu::new(vm, 0, cpu::this(), None)));
    vm.set_vcpus(vec![vcpu]);
    vm.prepare(0, GuestRam::new([piece].into_iter()), blocks, BootState::default());
    vm.lifecycle.start();
    let mut vmcb = Vmcb::new();
    vmcb.set_efer(crate::regs::efer::LMA);
    vmcb.set_cs(Segment { attributes: attribute::LONG_CODE, ..Segment::default() });
    vmcb.set_rip(0x1000);
    vmcb.set_interrupts(interrupt::MASKING);
    vmcb.set_rflags(flags::RESERVED);
    vmcb.set_interrupt_shadow(1);
    vmcb.set_clean(part::ALL);
    let frame = Frame::new(vcpu, core::ptr::null_mut(), core::ptr::null());
    fakes::take_log();
    (vcpu, frame, vmcb)
}

/// The bytes of a control block.
fn bytes(vmcb: &Vmcb) -> Vec<u8> {
    // SAFETY: a control block is integers without padding.
    unsafe { core::slice::from_raw_parts(core::ptr::from_ref(vmcb).cast::<u8>(), size_of::<Vmcb>()).to_vec() }
}

/// The offsets of the eight-byte words in which two control blocks differ.
fn changes(before: &[u8], after: &Vmcb) -> Vec<usize> {
    let after = bytes(after);
    let words = before.chunks_exact(8).zip(after.chunks_exact(8)).enumerate();
    words.filter(|(_, (before, after))| before != after).map(|(word, _)| word * 8).collect()
}

const SHADOW: usize = 0x68;
const EVENT: usize = 0xa8;
const RIP: usize = 0x578;
const RAX: usize = 0x5f8;
const DR6: usize = 0x568;
const CLEAN: usize = 0xc0;

fn handle(frame: &mut Frame, vmcb: &mut Vmcb, exit: u32) -> u32 {
    LIGHT_HANDLERS[exit as usize](frame, vmcb, exit)
}

#[test]
fn a_null_hypercall_touches_what_it_answers_with() {
    let (_, mut frame, mut vmcb, _) = machine();
    vmcb.set_rax(1);
    let before = bytes(&vmcb);
    assert_eq!(handle(&mut frame, &mut vmcb, code::VMMCALL), 0);
    assert_eq!(changes(&before, &vmcb), [SHADOW, RIP, RAX]);
    assert_eq!((vmcb.rax(), vmcb.rip()), (0, 0x1003));
    assert_eq!(fakes::take_log(), [], "no register of the machine");
    assert!((0..16).all(|register| register == number::RAX || frame.get(&vmcb, register) == 0));
}

#[test]
fn hypercalls_are_for_the_kernel_and_unknown_ones_say_so() {
    let (_, mut frame, mut vmcb, _) = machine();
    vmcb.set_rax(77);
    handle(&mut frame, &mut vmcb, code::VMMCALL);
    assert_eq!(vmcb.rax() as i64, -1000);
    vmcb.set_rax(1);
    vmcb.set_cpl(3);
    handle(&mut frame, &mut vmcb, code::VMMCALL);
    assert_eq!(vmcb.rax() as i64, -1);
}

#[test]
fn the_attention_word_is_what_a_light_exit_returns() {
    let (vcpu, mut frame, mut vmcb, _) = machine();
    vcpu.attention.raise(Reasons::INBOX);
    assert_eq!(handle(&mut frame, &mut vmcb, code::VMMCALL), Reasons::INBOX.bits());
}

#[test]
fn who_steps_gets_the_trap_of_an_instruction_that_exited() {
    let (_, mut frame, mut vmcb, _) = machine();
    vmcb.set_rflags(flags::RESERVED | flags::TRAP | flags::RESUME);
    let before = bytes(&vmcb);
    handle(&mut frame, &mut vmcb, code::VMMCALL);
    assert_eq!(changes(&before, &vmcb), [SHADOW, EVENT, CLEAN, DR6, 0x570, RIP, RAX]);
    assert_eq!(vmcb.event(), event::VALID | event::EXCEPTION | 1);
    assert_eq!(vmcb.dr6() & (1 << 14), 1 << 14);
    assert_eq!(vmcb.rflags(), flags::RESERVED | flags::TRAP, "RF is over");
    assert_eq!(vmcb.clean(), part::ALL & !part::DEBUG_REGISTERS, "DR6 has to be loaded again");
}

#[test]
fn cpuid_answers_in_four_registers() {
    let (vcpu, mut frame, mut vmcb, _) = machine();
    vmcb.set_rax(0xffff_ffff_4000_0000);
    frame.set_rcx(u64::MAX);
    let before = bytes(&vmcb);
    assert_eq!(handle(&mut frame, &mut vmcb, code::CPUID), 0);
    assert_eq!(changes(&before, &vmcb), [SHADOW, RIP, RAX]);
    let [eax, ebx, ecx, edx] = vcpu.cpuid.get(0x4000_0000, 0).registers;
    let answer = [vmcb.rax(), frame.rbx(), frame.rcx(), frame.rdx()];
    assert_eq!(answer, [eax, ebx, ecx, edx].map(u64::from), "the high halves are cleared");
    assert_eq!(&ebx.to_le_bytes(), b"KVMK");
    assert_eq!(vmcb.rip(), 0x1002);
    assert_eq!(fakes::take_log(), []);
}

#[test]
fn cpuid_follows_cr4() {
    let (_, mut frame, mut vmcb, _) = machine();
    let mut osxsave = |cr4| {
        vmcb.set_cr4(cr4);
        vmcb.set_rax(1);
        handle(&mut frame, &mut vmcb, code::CPUID);
        frame.rcx() & 1 << 27 != 0
    };
    assert!(!osxsave(0) && osxsave(1 << 18));
}

/// An access to an MSR by the full tier: the value that was read, or the exception.
fn msr(number: u32, write: Option<u64>) -> Result<u64, u64> {
    let (vcpu, mut frame, mut vmcb, _) = machine();
    msr_of(vcpu, &mut frame, &mut vmcb, number, write)
}

fn msr_of(
    vcpu: &'static Vcpu,
    frame: &mut Frame,
    vmcb: &mut Vmcb,
    number: u32,
    write: Option<u64>,
) -> Result<u64, u64> {
    vmcb.set_event(0);
    frame.set_rcx(number.into());
    vmcb.set_exit_info([u64::from(write.is_some()), 0]);
    if let Some(value) = write {
        vmcb.set_rax(value & 0xffff_ffff);
        frame.set_rdx(value >> 32);
    }
    if handle(frame, vmcb, code::MSR) == Code::FULL {
        super::msr::full(frame, vmcb, vcpu, vmcb.rip() + 2);
    }
    if vmcb.event() & event::VALID != 0 { Err(vmcb.event()) } else { Ok(frame.rdx() << 32 | vmcb.rax()) }
}

const GP: u64 = event::VALID | event::EXCEPTION | event::ERROR_CODE | 13;

#[test]
fn every_msr_is_answered() {
    let (vcpu, mut frame, mut vmcb, _) = machine();
    let numbers = (0..0x2000).chain(0x4b56_4d00..0x4b56_4d10).chain(0xc000_0000..0xc000_2000);
    for number in numbers.chain(0xc001_0000..0xc001_2000).chain([u32::MAX]) {
        for write in [None, Some(0), Some(u64::MAX)] {
            let result = msr_of(vcpu, &mut frame, &mut vmcb, number, write);
            assert!(matches!(result, Ok(_) | Err(GP)), "{number:#x} {write:?}: {result:x?}");
        }
    }
}

#[test]
fn registers_that_only_keep_their_value() {
    let (vcpu, mut frame, mut vmcb, _) = machine();
    assert_eq!(
        msr_of(vcpu, &mut frame, &mut vmcb, 0x250, Some(0x0606_0606_0606_0600)),
        Ok(0x0606_0606_0606_0600)
    );
    assert_eq!(msr_of(vcpu, &mut frame, &mut vmcb, 0x250, None), Ok(0x0606_0606_0606_0600));
    assert_eq!(msr(0x250, Some(2)), Err(GP), "there is no memory type 2");
    assert_eq!(msr(0x277, Some(0x0007_0406_0007_0406)), Ok(0x0007_0406_0007_0406));
    assert_eq!(msr(0x277, Some(2)), Err(GP));
}

#[test]
fn efer_hides_svm() {
    let (vcpu, mut frame, mut vmcb, _) = machine();
    vmcb.set_efer(crate::regs::efer::SVME);
    assert_eq!(msr_of(vcpu, &mut frame, &mut vmcb, 0xc000_0080, None), Ok(0));
    assert_eq!(msr_of(vcpu, &mut frame, &mut vmcb, 0xc000_0080, Some(1 << 12)), Err(GP), "no SVME");
    assert_eq!(msr_of(vcpu, &mut frame, &mut vmcb, 0xc000_0080, Some(0x901)), Ok(0x901));
    assert_eq!(vmcb.efer(), 0x901 | crate::regs::efer::SVME, "VMRUN demands it");
    vmcb.set_cr0(crate::regs::cr0::PG);
    assert_eq!(msr_of(vcpu, &mut frame, &mut vmcb, 0xc000_0080, Some(1)), Err(GP), "LME under paging");
}

#[test]
fn halt_is_light_when_something_is_there() {
    let (_, mut frame, mut vmcb, _) = machine();
    assert_eq!(handle(&mut frame, &mut vmcb, code::HLT), Code::WAIT);
    assert_eq!((vmcb.rip(), vmcb.interrupt_shadow()), (0x1001, 0), "behind STI;HLT interrupts are taken");
    vmcb.set_interrupt_vector(0x35);
    vmcb.set_interrupts(interrupt::MASKING | interrupt::PENDING | 3 << interrupt::PRIORITY_SHIFT | 2);
    assert_eq!(handle(&mut frame, &mut vmcb, code::HLT), Code::WAIT, "RFLAGS.IF is clear");
    vmcb.set_rflags(flags::RESERVED | flags::INTERRUPT);
    assert_eq!(handle(&mut frame, &mut vmcb, code::HLT), 0);
    vmcb.set_interrupts(interrupt::MASKING | interrupt::PENDING | 3 << interrupt::PRIORITY_SHIFT | 3);
    assert_eq!(handle(&mut frame, &mut vmcb, code::HLT), Code::WAIT, "the task priority masks it");
}

#[test]
fn one_nmi_waits_behind_another_until_iret() {
    let (_, _, mut vmcb, _) = machine();
    let mut nmi = Nmi::default();
    nmi.post();
    nmi.inject(&mut vmcb);
    assert_eq!(vmcb.event(), event::VALID | event::NMI | 2);
    assert!(crate::svm::intercept::has_iret(&vmcb));
    vmcb.set_event(0);
    nmi.post();
    nmi.post();
    nmi.inject(&mut vmcb);
    assert_eq!(vmcb.event(), 0, "masked");
    nmi.iret(&mut vmcb);
    nmi.inject(&mut vmcb);
    assert_eq!(vmcb.event(), 0, "the IRET has yet to be executed");
    vmcb.set_rip(0x2000);
    nmi.inject(&mut vmcb);
    assert_eq!(vmcb.event(), event::VALID | event::NMI | 2);
    vmcb.set_event(0);
    nmi.iret(&mut vmcb);
    vmcb.set_rip(0x3000);
    nmi.inject(&mut vmcb);
    assert_eq!(vmcb.event(), 0, "two that came while one was in service are one");
}

#[test]
fn a_delivery_that_was_cut_short_is_repeated_unless_the_instruction_is() {
    let (_, _, mut vmcb, _) = machine();
    let again = |vmcb: &mut Vmcb, cut_short| {
        vmcb.set_event(0);
        vmcb.set_exit_interrupt(cut_short);
        super::event::deliver_again(vmcb);
        vmcb.event()
    };
    let page_fault = event::VALID | event::EXCEPTION | event::ERROR_CODE | 14 | 5 << 32;
    assert_eq!(again(&mut vmcb, page_fault), page_fault);
    assert_eq!(again(&mut vmcb, event::VALID | event::NMI | 2), event::VALID | event::NMI | 2);
    assert_eq!(again(&mut vmcb, event::VALID | event::SOFTWARE | 0x80), 0);
    assert_eq!(again(&mut vmcb, event::VALID | event::EXCEPTION | 3), 0, "INT3");
    assert_eq!(again(&mut vmcb, event::EXCEPTION | 13), 0, "nothing was being delivered");
    assert_eq!(
        again(&mut vmcb, event::VALID | event::INTERRUPT | 0x30),
        0,
        "interrupts are offered, not injected"
    );
    assert_eq!(vmcb.interrupts() & interrupt::PENDING, interrupt::PENDING);
    vmcb.set_interrupts(vmcb.interrupts() & !interrupt::PENDING);
    assert_eq!(again(&mut vmcb, event::VALID | event::EXCEPTION | 0x30), 0, "no exception has such a vector");
    assert_eq!(vmcb.interrupts() & interrupt::PENDING, interrupt::PENDING);
}

/// Tables on the host's heap, for ever.
struct Heap;

impl Tables for Heap {
    fn allocate(&mut self, bytes: u64) -> Option<PhysAddr> {
        let words = vec![0_u64; 2 * bytes as usize / 8].leak();
        Some(PhysAddr((words.as_ptr() as u64).next_multiple_of(bytes)))
    }
    fn free(&mut self, _: PhysAddr, _: u64) {}
    fn read(&self, table: PhysAddr, index: usize) -> u64 {
        // SAFETY: a table that was allocated, and an index in it.
        unsafe { (table.0 as *const u64).add(index).read() }
    }
    fn write(&mut self, table: PhysAddr, index: usize, entry: u64) {
        // SAFETY: as above.
        unsafe { (table.0 as *mut u64).add(index).write(entry) }
    }
    fn invalidate(&mut self, _: u64, _: u64) {}
}

#[test]
fn a_first_touch_maps_its_block_by_a_light_exit() {
    const HOST: u64 = 0x8_4020_0000;
    const WRITE: u64 = 1 << 1 | 1 << 2;
    let mut table = PageTable::new(Nested::new(true, 40), &mut Heap).unwrap();
    let size = 4 * BLOCK;
    table.map_on_demand(&mut Heap, 0, PhysAddr(HOST), size, NestedAttributes::RAM).unwrap();
    let piece = Piece { guest: 0, size, host: HOST };
    let (_, mut frame, mut vmcb) = machine_of(piece, Some(table.blocks()));
    let mut touch = |info, address| {
        vmcb.set_exit_info([info, address]);
        let before = bytes(&vmcb);
        let code = turnstile_nested_page_fault(&mut frame, &mut vmcb, code::NESTED_PAGE_FAULT);
        assert_eq!(changes(&before, &vmcb), [0_usize; 0], "the guest does again what it did");
        assert_eq!(fakes::take_log(), [], "no register of the machine");
        code
    };
    assert_eq!(touch(WRITE, BLOCK + 0x123), 0);
    assert_eq!(touch(WRITE, BLOCK + 0x123), 0, "another vCPU was faster");
    assert_eq!(touch(1 | WRITE, BLOCK), Code::FULL, "what is there and does not allow it is no first touch");
    assert_eq!(touch(WRITE, size), Code::FULL, "no RAM");
    let at = |address| table.translate(&Heap, address).map(|found| found.address.0);
    assert_eq!(at(BLOCK + 8), Some(HOST + BLOCK + 8));
    assert_eq!((at(0), at(2 * BLOCK)), (None, None));
}

#[test]
fn a_guests_barrier_for_predictions_is_one() {
    let (vcpu, mut frame, mut vmcb, _) = machine();
    let mut write = |value: u64| {
        let mut place = |register, value| frame.set(&mut vmcb, register, value);
        place(number::RCX, 0x49);
        place(number::RAX, value);
        place(number::RDX, 0);
        vmcb.set_exit_info([1, 0]);
        msr::full(&mut frame, &mut vmcb, vcpu, 0x1002);
        (vmcb.event() & event::VALID != 0, fakes::take_log())
    };
    assert_eq!(write(1), (false, vec![]), "the CPU has none");
    crate::svm::pretend_prediction_barrier();
    assert_eq!(write(1), (false, vec![fakes::Access::Write("PRED_CMD", 1)]));
    assert_eq!(write(0), (false, vec![]));
    assert_eq!(write(2), (true, vec![]), "guests are told of no other command");
}
