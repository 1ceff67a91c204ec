// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Exits on the host: what a handler changes of the control block, of the frame and of the machine, and nothing else.

use std::vec::Vec;

use turnstile_mitigation::x86_64::Cpu;
use turnstile_paging::{BLOCK, Blocks, Nested, NestedAttributes, PageTable, PhysAddr, Tables};
use turnstile_vm::attention::Reasons;
use turnstile_vm::lifecycle::OnCrash;
use turnstile_vm::startup::Start;

use super::*;
use crate::board::mitigation::tests::{EMULATED, ZEN2, ZEN5};
use crate::board::mitigation::{self, Choice};
use crate::cpu;
use crate::cpu::regs::fakes;
use crate::cpu::regs::flags;
use crate::cpu::svm::vmcb::{Segment, attribute, event, interrupt, part};
use crate::exit::table::LIGHT_HANDLERS;
use crate::memory::{GuestRam, Piece};
use crate::state::owned::Owned;
use crate::state::start::BootState;
use crate::vcpu::frame::number;
use crate::vm::Vcpu;
use crate::vm::{Vm, VmParts};

/// Bytes of RAM that the test's VM has, from guest physical address zero.
const RAM: usize = 64 * 1024;

/// A VM with a vCPU that executes 64-bit code without paging's being looked at, its frame, and its RAM.
pub(crate) fn machine() -> (&'static Vcpu, Frame, Vmcb, &'static mut [u8]) {
    machine_with(0)
}

/// The same with these features of KVM.
pub(crate) fn machine_with(kvm: u32) -> (&'static Vcpu, Frame, Vmcb, &'static mut [u8]) {
    // A page more: RAM is aligned, as page tables in it must be.
    let ram = Box::leak(vec![0u8; RAM + 4096].into_boxed_slice());
    let skip = ram.as_ptr().align_offset(4096);
    let ram = &mut ram[skip..skip + RAM];
    let piece = Piece { guest: 0, size: RAM as u64, host: ram.as_ptr() as u64 };
    let (vcpu, frame, vmcb) = machine_of(piece, None, kvm);
    (vcpu, frame, vmcb, ram)
}

/// The same with RAM of the caller's.
fn machine_of(piece: Piece, blocks: Option<Blocks<Nested>>, kvm: u32) -> (&'static Vcpu, Frame, Vmcb) {
    fakes::reset();
    let vm: &'static Vm = Box::leak(Box::new(Vm::new(VmParts {
        id: 0,
        name: "test".into(),
        on_crash: OnCrash::Stop,
        statistics: false,
        x2apic: true,
        kvm: Some(kvm),
        vcpus: 1,
    })));
    let vcpu: &'static Vcpu = Box::leak(Box::new(Vcpu::new(vm, 0, cpu::this(), None)));
    vm.set_vcpus(vec![vcpu]);
    vm.prepare(0, GuestRam::new([piece].into_iter()), blocks, BootState::default());
    vm.lifecycle.start();
    let mut vmcb = Vmcb::new();
    vmcb.set_efer(crate::cpu::regs::efer::LMA);
    vmcb.set_cs(Segment { attributes: attribute::LONG_CODE, ..Segment::default() });
    vmcb.set_rip(0x1000);
    vmcb.set_interrupts(interrupt::MASKING);
    vmcb.set_rflags(flags::RESERVED);
    vmcb.set_interrupt_shadow(1);
    vmcb.set_clean(part::ALL);
    let frame = Frame::new(vcpu, core::ptr::null_mut(), None);
    fakes::take_log();
    (vcpu, frame, vmcb)
}

