// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What guests have of a CPU's controls of speculation.

use turnstile_mitigation::x86_64::Cpu;
use turnstile_vm::startup::Start;

use super::*;
use crate::board::mitigation::tests::{EMULATED, ZEN2, ZEN5};
use crate::board::mitigation::{self, Choice};
use crate::state::owned::Owned;

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
    crate::exit::msr::full(frame, vmcb, vcpu, 0x1002);
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
