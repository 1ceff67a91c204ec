// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Physical CPUs that several vCPUs share.

use alloc::vec::Vec;

use crate::cpu::PerCpu;
use crate::vcpu::Vcpu;

/// What a vCPU has that shares its CPUs.
pub struct Thread;

impl Thread {
    /// Makes thread `number` with the stack that ends at `stack_end`.
    pub fn new(_number: u32, _stack_end: u64) -> Self {
        Self
    }
}

/// A vCPU that shares CPUs, and how.
pub type Tenant = turnstile_threads::Tenant<Vcpu>;
/// The run queue of a physical CPU, for that CPU alone.
pub type Scheduler = turnstile_threads::Scheduler<Vcpu, ()>;

/// Makes the run queues.
pub fn start(_: Vec<Tenant>, _: &'static [&'static PerCpu]) {}

/// Says whether vCPUs share this CPU.
pub fn is_shared(cpu: &PerCpu) -> bool {
    cpu.scheduler.get().is_some()
}

/// Runs the vCPUs that share this CPU, for ever.
pub fn run() -> ! {
    crate::cpu::halt()
}