/// The bytes of a control block.
pub(super) fn bytes(vmcb: &Vmcb) -> Vec<u8> {
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

pub(super) fn msr_of(
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
const UD: u64 = event::VALID | event::EXCEPTION | 6;

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
fn xsetbv_wants_osxsave_before_all_else() {
    use crate::cpu::regs::cr4;
    let (vcpu, mut frame, mut vmcb, _) = machine();
    // The host of the tests offers nothing of XCR0: whatever is written is #GP, if it gets so far.
    let mut outcome = |cr4, rcx, cpl| {
        vmcb.set_cr4(cr4);
        vmcb.set_cpl(cpl);
        vmcb.set_event(0);
        frame.set_rcx(rcx);
        super::msr::xsetbv(&frame, &mut vmcb, vcpu, 0x1003);
        assert_eq!(vmcb.rip(), 0x1000);
        vmcb.event()
    };
    for (rcx, cpl) in [(0, 0), (1, 0), (0, 3)] {
        assert_eq!(outcome(0, rcx, cpl), UD);
        assert_eq!(outcome(!cr4::OSXSAVE, rcx, cpl), UD);
        assert_eq!(outcome(cr4::OSXSAVE, rcx, cpl), GP);
    }
}

#[test]
fn efer_hides_svm() {
    let (vcpu, mut frame, mut vmcb, _) = machine();
    vmcb.set_efer(crate::cpu::regs::efer::SVME);
    assert_eq!(msr_of(vcpu, &mut frame, &mut vmcb, 0xc000_0080, None), Ok(0));
    assert_eq!(msr_of(vcpu, &mut frame, &mut vmcb, 0xc000_0080, Some(1 << 12)), Err(GP), "no SVME");
    assert_eq!(msr_of(vcpu, &mut frame, &mut vmcb, 0xc000_0080, Some(0x901)), Ok(0x901));
    assert_eq!(vmcb.efer(), 0x901 | crate::cpu::regs::efer::SVME, "VMRUN demands it");
    vmcb.set_cr0(crate::cpu::regs::cr0::PG);
    assert_eq!(msr_of(vcpu, &mut frame, &mut vmcb, 0xc000_0080, Some(1)), Err(GP), "LME under paging");
}

#[test]
fn who_resumes_begins_in_real_mode_where_memory_says() {
    use turnstile_vm::startup::Start;
    let (vcpu, mut frame, mut vmcb, ram) = machine();
    ram[0x467..0x46b].copy_from_slice(&[0x34, 0x12, 0x00, 0xf8]);
    let mut begin = |start| {
        frame.clear();
        crate::vcpu::switch::reset_vcpu(&mut frame, &mut vmcb, vcpu, start);
        let cs = vmcb.cs();
        (vmcb.rip(), cs.selector, cs.base, cs.attributes, vmcb.cr0() & 1, vmcb.efer())
    };
    let real =
        |rip, selector, base| (rip, selector, base, attribute::REAL_CODE, 0, crate::cpu::regs::efer::SVME);
    assert_eq!(begin(Start::Resume), real(0x1234, 0xf800, 0xf_8000));
    assert_eq!(begin(Start::Startup(0x9a)), real(0, 0x9a00, 0x9_a000));
}

#[test]
fn of_processors_that_are_reset_the_first_resumes() {
    use turnstile_vm::startup::Start;
    let (vcpu, ..) = machine();
    let startup = &vcpu.vm.startup;
    assert_eq!(startup.take_start(0), Some(Start::Boot));
    vcpu.attention.take();
    vcpu.vm.reset_processors();
    assert!(vcpu.attention.take().contains(Reasons::INIT | Reasons::START), "it has to look");
    assert!(!startup.is_on(0));
    assert_eq!(startup.take_start(0), Some(Start::Resume));
}

#[test]
fn of_processors_that_reset_all_at_once_the_first_decides() {
    let vcpus = crate::vcpu::facility::tests::vcpus(2);
    let (vm, startup) = (vcpus[0].vm, &vcpus[0].vm.startup);
    startup.reset();
    assert!(startup.take_start(0).is_some() && startup.startup(1, 9) && startup.take_start(1).is_some());
    // The shutdown code is good for one reset.
    let mut resumes = true;
    let mut begins = |index| vm.reset_by(index, || core::mem::take(&mut resumes));
    assert!(!begins(1), "the first vCPU goes on");
    assert!(!begins(0), "it has got the other one's INIT");
    for vcpu in &vcpus {
        assert!(vcpu.attention.take().contains(Reasons::INIT));
    }
    assert_eq!(startup.take_start(0), Some(Start::Resume));
    assert!(!begins(1), "its INIT, which it has not looked at, comes before that, too");
    assert!(begins(0), "now there is no code");
    // Somebody else has sent the INIT, and is about to say so.
    vcpus[0].attention.take();
    assert!(startup.init(0) && !begins(0));
    assert!(vcpus[0].attention.is_pending(), "it does not enter its guest, which has shut down");
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
fn a_delivery_that_was_cut_short_is_repeated_unless_the_instruction_is() {
    let (_, _, mut vmcb, _) = machine();
    let again = |vmcb: &mut Vmcb, cut_short| {
        vmcb.set_event(0);
        vmcb.set_exit_interrupt(cut_short);
        crate::cpu::svm::event::deliver_again(vmcb);
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
    let (_, mut frame, mut vmcb) = machine_of(piece, Some(table.blocks()), 0);
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

/// Executes WRMSR, or RDMSR without a value; says whether that faulted, what it wrote to the machine, and what it read.
fn access_msr(
    vcpu: &'static Vcpu,
    frame: &mut Frame,
    vmcb: &mut Vmcb,
    msr: u64,
    value: Option<u64>,
) -> (bool, Vec<fakes::Access>, u64) {
    let mut place = |register, value| frame.set(vmcb, register, value);
    place(number::RCX, msr);
    place(number::RAX, value.unwrap_or(0) & 0xffff_ffff);
    place(number::RDX, value.unwrap_or(0) >> 32);
    vmcb.set_exit_info([value.is_some().into(), 0]);
    vmcb.set_event(0);
    msr::full(frame, vmcb, vcpu, 0x1002);
    let read = frame.rdx() << 32 | vmcb.rax();
    (vmcb.event() & event::VALID != 0, fakes::take_log(), read)
}

/// A guest's machine on such a CPU.
fn machine_on(cpu: &Cpu, choice: Choice) -> (&'static Vcpu, Frame, Vmcb) {
    mitigation::pretend(cpu, choice);
    let (vcpu, frame, vmcb, _) = machine();
    (vcpu, frame, vmcb)
}

#[test]
fn a_guests_barrier_for_predictions_is_one() {
    let barriers = |cpu, value| {
        let (vcpu, mut frame, mut vmcb) = machine_on(cpu, Choice::Auto);
        let (faulted, log, _) = access_msr(vcpu, &mut frame, &mut vmcb, 0x49, Some(value));
        (faulted, log)
    };
    let command = |value| vec![fakes::Access::Write("PRED_CMD", value)];
    assert_eq!(barriers(&EMULATED, 1), (false, vec![]), "the CPU has none");
    assert_eq!(barriers(&ZEN2, 1), (false, command(1)));
    assert_eq!(barriers(&ZEN2, 0), (false, vec![]));
    assert_eq!(barriers(&ZEN2, 2), (true, vec![]), "guests are told of no other command");
    assert_eq!(barriers(&ZEN2, 0x80), (true, vec![]), "nor of the barrier that keeps branch types");
    assert_eq!(barriers(&ZEN5, 0x80), (false, command(0x80)));
    // A CPU with that barrier alone refuses IBPB.
    let other = Cpu { extended_8_ebx: ZEN5.extended_8_ebx & !(1 << 12), ..ZEN5 };
    assert_eq!(barriers(&other, 1), (false, vec![]));
    assert_eq!(barriers(&other, 0x81), (false, command(0x80)), "what it has not is not written");
}

#[test]
fn spec_ctrl_is_the_guests_with_the_hypervisors_bits() {
    const MSR: u64 = 0x48;
    let (vcpu, mut frame, mut vmcb) = machine_on(&ZEN2, Choice::Auto);
    // The hypervisor's SSBD.
    crate::vcpu::switch::reset_vcpu(&mut frame, &mut vmcb, vcpu, Start::Boot);
    let mut access = |value| {
        let (faulted, log, read) = access_msr(vcpu, &mut frame, &mut vmcb, MSR, value);
        assert_eq!(log, [], "the run loop writes it");
        (faulted, read, frame.spec_ctrl)
    };
    assert_eq!(access(None), (false, 0, [4, 4]));
    assert_eq!(access(Some(3)).2, [7, 4]);
    assert_eq!(access(None), (false, 3, [7, 4]));
    assert!(access(Some(0x80)).0, "PSFD is not offered");
    assert!(access(Some(1 << 32)).0);
    assert_eq!(access(None), (false, 3, [7, 4]));
    assert_eq!(access(Some(0)).2, [4, 4]);
    assert_eq!(access(Some(3)).2, [7, 4]);
    // Nothing is left of it in the next life.
    vcpu.owned(Owned::reset);
    crate::vcpu::switch::reset_vcpu(&mut frame, &mut vmcb, vcpu, Start::Boot);
    assert_eq!((vcpu.owned(|owned| owned.spec_ctrl), frame.spec_ctrl), (0, [4, 4]));
}

#[test]
fn without_a_switch_there_is_no_spec_ctrl() {
    for (cpu, choice) in [(&EMULATED, Choice::Auto), (&ZEN2, Choice::Off)] {
        let (vcpu, mut frame, mut vmcb) = machine_on(cpu, choice);
        assert!(access_msr(vcpu, &mut frame, &mut vmcb, 0x48, None).0);
        assert!(access_msr(vcpu, &mut frame, &mut vmcb, 0x48, Some(0)).0);
    }
}

#[test]
fn automatic_ibrs_is_the_guests_where_it_is_offered() {
    const EFER: u64 = 0xc000_0080;
    let on = crate::cpu::regs::efer::AIBRSE;
    for (cpu, has) in [(&ZEN5, true), (&ZEN2, false)] {
        let (vcpu, mut frame, mut vmcb) = machine_on(cpu, Choice::Auto);
        let old = vmcb.efer();
        assert_eq!(access_msr(vcpu, &mut frame, &mut vmcb, EFER, Some(on)).0, !has);
        assert_eq!(vmcb.efer(), if has { old | on } else { old });
    }
}

#[test]
fn cr8_is_written_as_the_cpu_does() {
    let (vcpu, mut frame, mut vmcb, ram) = machine();
    // Its code is found without paging: 32-bit code, where LOCK makes CR0 CR8.
    vmcb.set_efer(0);
    vmcb.set_cs(Segment { attributes: attribute::FLAT_CODE, limit: u32::MAX, ..Segment::default() });
    ram[0x1000..0x1004].copy_from_slice(&[0xf0, 0x0f, 0x22, 0xc1]);
    let mut write = |vmcb: &mut Vmcb, value| {
        vmcb.set_event(0);
        vmcb.set_rip(0x1000);
        vmcb.set_interrupt_shadow(1);
        frame.set_rcx(value);
        control::write_cr8(&frame, vmcb, &vcpu.vm.life().ram);
        (vmcb.event(), vmcb.rip(), vmcb.interrupts())
    };
    let offered = interrupt::MASKING | interrupt::PENDING | 6 << interrupt::PRIORITY_SHIFT;
    vmcb.set_interrupts(offered | 7);
    assert_eq!(write(&mut vmcb, 5), (0, 0x1004, offered | 5), "what is offered stays as it is");
    assert_eq!(vmcb.interrupt_shadow(), 0);
    assert_eq!(write(&mut vmcb, 0xffff_ffff_0000_000f), (0, 0x1004, offered | 15), "half of the register");
    assert_eq!(write(&mut vmcb, 0x10), (GP, 0x1000, offered | 15), "bits that must be zero");
    vmcb.set_cpl(3);
    assert_eq!(write(&mut vmcb, 0), (GP, 0x1000, offered | 15));
    vmcb.set_cpl(0);
    ram[0x1001] = 0x90;
    assert_eq!(write(&mut vmcb, 0), (UD, 0x1000, offered | 15), "no such instruction any longer");
}

#[test]
fn a_cr8_write_of_which_not_all_is_there_is_executed_again() {
    let (vcpu, frame, mut vmcb, ram) = machine();
    vmcb.set_efer(0);
    vmcb.set_cs(Segment { attributes: attribute::FLAT_CODE, limit: u32::MAX, ..Segment::default() });
    // The last bytes of RAM.
    ram[RAM - 3..].copy_from_slice(&[0xf0, 0x0f, 0x22]);
    let mut write = |rip| {
        vmcb.set_event(0);
        vmcb.set_rip(rip);
        control::write_cr8(&frame, &mut vmcb, &vcpu.vm.life().ram);
        (vmcb.event(), vmcb.rip())
    };
    let end = RAM as u64;
    assert_eq!(write(end - 3), (0, end - 3));
    assert_eq!(write(end), (0, end), "nor any of it");
    assert_eq!(write(end - 2), (0, end - 2), "MOV to CR0, as far as it goes");
    ram[RAM - 3..].copy_from_slice(&[0xf0, 0x0f, 0xff]);
    assert_eq!(write(end - 3), (UD, end - 3), "UD0");
}
