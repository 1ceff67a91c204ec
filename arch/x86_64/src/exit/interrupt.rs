// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Physical interrupts: kicks, this CPU's timer, devices of the hypervisor.

use turnstile_exitstat::Reason;
use turnstile_vm::attention::Reasons;

use super::{Code, Next, done};
use crate::frame::Frame;
use crate::interrupts::{self, Arrived};
use crate::svm::Vmcb;
use crate::vcpu::Vcpu;
use crate::{Monitor, lapic, println, statistics, time};

/// An interrupt while the guest runs. A kick is over when it has been taken: what it is about is in the attention word.
#[cfg_attr(target_os = "none", unsafe(link_section = ".text.hot"))]
pub(super) extern "C" fn light<N: Next>(frame: &mut Frame, vmcb: &mut Vmcb, _: u32) -> u32 {
    let arrived = interrupts::take();
    if arrived.is_kick() {
        statistics::note::<N>(frame, Reason::Kick);
        return done::<N>(frame, vmcb);
    }
    Code::ARRIVED | arrived.bits()
}

/// Serves interrupts that have arrived on the CPU where `vcpu` is resident.
pub(super) fn serve(vcpu: Option<&Vcpu>, monitor: &dyn Monitor, arrived: Arrived) {
    if arrived.contains(Arrived::TIMER) {
        let passed = time::end_deadlines();
        if let Some(vcpu) = vcpu {
            let reason = |passed, reason| if passed { reason } else { Reasons::empty() };
            let reasons =
                reason(passed.guest, Reasons::DEADLINE) | reason(passed.schedule, Reasons::RESCHEDULE);
            if !reasons.is_empty() {
                vcpu.attention.raise(reasons);
            }
        }
        if passed.devices {
            monitor.deadline();
        }
    }
    if let Some(vcpu) = vcpu
        && arrived.contains(Arrived::RESCHEDULE)
    {
        vcpu.attention.raise(Reasons::RESCHEDULE);
    }
    if arrived.contains(Arrived::CONSOLE) {
        monitor.interrupt(interrupts::CONSOLE.into());
    }
    if arrived.contains(Arrived::APIC_ERROR) {
        println!("turnstile: the local APIC reports errors: {:#x}", lapic::errors());
    }
}
