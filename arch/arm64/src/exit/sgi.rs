// SPDX-License-Identifier: Apache-2.0 OR MIT
//! SGIs that a guest sends by a system register: to itself by a list register, to others by their attention words.

use turnstile_vgic::{Outcome, SgiRegister};
use turnstile_vm::attention::{Posted, Reasons};

use super::light::{Code, done, leave, resident, skip};
use super::trapped::Lookup;
use crate::irq::Gic;
use crate::vcpu::frame::Frame;
use crate::vm::{Owned, Vcpu, Vm};

/// Sends an SGI: to the vCPU itself by a list register, to others by their inboxes.
#[inline(always)] // Two callers: the light exit and its full twin.
pub(super) fn send_sgi<G: Gic, L: Lookup>(
    vcpu: &Vcpu,
    owned: &mut Owned,
    register: SgiRegister,
    value: u64,
) -> Outcome {
    let intid = SgiRegister::intid(value);
    if SgiRegister::is_broadcast(value) {
        broadcast_sgi::<G>(vcpu, register, value);
        return Outcome::Done;
    }
    let mut outcome = Outcome::Done;
    for target in L::targets(vcpu, register, value) {
        if target == vcpu.index {
            outcome = owned.gic.inject_sgi(&mut G::interface(), intid);
        } else {
            post_sgi::<G>(vcpu.vm, target, intid);
        }
    }
    outcome
}

/// Posts an SGI to another vCPU: one atomic operation, and a kick if it is in its guest.
#[inline(always)] // Hot: once per target.
fn post_sgi<G: Gic>(vm: &Vm, target: usize, intid: u32) {
    if let Some(target) = vm.vcpu(target) {
        target.notify_other::<G>(target.attention.post(Reasons::sgi(intid)));
    }
}

/// Sends an SGI to all other vCPUs.
#[inline(never)] // SGIs that name their targets are not to pay for its registers.
fn broadcast_sgi<G: Gic>(vcpu: &Vcpu, register: SgiRegister, value: u64) {
    for target in vcpu.vm.vgic.sgi_broadcast(register, value, vcpu.index) {
        post_sgi::<G>(vcpu.vm, target, SgiRegister::intid(value));
    }
}

/// A write of ICC_SGI1R_EL1. Usually it names one vCPU: the sender, or another one that is in its guest. All else is left.
#[inline(always)] // Part of a light handler.
pub(super) fn light_sgi<G: Gic, L: Lookup>(frame: &mut Frame, esr: u64, value: u64) -> u32 {
    let vcpu = resident(frame);
    let intid = SgiRegister::intid(value);
    if SgiRegister::is_broadcast(value) {
        return leave(frame, Code::WIDE, esr, value);
    }
    // The same as a comparison, with a constant that is part of one instruction.
    if SgiRegister::named(value ^ vcpu.own_sgi) == 0 {
        // SAFETY: an exit handler of the CPU where the vCPU is resident; taken once in this exit.
        let gic = unsafe { &mut vcpu.owned().gic };
        if !gic.present_group1_sgi(&mut G::interface(), intid) {
            return leave(frame, Code::WIDE, esr, value);
        }
        skip();
        return done(vcpu);
    }
    let mut targets = L::targets(vcpu, SgiRegister::Sgi1r, value);
    let (Some(first), None) = (targets.next(), targets.next()) else {
        return leave(frame, Code::WIDE, esr, value);
    };
    // Left as well: the sender with bits in the value that mean nothing.
    let Some(other) = vcpu.vm.member(first).filter(|other| !core::ptr::eq(*other, vcpu)) else {
        return leave(frame, Code::WIDE, esr, value);
    };
    skip();
    post_light::<G>(frame, vcpu, other, intid)
}

/// Posts an SGI to the one other vCPU that it is for, at the end of its exit.
#[inline(always)] // Part of light handlers.
pub(super) fn post_light<G: Gic>(frame: &mut Frame, vcpu: &Vcpu, other: &Vcpu, intid: u32) -> u32 {
    match other.attention.post(Reasons::sgi(intid)) {
        Posted::Seen => {}
        Posted::Kick(token) => G::kick(token),
        Posted::Wake => return leave(frame, Code::WAKE, 0, other.index as u64),
    }
    done(vcpu)
}

/// What is left of a write of ICC_SGI1R_EL1.
#[inline(always)] // Part of a wide handler.
pub(super) fn wide_sgi<G: Gic, L: Lookup>(frame: &mut Frame) -> u32 {
    let vcpu = resident(frame);
    let value = frame.left.value;
    // SAFETY: an exit handler of the CPU where the vCPU is resident; taken once in this exit.
    let owned = unsafe { vcpu.owned() };
    skip();
    let outcome = if SgiRegister::named(value) == vcpu.own_sgi {
        match owned.gic.is_in_group1(SgiRegister::intid(value)) {
            true => owned.gic.inject_sgi(&mut G::interface(), SgiRegister::intid(value)),
            false => Outcome::Done,
        }
    } else {
        send_sgi::<G, L>(vcpu, owned, SgiRegister::Sgi1r, value)
    };
    match outcome {
        Outcome::Done => done(vcpu),
        Outcome::Slow => Code::SETTLE,
    }
}
