// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Serving physical interrupts that have arrived: this CPU's timer, its run queue, devices of the hypervisor.

use turnstile_arch_common::println;
use turnstile_vm::attention::Reasons;

use crate::irq::interrupts::{self, Arrived};
use crate::irq::lapic;
use crate::time;
use crate::vm::Vcpu;
use crate::vm::monitor::{Monitor, monitor};

/// Serves interrupts that have arrived on the CPU where `vcpu` is resident.
pub(crate) fn serve(vcpu: Option<&Vcpu>, monitor: &dyn Monitor, arrived: Arrived) {
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

/// Waits until this CPU, where no vCPU is resident, is interrupted or kicked, and handles that.
pub fn wait_for_interrupt() {
    serve(None, monitor(), interrupts::wait());
}
