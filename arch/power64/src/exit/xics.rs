// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The calls of XICS (LoPAPR 14.11.1), light but for two that have more to answer than a light exit returns.

use turnstile_papr::code::Code as Return;
use turnstile_papr::xics::{Change, Ics};

use super::{Answer, Arguments, resident};
use crate::irq::Presentation;
use crate::time;
use crate::vcpu::frame::Frame;
use crate::vcpu::interrupts::drain;
use crate::vm::Vcpu;

/// Does what a change of the resident vCPU's presentation controller demands.
#[inline(always)] // The end of most calls: mostly a comparison or two.
fn settle(vcpu: &'static Vcpu, ics: &Ics, change: Change) {
    if change.concerns_sources() {
        resend(vcpu, ics, change);
    }
    drain(vcpu);
}

#[cold]
fn resend(vcpu: &'static Vcpu, ics: &Ics, change: Change) {
    // Presented to itself: that is looked at behind this.
    ics.settle(vcpu.index as u32, Change { presented: false, ..change }, vcpu.vm);
}

/// Returns the resident vCPU and its VM's sources; the answer, if the guest does not use XICS.
#[inline(always)] // A few loads.
fn with_ics(frame: &Frame, f: impl FnOnce(&'static Vcpu, &'static Ics) -> Answer) -> Answer {
    let vcpu = resident(frame);
    match vcpu.vm.board.ics() {
        Some(ics) => f(vcpu, ics),
        None => Answer::code(Return::FUNCTION.value()),
    }
}

/// H_XIRR: accepts the interrupt that is presented.
#[cfg_attr(target_os = "none", unsafe(link_section = ".text.hot"))]
pub(crate) extern "C" fn xirr(frame: &mut Frame, _: Arguments) -> Answer {
    with_ics(frame, |vcpu, _| {
        let value = vcpu.interrupts.icp.accept().into();
        drain(vcpu);
        Answer { code: 0, value }
    })
}

/// H_EOI: ends an interrupt.
#[cfg_attr(target_os = "none", unsafe(link_section = ".text.hot"))]
pub(crate) extern "C" fn eoi(frame: &mut Frame, Arguments([xirr, ..]): Arguments) -> Answer {
    with_ics(frame, |vcpu, ics| {
        settle(vcpu, ics, vcpu.interrupts.icp.end(xirr as u32));
        Answer::SUCCESS
    })
}

/// H_CPPR: sets the priority of what the vCPU does.
#[cfg_attr(target_os = "none", unsafe(link_section = ".text.hot"))]
pub(crate) extern "C" fn cppr(frame: &mut Frame, Arguments([priority, ..]): Arguments) -> Answer {
    with_ics(frame, |vcpu, ics| {
        settle(vcpu, ics, vcpu.interrupts.icp.set_priority(priority as u8));
        Answer::SUCCESS
    })
}

/// H_IPI: interrupts a vCPU, or takes that back.
#[cfg_attr(target_os = "none", unsafe(link_section = ".text.hot"))]
pub(crate) extern "C" fn ipi(frame: &mut Frame, Arguments([target, priority, ..]): Arguments) -> Answer {
    with_ics(frame, |vcpu, ics| {
        if target == vcpu.index as u64 {
            settle(vcpu, ics, vcpu.interrupts.icp.set_request(priority as u8));
            return Answer::SUCCESS;
        }
        let Some(other) = vcpu.vm.vcpu(target as usize) else {
            return Answer::code(Return::PARAMETER.value());
        };
        ics.settle(target as u32, other.interrupts.icp.set_request(priority as u8), vcpu.vm);
        Answer::SUCCESS
    })
}

/// H_IPOLL: reads what a vCPU would accept, and the priority of the IPI asked for.
pub(super) fn poll(frame: &mut Frame, vcpu: &'static Vcpu, target: u64) {
    if vcpu.vm.board.presentation() != Presentation::Xics {
        return frame.set_gpr(3, Return::FUNCTION.value());
    }
    let Some(other) = vcpu.vm.vcpu(target as usize) else {
        return frame.set_gpr(3, Return::PARAMETER.value());
    };
    let (xirr, request) = other.interrupts.icp.poll();
    frame.set_gpr(4, xirr.into());
    frame.set_gpr(5, request.into());
}

/// H_XIRR_X: as [`xirr`], with the time base.
pub(super) fn accept_with_time(frame: &mut Frame, vcpu: &'static Vcpu) {
    if vcpu.vm.board.presentation() != Presentation::Xics {
        return frame.set_gpr(3, Return::FUNCTION.value());
    }
    let value = vcpu.interrupts.icp.accept();
    drain(vcpu);
    frame.set_gpr(4, value.into());
    frame.set_gpr(5, time::ticks());
}
