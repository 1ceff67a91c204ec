// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Physical CPUs that several vCPUs share: what `turnstile_threads` needs of this architecture. Whose turn it is is decided
//! there; here is what a switch moves.
//!
//! Little of it: the control block is memory, which VMRUN reads; registers that it does not load stay in the CPU until
//! another vCPU needs them ([`crate::vcpu::facility`]); translations stay in the TLB under the vCPU's ASID
//! ([`crate::vcpu::asid`]). What remains is the deadline of the vCPU's timer.

mod on;
#[cfg(test)]
mod tests;

use alloc::vec::Vec;

use crate::cpu::PerCpu;
use crate::time;
use crate::vm::Vcpu;
use crate::vm::queues::Svm;

/// A vCPU that shares CPUs, and how.
pub type Tenant = turnstile_threads::Tenant<Vcpu>;

/// Makes the run queues: `tenants` in the order of their numbers. Once, by the boot CPU, before the others
/// are let go.
pub fn start(tenants: Vec<Tenant>, cpus: &'static [&'static PerCpu]) {
    turnstile_threads::start::<Svm>(tenants, cpus, time::frequency());
}

/// Says whether vCPUs share this CPU.
pub fn is_shared(cpu: &PerCpu) -> bool {
    turnstile_threads::is_shared::<Svm>(cpu)
}

/// Runs the vCPUs that share this CPU, for ever.
pub fn run() -> ! {
    turnstile_threads::run::<Svm>()
}
