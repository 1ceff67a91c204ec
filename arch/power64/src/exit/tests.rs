// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Exits against a recorder: what they answer, and which registers they touch.

use core::ptr;
use std::boxed::Box;

use super::hcall::TABLE;
use super::*;
use crate::cpu;
use crate::facility::tests::vcpus;
use crate::regs::fakes::{self, Access};
use crate::regs::{lpcr, msr};

const CONFER: u64 = 0xe4;
const FUNCTION: u64 = -2i64 as u64;

/// A vCPU that is resident, and the frame of its stack.
fn resident_vcpu() -> (&'static Vcpu, Frame) {
    let vcpu = vcpus(2)[0];
    crate::facility::load(vcpu);
    fakes::take_log();
    (vcpu, Frame::new(cpu::this(), vcpu, ptr::null()))
}

fn call(frame: &mut Frame, number: u64, argument: u64) -> Answer {
    TABLE.get(number)(frame, Arguments([argument, 0, 0, 0, 0, 0, 0]))
}

#[test]
fn a_call_that_only_answers_touches_no_register() {
    let (_, mut frame) = resident_vcpu();
    assert_eq!(call(&mut frame, CONFER, u64::MAX), Answer::SUCCESS);
    assert_eq!(call(&mut frame, CONFER, 2).code, -4i64 as u64, "there is no such vCPU");
    assert_eq!(call(&mut frame, 0x4, 0), Answer::code(FUNCTION));
    assert_eq!(frame.why, 0);
    assert_eq!(fakes::take_log(), []);
}

#[test]
fn every_number_is_answered_or_left() {
    let (_, mut frame) = resident_vcpu();
    for number in (0..0x480).step_by(4) {
        frame.set_gpr(3, number);
        frame.why = 0;
        let answer = call(&mut frame, number, 0x1111);
        if frame.why == Code::FULL {
            assert_eq!((answer.code, frame.gpr(4)), (number, 0x1111), "{number:#x}");
        }
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
    frame.why = Code::GIVE_WAY;
    entry::FULL(&mut frame, Code::GIVE_WAY);
    assert_eq!((frame.pc, frame.msr, frame.why), (0x1004, msr::SF | msr::LE, 0));
    assert_eq!((frame.ctr, frame.xer, frame.gpr(5)), (0, 0, 0), "nothing of the hypervisor's is left");
    assert_eq!(frame.gpr(3), 7, "the answer stays");
    frame.vector = vector::MAINTENANCE;
    entry::FULL(&mut frame, Code::FULL);
    assert_eq!((frame.pc, frame.msr), (0x2000, msr::SF));
}

#[test]
fn what_the_cpu_does_not_know_is_a_program_interrupt() {
    let (_, mut frame) = resident_vcpu();
    fakes::set("LPCR", lpcr::ILE | lpcr::AIL_3);
    fakes::set("HSRR0", 0xc000_0000_0000_1000);
    let on = msr::IR | msr::DR;
    fakes::set("HSRR1", msr::SF | msr::EE | msr::PR | msr::ME | msr::FP | on | msr::LE);
    frame.vector = vector::EMULATION_ASSISTANCE;
    entry::FULL(&mut frame, Code::FULL);
    assert_eq!(frame.pc, 0xc000_0000_0000_4700);
    assert_eq!(frame.msr, msr::SF | msr::ME | on | msr::LE);
    assert_eq!(fakes::get("SRR0"), 0xc000_0000_0000_1000);
    assert_eq!(fakes::get("SRR1") >> 19 & 1, 1);
    // Without relocation, at the vector itself.
    fakes::set("HSRR1", msr::SF | msr::ME);
    entry::FULL(&mut frame, Code::FULL);
    assert_eq!((frame.pc, frame.msr), (0x700, msr::SF | msr::ME | msr::LE));
}

#[test]
fn a_kick_without_a_reason_is_light() {
    let (vcpu, mut frame) = resident_vcpu();
    assert_eq!(entry::LIGHT(&mut frame, vector::HYPERVISOR_DOORBELL), 0);
    assert_eq!(fakes::take_log(), []);
    vcpu.attention.raise(Reasons::INBOX);
    assert_eq!(entry::LIGHT(&mut frame, vector::HYPERVISOR_DOORBELL), Reasons::INBOX.bits());
}

/// Who hands a vCPU to a run queue rings, and sets no reason: nobody else tells the vCPU that runs there, and without
/// another one that waits there is no tick.
#[test]
fn a_vcpu_that_shares_its_cpu_looks_at_the_queue_when_it_is_rung_for() {
    let (pinned, _) = resident_vcpu();
    let thread = crate::sched::Thread::new(0, 0);
    let vcpu = &*Box::leak(Box::new(Vcpu::new(pinned.vm, 0, cpu::this(), Some(thread))));
    let mut frame = Frame::new(cpu::this(), vcpu, ptr::null());
    assert_eq!((frame.light)(&mut frame, vector::HYPERVISOR_DOORBELL), Reasons::RESCHEDULE.bits());
}

#[test]
fn a_facility_on_demand_is_light() {
    let (_, mut frame) = resident_vcpu();
    fakes::set("HFSCR", 7 << 56);
    assert_eq!(entry::LIGHT(&mut frame, vector::HYPERVISOR_FACILITY), 0);
    assert!(fakes::take_log().contains(&Access::Write("EBBHR", 0)));
    fakes::set("HFSCR", 10 << 56);
    assert_eq!(
        entry::LIGHT(&mut frame, vector::HYPERVISOR_FACILITY),
        Code::FULL,
        "doorbells are carried out there"
    );
}

#[test]
fn an_access_to_nothing_is_a_data_storage_interrupt() {
    let (_, mut frame) = resident_vcpu();
    fakes::set("HSRR0", 0x100);
    fakes::set("HSRR1", msr::SF | msr::LE);
    fakes::set("HDSISR", 1 << 30 | 1 << 25);
    fakes::set("HDAR", 0x8000_0008);
    fakes::set("ASDR", 0x8000_0000);
    frame.vector = vector::HYPERVISOR_DATA_STORAGE;
    assert_eq!(entry::LIGHT(&mut frame, vector::HYPERVISOR_DATA_STORAGE), Code::FULL);
    entry::FULL(&mut frame, Code::FULL);
    assert_eq!(frame.pc, vector::DATA_STORAGE.into());
    assert_eq!((fakes::get("DAR"), fakes::get("SRR0")), (0x8000_0008, 0x100));
    assert_ne!(fakes::get("DSISR") & 1 << 25, 0, "it was a store");
}
