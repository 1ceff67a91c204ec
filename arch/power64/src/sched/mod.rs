// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Physical CPUs that several vCPUs share: what `turnstile_threads` needs of this architecture. Whose turn it is is decided
//! there; here is what a switch moves: registers that the next vCPU needs (`vcpu/facility.rs`), and what the interrupt
//! controller presents (`vcpu/interrupts.rs`). What waking needs is in `vm/queues.rs`.

mod on;
mod turns;

use alloc::vec::Vec;

use spin::Once;
use turnstile_papr::dispatch::Kept;
pub use turnstile_threads::{give_way, reschedule, wait};

use crate::cpu::PerCpu;
use crate::time;
use crate::vm::Vcpu;
use crate::vm::queues::{Power, Scheduler};

/// A vCPU that shares CPUs, and how.
pub type Tenant = turnstile_threads::Tenant<Vcpu>;

/// Makes the run queues: `tenants` in the order of their numbers. Once, by the boot CPU, before the others
/// are let go.
pub fn start(tenants: Vec<Tenant>, cpus: &'static [&'static PerCpu]) {
    turnstile_threads::start::<Power>(tenants, cpus, time::frequency());
}

/// A vCPU's VM is paused: its guest is told nothing of its turns until [`go_on`].
pub fn keep(vcpu: &'static Vcpu) -> Option<Kept> {
    turns::keep(vcpu)
}

/// Tells the guest of a vCPU, which goes on with these PC and MSR after a pause, that the time was stolen.
pub fn go_on(vcpu: &'static Vcpu, kept: Option<Kept>, state: [u64; 2]) {
    turns::go_on(vcpu, kept, state);
}

/// Says whether vCPUs share this CPU.
pub fn is_shared(cpu: &PerCpu) -> bool {
    cpu.slot::<Once<Scheduler>>().get().is_some()
}

/// Runs the vCPUs that share this CPU, for ever.
pub fn run() -> ! {
    turnstile_threads::run::<Power>()
}
