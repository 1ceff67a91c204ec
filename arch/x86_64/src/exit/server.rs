// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A physical CPU that runs services, and no vCPU.

use turnstile_arch_common::service::server::Server;
use turnstile_arch_common::service::{Idle, Meanwhile};

use crate::cpu::{self, PerCpu};
use crate::irq::interrupts::{self, Arrived};
use crate::irq::{idt, lapic};
use crate::service::Service;
use crate::time;
use crate::vcpu::serve::serve;
use crate::vm::monitor::monitor;

use super::wait::wait_for_interrupt;

/// Interrupts a CPU of services.
pub fn wake(cpu: &PerCpu) {
    lapic::kick(cpu.kick_token());
}

/// Runs services on this CPU, which no vCPU has, for ever.
pub fn run(services: &[&'static Service]) -> ! {
    // Interrupts are taken as on CPUs of vCPUs.
    idt::expect_guests();
    let mut server = Server::new(services);
    loop {
        // SAFETY: the CPU of these services, which was set up for them.
        unsafe { server.step(&mut Alone) };
    }
}

/// The CPU, which has no vCPU.
struct Alone;

impl Meanwhile for Alone {
    fn interrupt(&mut self) {
        let arrived = interrupts::take();
        if arrived != Arrived::NOTHING {
            serve(None, monitor(), arrived);
        }
    }

    fn wait(&mut self) {
        self.interrupt();
        cpu::relax();
    }

    fn again(&mut self) {}
}

impl Idle for Alone {
    fn stop(&mut self) {
        wait_for_interrupt();
    }

    fn now(&self) -> u64 {
        time::uptime().nanoseconds()
    }
}
