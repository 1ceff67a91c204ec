// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How a vCPU goes inside a service, what it does while it is there or waits, and what services have to handle that came from elsewhere.

use turnstile_arch_common::service::Meanwhile;
use turnstile_exitstat::Reason;
use turnstile_service::abi::{Answer, Event};
use turnstile_vm::attention::Reasons;

use crate::cpu;
use crate::cpu::regs::PPR;
use crate::service::{Served, Services};
use crate::time;
use crate::vcpu::frame::Frame;
use crate::vcpu::{idle, interrupts};
use crate::vm::Vcpu;
use crate::vm::monitor::monitor;

/// A vCPU while it is inside a service, or waits to be.
pub(super) struct Inside(pub(super) &'static Vcpu);

impl Meanwhile for Inside {
    fn interrupt(&mut self) {
        if time::is_due() {
            idle::decrementer(Some(self.0), monitor());
        }
        interrupts::serve();
        // A doorbell may be for the run queue, whose vCPU is not told (`exit/mod.rs:listen`).
        if self.0.thread.is_some() {
            self.0.attention.raise(Reasons::RESCHEDULE);
        }
    }

    fn wait(&mut self) {
        // Letting time pass changes the priority, which is the guest's.
        let priority = PPR.read();
        cpu::relax();
        // SAFETY: as it was.
        unsafe { PPR.write(priority) };
        self.interrupt();
    }

    fn again(&mut self) {
        self.0.attention.raise(Reasons::SERVICE);
    }
}

/// The attention word says that a service of the VM has something to handle, or that the VM waits for memory, which is said.
pub(super) fn look(frame: &mut Frame, vcpu: &'static Vcpu) {
    if let Some(number) = vcpu.vm.taken.take_news() {
        monitor().short_of_memory(vcpu.vm, number);
    }
    for service in vcpu.vm.services().into_iter().flat_map(|services: &Services| &services.all) {
        // SAFETY: an exit handler, on the CPU where the vCPU is resident; nothing of a service calls one.
        if unsafe { service.look(&mut Inside(vcpu)) } {
            service.account(&mut frame.timing, Reason::Service, time::ticks);
        }
    }
}

/// Hands an event to the service of a device.
#[inline(always)] // One call, and all of it is on the way.
pub(super) fn access(vcpu: &'static Vcpu, served: &Served, event: &Event) -> Answer {
    // SAFETY: an exit handler, on the CPU where the vCPU is resident; nothing of a service calls one.
    unsafe { served.service.access(event, &mut Inside(vcpu)) }
}

/// [`access`], where fewer instructions of the image are worth more than of the way.
#[inline(never)] // Three callers.
pub(super) fn access_seldom(vcpu: &'static Vcpu, served: &Served, event: &Event) -> u64 {
    access(vcpu, served, event).value
}
