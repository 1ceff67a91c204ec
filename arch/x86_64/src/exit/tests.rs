// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Exits on the host: what a handler changes of the control block, of the frame and of the machine, and nothing else.

mod cr8;
mod demand;
mod msr;
mod pool;
mod resets;
mod speculation;

use std::vec::Vec;

use turnstile_vm::attention::Reasons;
use turnstile_vm::lifecycle::OnCrash;

use super::*;
use crate::cpu;
use crate::cpu::regs::fakes;
use crate::cpu::regs::flags;
use crate::cpu::svm::code;
use crate::cpu::svm::vmcb::{Segment, attribute, event, interrupt, part};
use crate::exit::table::{LIGHT_HANDLERS, place};
use crate::exit::tier::Code;
use crate::memory::{GuestRam, Piece};
use crate::state::start::BootState;
use crate::vcpu::frame::number;
use crate::vm::ports::Ports;
use crate::vm::{Vcpu, Vm, VmParts};

pub(super) use msr::msr_of;

/// Bytes of RAM that the test's VM has, from guest physical address zero.
const RAM: usize = 64 * 1024;

/// A VM with a vCPU that executes 64-bit code without paging's being looked at, its frame, and its RAM.
pub(crate) fn machine() -> (&'static Vcpu, Frame, Vmcb, &'static mut [u8]) {
    machine_with(0)
}

/// The same with these features of KVM.
pub(crate) fn machine_with(kvm: u32) -> (&'static Vcpu, Frame, Vmcb, &'static mut [u8]) {
    machine_of_ram(kvm, &[])
}

/// The same with devices at these ports.
pub(crate) fn machine_with_ports(
    ports: &'static [(u16, u16)],
) -> (&'static Vcpu, Frame, Vmcb, &'static mut [u8]) {
    machine_of_ram(0, ports)
}

fn machine_of_ram(kvm: u32, ports: &'static [(u16, u16)]) -> (&'static Vcpu, Frame, Vmcb, &'static mut [u8]) {
    // A page more: RAM is aligned, as page tables in it must be.
    let ram = Box::leak(vec![0u8; RAM + 4096].into_boxed_slice());
    let skip = ram.as_ptr().align_offset(4096);
    let ram = &mut ram[skip..skip + RAM];
    let piece = Piece { guest: 0, size: RAM as u64, host: ram.as_ptr() as u64 };
    let (vcpu, frame, vmcb) = machine_of(GuestRam::new([piece].into_iter()), kvm, ports);
    (vcpu, frame, vmcb, ram)
}

/// The same with RAM of the caller's.
fn machine_of(ram: GuestRam, kvm: u32, ports: &'static [(u16, u16)]) -> (&'static Vcpu, Frame, Vmcb) {
    fakes::reset();
    let vm: &'static Vm = Box::leak(Box::new(Vm::new(VmParts {
        id: 0,
        name: "test".into(),
        on_crash: OnCrash::Stop,
        statistics: false,
        x2apic: true,
        kvm: Some(kvm),
        ports: Box::leak(Box::new(Ports::of(ports))),
        vcpus: 1,
    })));
    let vcpu: &'static Vcpu = Box::leak(Box::new(Vcpu::new(vm, 0, cpu::this(), None)));
    vm.set_vcpus(vec![vcpu]);
    vm.prepare(0, ram, BootState::default());
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

/// The offsets of the eight-byte words in which two control blocks differ, but for the exit code, which the CPU writes.
fn changes(before: &[u8], after: &Vmcb) -> Vec<usize> {
    let after = bytes(after);
    let words = before.chunks_exact(8).zip(after.chunks_exact(8)).enumerate();
    let changed = words.filter(|(_, (before, after))| before != after).map(|(word, _)| word * 8);
    changed.filter(|offset| *offset != EXIT_CODE).collect()
}

const SHADOW: usize = 0x68;
const EXIT_CODE: usize = 0x70;
const EVENT: usize = 0xa8;
const RIP: usize = 0x578;
const RAX: usize = 0x5f8;
const DR6: usize = 0x568;
const CLEAN: usize = 0xc0;

