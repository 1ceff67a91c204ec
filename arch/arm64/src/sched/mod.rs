// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Physical CPUs that several vCPUs share: what `turnstile_threads` needs of this architecture. Whose turn it is is decided
//! there; here is what a switch moves.

mod on;
#[cfg(test)]
mod tests;
mod thread;

use alloc::vec::Vec;

use crate::cpu::{PerCpu, regs};
use crate::irq::{Gic, Gicv3, in_gic};
use crate::vm::{On, Vcpu};
pub use thread::{begin, frame};
pub use turnstile_threads::{arrive, give_way, leave, reschedule, stay, wait};

/// A vCPU that shares CPUs, and how.
pub type Tenant = turnstile_threads::Tenant<Vcpu>;

/// Makes the run queues: `tenants` in the order of their numbers. Once, by the boot CPU, before the others
/// are let go.
pub fn start(tenants: Vec<Tenant>, cpus: &'static [&'static PerCpu]) {
    fn start_with<G: Gic>(tenants: Vec<Tenant>, cpus: &'static [&'static PerCpu]) {
        turnstile_threads::start::<On<G>>(tenants, cpus, regs::CNTFRQ_EL0.read());
    }
    in_gic!(start_with(tenants, cpus));
}

/// Says whether vCPUs share this CPU.
pub fn is_shared(cpu: &PerCpu) -> bool {
    turnstile_threads::is_shared::<On<Gicv3>>(cpu)
}

/// Runs the vCPUs that share this CPU, for ever.
pub fn run() -> ! {
    fn run_with<G: Gic>() -> ! {
        turnstile_threads::run::<On<G>>()
    }
    in_gic!(run_with())
}
