// SPDX-License-Identifier: Apache-2.0 OR MIT
//! SGIs that a guest sends by a system register: to itself by a list register, to others by their attention words.

use turnstile_vgic::{Outcome, SgiRegister};
use turnstile_vm::attention::{Posted, Reasons};

use super::light::{Code, done, resident, skip, wake};
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
    for target in L::targets(&vcpu.vm.vgic, register, value) {
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

/// A write of an SGI register. Usually it names one vCPU, another one, which is in its guest: that is a leaf without a
/// stack frame of its own. All else is behind a tail call.
#[cfg_attr(target_os = "none", unsafe(link_section = ".text.hot"))]
#[inline(never)] // Behind a tail call, too: the handlers of trapped registers are laid out without it.
pub(super) fn light_sgi<G: Gic, L: Lookup>(frame: &mut Frame, register: SgiRegister, value: u64) -> u32 {
    let vcpu = resident(frame);
    if SgiRegister::is_broadcast(value) {
        return light_sgis::<G, L>(frame, register, value);
    }
    let mut targets = L::targets(&vcpu.vm.vgic, register, value);
    let (Some(first), None) = (targets.next(), targets.next()) else {
        return light_sgis::<G, L>(frame, register, value);
    };
    if first == vcpu.index {
        return light_self_sgi::<G>(frame, SgiRegister::intid(value));
    }
    skip();
    if let Some(target) = vcpu.vm.vcpu(first) {
        match target.attention.post(Reasons::sgi(SgiRegister::intid(value))) {
            Posted::Seen => {}
            Posted::Kick(token) => G::kick(token),
            Posted::Wake => return wake::<G>(vcpu, target),
        }
    }
    done(vcpu)
}

/// An SGI to the sender alone: by a list register.
#[cfg_attr(target_os = "none", unsafe(link_section = ".text.hot"))]
#[inline(never)] // Needs a stack frame.
fn light_self_sgi<G: Gic>(frame: &mut Frame, intid: u32) -> u32 {
    let vcpu = resident(frame);
    // SAFETY: an exit handler of the CPU where the vCPU is resident; taken once in this exit.
    let owned = unsafe { vcpu.owned() };
    skip();
    match owned.gic.inject_sgi(&mut G::interface(), intid) {
        Outcome::Done => done(vcpu),
        Outcome::Slow => Code::SETTLE,
    }
}

/// A write of an SGI register that names several vCPUs, or the sender.
#[cfg_attr(target_os = "none", unsafe(link_section = ".text.hot"))]
#[inline(never)] // Needs a stack frame, which the other light exits are not to pay for.
fn light_sgis<G: Gic, L: Lookup>(frame: &mut Frame, register: SgiRegister, value: u64) -> u32 {
    let vcpu = resident(frame);
    // SAFETY: an exit handler of the CPU where the vCPU is resident; taken once in this exit.
    let owned = unsafe { vcpu.owned() };
    let outcome = send_sgi::<G, L>(vcpu, owned, register, value);
    skip();
    match outcome {
        Outcome::Done => done(vcpu),
        Outcome::Slow => Code::SETTLE,
    }
}
