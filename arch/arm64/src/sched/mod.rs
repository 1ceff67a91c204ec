// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Physical CPUs that several vCPUs share: what `turnstile_threads` needs of this architecture. Whose turn it is is decided
//! there; here is what a switch moves.

mod on;
#[cfg(test)]
mod tests;
mod thread;

use alloc::vec::Vec;

use turnstile_vgic::{Context, Model, RemoteOp};

use crate::cpu::PerCpu;
use crate::irq::{Absent, Gic, in_gic};
use crate::regs;
use crate::vcpu::{Vcpu, serve_remote};
use crate::vm::Peers;
pub use on::On;
pub use thread::Thread;
pub use turnstile_threads::{give_way, reschedule, wait, wake};

/// A vCPU that shares CPUs, and how.
pub type Tenant = turnstile_threads::Tenant<Vcpu>;
/// The run queue of a physical CPU, for that CPU alone.
pub type Scheduler = turnstile_threads::Scheduler<Vcpu, Residue>;
/// All vCPUs that share CPUs.
type System = turnstile_threads::System<Vcpu, PerCpu>;

/// What vCPUs have left behind on a CPU.
pub struct Residue {
    /// Which vCPU of each VM ran here last: its translations are in the TLB.
    last: [u32; 256],
    /// Whose vectors are in use: of this model, and timed or not.
    vectors: Option<(Model, bool)>,
    /// Whether WFE traps: somebody waits.
    waited_for: bool,
}

impl Default for Residue {
    fn default() -> Self {
        const NOBODY: u32 = u32::MAX;
        Self { last: [NOBODY; 256], vectors: None, waited_for: false }
    }
}

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
    cpu.scheduler.get().is_some()
}

/// Runs the vCPUs that share this CPU, for ever.
pub fn run() -> ! {
    fn run_with<G: Gic>() -> ! {
        turnstile_threads::run::<On<G>>()
    }
    in_gic!(run_with())
}

/// Executes an operation on the interrupts of a vCPU that is in no CPU. `None` if it is in one, or in use.
pub fn operate<G: Gic>(target: &'static Vcpu, operation: RemoteOp) -> Option<u64> {
    with_absent::<G, _>(target, |cx| {
        // SAFETY: claimed.
        unsafe { target.owned() }.gic.apply(cx, operation)
    })
}

/// Serves the cell of a vCPU, if it is in no CPU: who waits for it may be what keeps it from running.
pub fn serve_absent<G: Gic>(target: &'static Vcpu) {
    with_absent::<G, _>(target, |cx| {
        // SAFETY: claimed.
        serve_remote::<G>(target, &mut unsafe { target.owned() }.gic, cx.vif)
    });
}

/// Runs `f` while a vCPU is claimed, if that can be. It looks at its interrupts afterwards.
fn with_absent<G: Gic, R>(
    target: &'static Vcpu,
    f: impl FnOnce(&mut Context<'_, Absent, Peers<'_, G>>) -> R,
) -> Option<R> {
    turnstile_threads::with_absent::<On<G>, _>(target, || {
        let peers = Peers::new(target.vm);
        f(&mut Context { vgic: &target.vm.vgic, vif: &mut Absent, host: &peers })
    })
}
