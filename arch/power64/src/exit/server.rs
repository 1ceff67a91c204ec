// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A physical CPU that runs services, and no vCPU.

use turnstile_arch_common::service::server::Server;
use turnstile_arch_common::service::{Idle, Meanwhile};

use crate::cpu::{self, PerCpu};
use crate::service::Service;
use crate::time;
use crate::vcpu::idle;
use crate::vm::monitor::monitor;

/// Interrupts a CPU of services.
pub fn wake(cpu: &PerCpu) {
    cpu::ring(cpu.kick_token());
}

/// Runs services on this CPU, which no vCPU has, for ever.
pub fn run(services: &[&'static Service]) -> ! {
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
        // A doorbell says no more than that there is something to look at, and waits until a service or STOP takes it.
        idle::serve(time::is_due(), None, monitor());
    }

    fn wait(&mut self) {
        self.interrupt();
        cpu::relax();
    }

    fn again(&mut self) {}
}

impl Idle for Alone {
    fn stop(&mut self) {
        idle::wait_for_interrupt();
    }

    fn now(&self) -> u64 {
        time::uptime().nanoseconds()
    }
}
