// SPDX-License-Identifier: Apache-2.0 OR MIT
//! VMMCALL: KVM's hypercalls (Linux, Documentation/virt/kvm/x86/hypercalls.rst). The number is in RAX, the arguments are
//! in RBX, RCX, RDX and RSI, the answer goes to RAX.

use super::keep::keep;
use super::tier::{Code, control, executed};
use crate::cpu::svm::Vmcb;
use crate::vcpu::frame::Frame;
use crate::vcpu::kvm;
use crate::vcpu::next::{Next, length};
use crate::vm::Vcpu;

/// KVM_HC_VAPIC_POLL_IRQ: asks for nothing but the exit.
const POLL_IRQ: u32 = 1;
/// Calls are for the guest's kernel.
const EPERM: u64 = -1i64 as u64;

/// Numbers above this one are no call's.
const HIGHEST: u32 = kvm::SEND_IPI;

/// Answers what is no call. HOT.
#[cfg_attr(target_os = "none", unsafe(link_section = ".text.hot"))]
pub(super) extern "C" fn light<N: Next>(frame: &mut Frame, rsi: u64, rdx: u64) -> u32 {
    let vmcb = control(frame);
    if vmcb.cpl() != 0 || vmcb.rax() as u32 <= HIGHEST {
        return known::<N>(frame, rsi, rdx);
    }
    vmcb.set_rax(kvm::ENOSYS);
    executed::<N>(frame, vmcb, length::VMMCALL)
}

keep! {
    /// The calls that there are.
    known => ask: rdx 48
}

extern "C" fn ask<N: Next>(frame: &mut Frame, _: u64, _: u64) -> u32 {
    answer::<N>(frame, control(frame))
}

/// Answers what is no call, the calls that only ask, and those that are refused; the rest is left to the full tier.
#[inline(always)] // One caller, but for ablation.
pub(super) fn answer<N: Next>(frame: &mut Frame, vmcb: &mut Vmcb) -> u32 {
    let answer = match vmcb.rax() as u32 {
        _ if vmcb.cpl() != 0 => EPERM,
        kvm::KICK_CPU | kvm::SEND_IPI => return Code::FULL,
        POLL_IRQ => 0,
        _ => kvm::ENOSYS,
    };
    vmcb.set_rax(answer);
    executed::<N>(frame, vmcb, length::VMMCALL)
}

/// Carries out what the light tier has left.
pub(super) fn full(frame: &Frame, vmcb: &mut Vmcb, vcpu: &'static Vcpu) {
    vmcb.set_rax(kvm::call(frame, vmcb, vcpu));
}
