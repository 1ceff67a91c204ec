// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Exits against a recorder: what they answer, and which registers they touch.

mod faults;
mod lives;
mod pool;
mod services;

use std::boxed::Box;
use std::vec::Vec;

use turnstile_papr::Memory;
use turnstile_papr::hcall::Hcall;
use turnstile_papr::processors::Start;

use super::hcall::TABLE;
use super::*;
use crate::cpu;
use crate::cpu::regs::fakes::{self, Access};
use crate::cpu::regs::{lpcr, msr};
use crate::irq::Presentation;
use crate::memory::{GuestRam, partition};
use crate::vcpu::facility::tests::vcpus;
use crate::vcpu::frame::Entry;
use crate::vm::{BootState, Vm};

const CONFER: u64 = 0xe4;
const FUNCTION: u64 = -2i64 as u64;

/// A vCPU that is resident, and the frame of its stack.
fn resident_vcpu() -> (&'static Vcpu, Frame) {
    let vcpu = vcpus(2)[0];
    crate::vcpu::facility::load(vcpu);
    fakes::take_log();
    (vcpu, wait::frame(vcpu))
}

fn call(frame: &mut Frame, number: u64, argument: u64) -> Answer {
    TABLE.get(number)(resident(frame), Arguments([argument, 0, 0, 0, 0, 0, 0]))
}

/// The full tier, as the vectors reach it.
fn full(frame: &mut Frame, why: u32) -> Entry {
    match frame.vector {
        vector::CALL => entry::full_call(frame, why),
        _ => entry::full(frame, why),
    }
}

/// What the last call has noted.
fn noted(frame: &Frame) -> u32 {
    resident(frame).attention.noted()
}

#[test]
fn a_call_that_only_answers_touches_no_register() {
    let (_, mut frame) = resident_vcpu();
    assert_eq!(call(&mut frame, CONFER, u64::MAX), Answer::SUCCESS);
    assert_eq!(call(&mut frame, CONFER, 2).code, -4i64 as u64, "there is no such vCPU");
    assert_eq!(call(&mut frame, 0x4, 0), Answer::code(FUNCTION));
    assert_eq!(noted(&frame), 0);
    assert_eq!(fakes::take_log(), []);
}

#[test]
fn every_number_is_answered_or_left() {
    let (_, mut frame) = resident_vcpu();
    for number in (0..0x480).step_by(4) {
        resident(&frame).attention.note(0);
        let answer = call(&mut frame, number, 0x1111);
        if noted(&frame) == Code::FULL {
            assert_eq!(answer.value, 0x1111, "{number:#x}");
        }
    }
}

/// Whatever its VM's interrupts are taken in.
#[test]
fn a_vcpu_begins_in_the_byte_order_of_its_start() {
    let (vcpu, mut frame) = resident_vcpu();
    vcpu.vm.set_lpcr(lpcr::ILE, lpcr::ILE);
    for (little_endian, order) in [(false, 0), (true, msr::LE)] {
        crate::vcpu::switch::reset_vcpu(&mut frame, Start { entry: 0x100, argument: 7, little_endian });
        assert_eq!((frame.pc, frame.gpr(3), frame.msr), (0x100, 7, msr::SF | msr::ME | order));
    }
}

#[test]
fn a_full_exit_finds_the_state_of_either_kind_of_interrupt() {
    let (_, mut frame) = resident_vcpu();
    fakes::set("SRR0", 0x1004);
    fakes::set("SRR1", msr::SF | msr::LE);
    fakes::set("HSRR0", 0x2000);
    fakes::set("HSRR1", msr::SF);
    (frame.ctr, frame.xer) = (1, 1);
    frame.set_gpr(5, 1);
    frame.set_gpr(3, 7);
    frame.vector = vector::CALL;
    resident(&frame).attention.note(Code::GIVE_WAY);
    assert_eq!(full(&mut frame, Code::GIVE_WAY), Entry::Some);
    assert_eq!((frame.pc, frame.msr, noted(&frame)), (0x1004, msr::SF | msr::LE, 0));
    assert_eq!((frame.ctr, frame.xer, frame.gpr(5)), (0, 0, 0), "nothing of the hypervisor's is left");
    assert_eq!(frame.gpr(3), 7, "the answer stays");
    frame.vector = vector::MAINTENANCE;
    assert_eq!(full(&mut frame, Code::FULL), Entry::Some);
    assert_eq!((frame.pc, frame.msr), (0x2000, msr::SF));
}

#[test]
fn a_kick_without_a_reason_is_light() {
    let (vcpu, mut frame) = resident_vcpu();
    assert_eq!(entry::light(&mut frame, vector::HYPERVISOR_DOORBELL), 0);
    assert_eq!(fakes::take_log(), []);
    vcpu.attention.raise(Reasons::INBOX);
    assert_eq!(entry::light(&mut frame, vector::HYPERVISOR_DOORBELL), Reasons::INBOX.bits());
}

