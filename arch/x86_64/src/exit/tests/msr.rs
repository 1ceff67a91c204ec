// SPDX-License-Identifier: Apache-2.0 OR MIT
//! MSRs and XCR0: every number has an answer, and registers keep what they may.

use super::*;
use crate::cpu::regs::cr4;

/// An access to an MSR by the full tier: the value that was read, or the exception.
fn msr(number: u32, write: Option<u64>) -> Result<u64, u64> {
    let (vcpu, mut frame, mut vmcb, _) = machine();
    msr_of(vcpu, &mut frame, &mut vmcb, number, write)
}

pub(crate) fn msr_of(
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
        crate::exit::msr::full(frame, vmcb, vcpu, vmcb.rip() + 2);
    }
    if vmcb.event() & event::VALID != 0 { Err(vmcb.event()) } else { Ok(frame.rdx() << 32 | vmcb.rax()) }
}

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
    let (vcpu, mut frame, mut vmcb, _) = machine();
    // The host of the tests offers nothing of XCR0: whatever is written is #GP, if it gets so far.
    let mut outcome = |cr4, rcx, cpl| {
        vmcb.set_cr4(cr4);
        vmcb.set_cpl(cpl);
        vmcb.set_event(0);
        frame.set_rcx(rcx);
        crate::exit::msr::xsetbv(&frame, &mut vmcb, vcpu, 0x1003);
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
