// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Physical CPUs that several vCPUs share: what `turnstile_threads` needs of this architecture. Whose turn it is is decided
//! there; here is what a switch moves: registers that the next vCPU needs ([`crate::facility`]), and what the interrupt
//! controller presents ([`crate::irq`]).

mod on;
mod thread;
mod turns;

use alloc::vec::Vec;

use crate::cpu::PerCpu;
use crate::time;
use crate::vcpu::Vcpu;
pub use on::Power;
pub use thread::Thread;
pub use turnstile_threads::{give_way, reschedule, wait, wake};

/// A vCPU that shares CPUs, and how.
pub type Tenant = turnstile_threads::Tenant<Vcpu>;
/// The run queue of a physical CPU, for that CPU alone.
pub type Scheduler = turnstile_threads::Scheduler<Vcpu, ()>;
/// All vCPUs that share CPUs.
type System = turnstile_threads::System<Vcpu, PerCpu>;

/// Makes the run queues: `tenants` in the order of their numbers. Once, by the boot CPU, before the others
/// are let go.
pub fn start(tenants: Vec<Tenant>, cpus: &'static [&'static PerCpu]) {
    turnstile_threads::start::<Power>(tenants, cpus, time::frequency());
}

/// Says whether vCPUs share this CPU.
pub fn is_shared(cpu: &PerCpu) -> bool {
    cpu.scheduler.get().is_some()
}

/// Runs the vCPUs that share this CPU, for ever.
pub fn run() -> ! {
    turnstile_threads::run::<Power>()
}