/// Who hands a vCPU to a run queue rings, and sets no reason: nobody else tells the vCPU that runs there, and without
/// another one that waits there is no tick.
#[test]
fn a_vcpu_that_shares_its_cpu_looks_at_the_queue_when_it_is_rung_for() {
    let (pinned, _) = resident_vcpu();
    let thread = crate::vm::Thread::new(0, 0);
    let vcpu = &*Box::leak(Box::new(Vcpu::new(pinned.vm, 0, cpu::this(), Some(thread))));
    let mut frame = wait::frame(vcpu);
    assert_eq!(
        frame.light.expect("it is a guest's")(&mut frame, vector::HYPERVISOR_DOORBELL),
        Reasons::RESCHEDULE.bits()
    );
}

const PAGE: u64 = 4096;

/// Begins a life of the VM in memory of four pages.
fn begin(vm: &Vm) {
    let ram = Box::leak(vec![0u64; PAGE as usize / 2].into_boxed_slice());
    let memory = GuestRam::new(ram.as_ptr() as u64, 4 * PAGE);
    vm.prepare(0, memory, BootState { pc: 0x100, r3: 0, little_endian: true });
    vm.lifecycle.start();
    assert!(vm.processors.take_start(0).is_some());
}

/// Whoever walks meanwhile finds the entry whole: the partition's own tables are not touched.
#[test]
fn a_process_table_is_registered_by_one_store() {
    const TABLES: u64 = 0x1234_5000;
    let (_, mut frame) = resident_vcpu();
    let vcpu = crate::vcpu::facility::tests::vm(9, Presentation::Xics)[0];
    begin(vcpu.vm);
    crate::vcpu::facility::load(vcpu);
    frame.vcpu = vcpu;
    partition::set(vcpu.vm.lpid(), TABLES, 0);
    fakes::take_log();
    frame.vector = vector::CALL;
    frame.set_gpr(3, Hcall::RegisterProcTbl.number().expect("it is one"));
    frame.set_arguments([0x1d, 0x3000, 0, 0, 0, 0, 0]);
    assert_eq!(full(&mut frame, Code::FULL), Entry::Some);
    assert_eq!(frame.gpr(3), 0);
    assert_eq!(partition::get(vcpu.vm.lpid()), [TABLES, vcpu.vm.process_table()]);
    assert_eq!(vcpu.vm.process_table(), 1 << 63 | 0x3000);
    assert!(fakes::take_log().contains(&Access::Write("TLBIE_LPID", vcpu.vm.lpid().into())));
    // Whoever has a life of its own has tables of its own in it.
    let other = crate::vcpu::facility::tests::vm(10, Presentation::Xics)[0].vm;
    other.prepare(TABLES, GuestRam::default(), BootState::default());
    assert_eq!(partition::get(other.lpid()), [TABLES, 1 << 63]);
    other.end();
    assert_eq!(partition::get(other.lpid()), [0, 0]);
}

#[test]
fn sprg0_is_set_by_a_call() {
    let (_, mut frame) = resident_vcpu();
    assert_eq!(call(&mut frame, 0x24, 0x1234_5678_9abc), Answer::SUCCESS);
    assert_eq!(fakes::take_log(), [Access::Write("SPRG0", 0x1234_5678_9abc)]);
    assert_eq!(noted(&frame), 0, "light");
}

/// Behind a call that the full tier carries out, too: success is zero, and nothing else is left in what it may change.
#[test]
fn a_full_call_leaves_its_answer_alone() {
    let (vcpu, mut frame) = resident_vcpu();
    begin(vcpu.vm);
    frame.vector = vector::CALL;
    for register in 0..13 {
        frame.set_gpr(register, 77);
    }
    frame.set_gpr(3, Hcall::Ipoll.number().expect("it is one"));
    frame.set_arguments([0, 78, 79, 80, 81, 82, 83]);
    assert_eq!(full(&mut frame, Code::FULL), Entry::Some);
    let found: Vec<u64> = (3..13).map(|register| frame.gpr(register)).collect();
    assert_eq!(found, [0, 0, 0xff, 0, 0, 0, 0, 0, 0, 0], "success, nothing presented, no IPI asked for");
    assert_eq!(frame.gpr(0), 0);
}

#[test]
fn a_page_is_initialized_by_a_call() {
    let (vcpu, mut frame) = resident_vcpu();
    begin(vcpu.vm);
    assert!(vcpu.vm.set_word(PAGE, 77) && vcpu.vm.set_word(PAGE - 4, 78));
    frame.vector = vector::CALL;
    let mut initialize = |page: u64| {
        frame.set_gpr(3, 0x2c);
        frame.set_arguments([1 << 15, page, 0, 0, 0, 0, 0]);
        assert_eq!(full(&mut frame, Code::FULL), Entry::Some);
        frame.gpr(3)
    };
    assert_eq!(initialize(PAGE), 0);
    assert_eq!((vcpu.vm.word(PAGE), vcpu.vm.word(PAGE - 4)), (Some(0), Some(78)));
    assert_eq!(initialize(4 * PAGE), -4i64 as u64, "beyond the memory");
}
