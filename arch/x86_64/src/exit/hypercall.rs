// SPDX-License-Identifier: Apache-2.0 OR MIT
//! VMMCALL: KVM's hypercalls (Linux, Documentation/virt/kvm/x86/hypercalls.rst). The number is in RAX, the arguments are
//! in RBX, RCX, RDX and RSI, the answer goes to RAX.

use super::tier::{Code, done};
use crate::cpu::svm::Vmcb;
use crate::vcpu::frame::Frame;
use crate::vcpu::kvm;
use crate::vcpu::next::{Next, length, skip};
use crate::vm::Vcpu;

/// KVM_HC_VAPIC_POLL_IRQ: asks for nothing but the exit.
const POLL_IRQ: u32 = 1;
/// Calls are for the guest's kernel.
const EPERM: u64 = -1i64 as u64;

/// Numbers above this one are no call's.
const HIGHEST: u32 = kvm::SEND_IPI;

/// Answers what is no call.
#[cfg_attr(target_os = "none", unsafe(link_section = ".text.hot"))]
pub(super) extern "C" fn light<N: Next>(frame: &mut Frame, vmcb: &mut Vmcb, _: u32) -> u32 {
    if vmcb.cpl() != 0 || vmcb.rax() as u32 <= HIGHEST {
        return known::<N>(frame, vmcb);
    }
    vmcb.set_rax(kvm::ENOSYS);
    skip::<N>(vmcb, length::VMMCALL);
    done::<N>(frame, vmcb)
}

/// Answers the calls that only ask, and those that are refused; the rest is left to the full tier.
#[inline(never)] // So that the shortest exit compares with one number alone.
extern "C" fn known<N: Next>(frame: &mut Frame, vmcb: &mut Vmcb) -> u32 {
    let answer = match vmcb.rax() as u32 {
        _ if vmcb.cpl() != 0 => EPERM,
        kvm::KICK_CPU | kvm::SEND_IPI => return Code::FULL,
        POLL_IRQ => 0,
        _ => kvm::ENOSYS,
    };
    vmcb.set_rax(answer);
    skip::<N>(vmcb, length::VMMCALL);
    done::<N>(frame, vmcb)
}

/// Carries out what the light tier has left.
pub(super) fn full(frame: &Frame, vmcb: &mut Vmcb, vcpu: &'static Vcpu) {
    vmcb.set_rax(kvm::call(frame, vmcb, vcpu));
}