/// Handles an exit as the run loop does: RSI and RDX are in the CPU.
pub(crate) fn handle(frame: &mut Frame, vmcb: &mut Vmcb, exit: u32) -> u32 {
    frame.vmcb = vmcb;
    vmcb.set_exit_code(exit.into());
    let (rsi, rdx) = (frame.rsi(), frame.rdx());
    LIGHT_HANDLERS[place(exit)](frame, rsi, rdx)
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
    vcpu.attention.raise(Reasons::MAILBOX);
    assert_eq!(handle(&mut frame, &mut vmcb, code::VMMCALL), Reasons::MAILBOX.bits());
}

#[test]
fn who_steps_gets_the_trap_of_an_instruction_that_exited() {
    let (_, mut frame, mut vmcb, _) = machine();
    vmcb.set_rflags(flags::RESERVED | flags::TRAP | flags::RESUME);
    let before = bytes(&vmcb);
    assert_eq!(handle(&mut frame, &mut vmcb, code::VMMCALL), Code::STEPPED);
    assert_eq!(changes(&before, &vmcb), [SHADOW, RIP, RAX], "the rest is for the full tier");
    crate::cpu::svm::event::executed(&mut vmcb);
    assert_eq!(changes(&before, &vmcb), [SHADOW, EVENT, CLEAN, DR6, 0x570, RIP, RAX]);
    assert_eq!(vmcb.event(), event::VALID | event::EXCEPTION | 1);
    assert_eq!(vmcb.dr6() & (1 << 14), 1 << 14);
    assert_eq!(vmcb.rflags(), flags::RESERVED | flags::TRAP, "RF is over");
    assert_eq!(vmcb.clean(), part::ALL & !part::DEBUG_REGISTERS, "DR6 has to be loaded again");
}

#[test]
fn a_port_without_a_device_is_light_and_reads_ones() {
    let (_, mut frame, mut vmcb, _) = machine();
    // IN and OUT of one, two and four bytes.
    for (size, expected) in [(1, 0x1122_3344_5566_77ff), (2, 0x1122_3344_5566_ffff), (4, 0xffff_ffff)] {
        for read in [1, 0] {
            vmcb.set_rip(0x1000);
            vmcb.set_rax(0x1122_3344_5566_7788);
            vmcb.set_exit_info([0x3f8 << 16 | size << 4 | read, 0x1001]);
            let before = bytes(&vmcb);
            assert_eq!(handle(&mut frame, &mut vmcb, code::IOIO), 0);
            let rax = if read == 1 { expected } else { 0x1122_3344_5566_7788 };
            assert_eq!((vmcb.rax(), vmcb.rip()), (rax, 0x1001));
            let changed = changes(&before, &vmcb);
            assert!(changed.iter().all(|offset| [SHADOW, RIP, RAX].contains(offset)), "{changed:?}");
        }
    }
    vmcb.set_exit_info([0x3f8 << 16 | 1 << 4 | 1 << 2, 0x1001]);
    assert_eq!(handle(&mut frame, &mut vmcb, code::IOIO), Code::FULL, "strings are the full tier's");
}

#[test]
fn mask_registers_read_as_they_were_written() {
    let (vcpu, mut frame, mut vmcb, _) = machine();
    let mut read = |port: u64| {
        vmcb.set_rax(0);
        vmcb.set_exit_info([port << 16 | 1 << 4 | 1, 0x1002]);
        (handle(&mut frame, &mut vmcb, code::IOIO), vmcb.rax())
    };
    vcpu.vm.write_port(0x21, 0x5a);
    vcpu.vm.write_port(0xa1, 0xc3);
    assert_eq!([read(0x21), read(0xa1)], [(0, 0x5a), (0, 0xc3)]);
    // ICW1 clears the mask of one.
    vcpu.vm.write_port(0x20, 0x11);
    assert_eq!([read(0x21), read(0xa1)], [(0, 0), (0, 0xc3)]);
    // A poll command makes the next read another.
    vcpu.vm.write_port(0xa0, 0x0c);
    assert_eq!([read(0x21).0, read(0xa1).0], [0, Code::FULL]);
    assert_eq!(vcpu.vm.read_port(0xa1) & 0x80, 0, "nothing waits");
    assert_eq!(read(0xa1), (0, 0xc3));
    vcpu.vm.board.reset();
    assert_eq!(read(0xa1), (0, 0), "a new life");
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

const GP: u64 = event::VALID | event::EXCEPTION | event::ERROR_CODE | 13;
const UD: u64 = event::VALID | event::EXCEPTION | 6;

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
