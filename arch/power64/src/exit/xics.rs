// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The calls of XICS (LoPAPR 14.11.1), light but for two that have more to answer than a light exit returns, and for what has
//! to be done with the sources.

use turnstile_papr::code::Code as Return;
use turnstile_papr::xics::{Change, Icp};
use turnstile_vm::attention::Reasons;

use super::{Answer, Arguments, Code, post};
use crate::irq::{Left, Presentation};
use crate::time;
use crate::vcpu::frame::Frame;
use crate::vcpu::interrupts::drain;
use crate::vm::Vcpu;

/// Whether the guest uses XICS.
#[inline(always)] // One load.
fn has_xics(vcpu: &'static Vcpu) -> bool {
    vcpu.owned(|owned| owned.irq.models())
}

/// Ends a call that has changed the vCPU's own presentation controller.
#[inline(always)] // The end of most calls: mostly a comparison or two.
fn settle(vcpu: &'static Vcpu, change: Change) -> Answer {
    vcpu.owned(|owned| owned.irq.follow(change.now));
    if change.concerns_sources() { resend(vcpu, vcpu.index, change) } else { Answer::SUCCESS }
}

/// Leaves the sources to the full tier.
#[inline(always)] // A few stores.
fn resend(vcpu: &'static Vcpu, server: usize, change: Change) -> Answer {
    vcpu.owned(|owned| owned.irq.leave(Left::Sources(server, change)));
    Answer::SUCCESS.and(vcpu, Code::LEFT)
}

/// Sets the priority of what the vCPU does, if its guest uses XICS.
#[inline(always)] // The whole of two calls.
fn set_priority(vcpu: &'static Vcpu, priority: u8) -> Answer {
    if !has_xics(vcpu) {
        return Answer::code(Return::FUNCTION.value());
    }
    let icp = &vcpu.interrupts.icp;
    // By itself, so that it needs few registers.
    match icp.set_quiet_priority(priority) {
        Some(false) => {
            vcpu.owned(|owned| owned.irq.follow(false));
            Answer::SUCCESS
        }
        Some(true) => settle(vcpu, Change { resend: true, ..Change::default() }),
        None => settle(vcpu, icp.set_priority(priority)),
    }
}

/// H_XIRR: accepts the interrupt that is presented.
#[cfg_attr(
    target_os = "none",
    unsafe(link_section = ".text.hot"),
    unsafe(export_name = "turnstile_light_xirr")
)]
pub(crate) extern "C" fn xirr(vcpu: &'static Vcpu, _: Arguments) -> Answer {
    if !has_xics(vcpu) {
        return Answer::code(Return::FUNCTION.value());
    }
    let value = vcpu.interrupts.icp.accept().into();
    // If there was one, it is presented no more.
    vcpu.owned(|owned| owned.irq.follow(false));
    Answer { code: 0, value }
}

/// H_EOI: ends an interrupt.
#[cfg_attr(
    target_os = "none",
    unsafe(link_section = ".text.hot"),
    unsafe(export_name = "turnstile_light_eoi")
)]
pub(crate) extern "C" fn eoi(vcpu: &'static Vcpu, Arguments([xirr, ..]): Arguments) -> Answer {
    set_priority(vcpu, Icp::priority_of(xirr as u32))
}

/// H_CPPR: sets the priority of what the vCPU does.
#[cfg_attr(
    target_os = "none",
    unsafe(link_section = ".text.hot"),
    unsafe(export_name = "turnstile_light_cppr")
)]
pub(crate) extern "C" fn cppr(vcpu: &'static Vcpu, Arguments([priority, ..]): Arguments) -> Answer {
    set_priority(vcpu, priority as u8)
}

/// H_IPI: interrupts a vCPU, or takes that back.
#[cfg_attr(
    target_os = "none",
    unsafe(link_section = ".text.hot"),
    unsafe(export_name = "turnstile_light_ipi")
)]
pub(crate) extern "C" fn ipi(vcpu: &'static Vcpu, Arguments([target, priority, ..]): Arguments) -> Answer {
    if !has_xics(vcpu) {
        return Answer::code(Return::FUNCTION.value());
    }
    if target == vcpu.index as u64 {
        return settle(vcpu, vcpu.interrupts.icp.set_request(priority as u8));
    }
    let Some(other) = vcpu.vm.vcpu(target as usize) else { return Answer::code(Return::PARAMETER.value()) };
    let change = other.interrupts.icp.set_request(priority as u8);
    if change.concerns_sources() {
        return resend(vcpu, target as usize, change);
    }
    if change.presented { post(vcpu, other, Reasons::INBOX) } else { Answer::SUCCESS }
}

/// Does what light calls have left.
#[inline(never)] // Apart from calls that leave nothing.
pub(super) fn finish(vcpu: &'static Vcpu) {
    match vcpu.owned(|owned| owned.irq.take_left()) {
        Left::Nothing => {}
        Left::Absent(target) => {
            if let Some(other) = vcpu.vm.vcpu(target) {
                other.notify(other.attention.post_absent());
            }
        }
        Left::Sources(server, change) => {
            let Some(ics) = vcpu.vm.board.ics() else { return };
            // Presented to itself: that is looked at behind this.
            let presented = change.presented && server != vcpu.index;
            ics.settle(server as u32, Change { presented, ..change }, vcpu.vm);
            drain(vcpu);
        }
    }
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
