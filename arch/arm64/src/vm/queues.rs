// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Run queues as far as waking takes them, and how a vCPU hears of what is posted to it: by a kick, or by being woken.

use core::marker::PhantomData;

use turnstile_exitstat::Page;
use turnstile_threads::Queues;
use turnstile_vm::attention::{KickToken, Posted, Reasons};

use super::objects::Vcpu;
use super::thread::Thread;
use crate::cpu::{self, PerCpu};
use crate::irq::{Gic, VectorsKind, in_gic};
use crate::time;

/// The run queue of a physical CPU, for that CPU alone.
pub type Scheduler = turnstile_threads::Scheduler<Vcpu, PerCpu, Residue>;
/// All vCPUs that share CPUs.
pub type System = turnstile_threads::System<Vcpu, PerCpu>;

/// What vCPUs have left behind on a CPU.
pub struct Residue {
    /// Which vCPU of each VM ran here last: its translations are in the TLB.
    pub last: [u32; 256],
    /// Whose vectors are in use, once a vCPU was loaded.
    pub vectors: Option<VectorsKind>,
    /// Whether WFE traps: somebody waits.
    pub waited_for: bool,
}

impl Default for Residue {
    fn default() -> Self {
        const NOBODY: u32 = u32::MAX;
        Self { last: [NOBODY; 256], vectors: None, waited_for: false }
    }
}

/// The architecture with the GIC `G`.
pub struct On<G>(PhantomData<G>);

impl<G: Gic> Queues for On<G> {
    turnstile_threads::queues_of!(PerCpu, Vcpu, Thread, Residue);

    fn this() -> &'static PerCpu {
        cpu::this()
    }

    fn kick(token: KickToken) {
        G::kick(token);
    }

    fn ticks() -> u64 {
        time::ticks()
    }

    fn reschedule(token: KickToken) {
        G::reschedule(token);
    }
}

impl Vcpu {
    /// As [`turnstile_threads::notify`].
    #[inline] // On the path of every cross-CPU interrupt.
    pub fn notify<G: Gic>(&self, posted: Posted) {
        turnstile_threads::notify::<On<G>>(self, posted);
    }

    /// The same for a poster that is another vCPU in an exit: this one is not resident on the calling CPU.
    #[inline(always)] // Once per target of an SGI.
    pub fn notify_other<G: Gic>(&self, posted: Posted) {
        match posted {
            Posted::Seen => {}
            Posted::Kick(token) => G::kick(token),
            Posted::Wake => turnstile_threads::wake::<On<G>>(self),
        }
    }

    /// Sets reasons to look, and makes the vCPU do so.
    pub fn post(&self, reasons: Reasons) {
        fn post<G: Gic>(vcpu: &Vcpu, reasons: Reasons) {
            vcpu.notify::<G>(vcpu.attention.post(reasons));
        }
        in_gic!(post(self, reasons));
    }
}

impl turnstile_arch_common::vm::Vcpu for Vcpu {
    fn post(&self, reasons: Reasons) {
        self.post(reasons);
    }

    fn is_pinned(&self) -> bool {
        self.thread.is_none()
    }

    fn statistics(&self) -> Option<&'static Page> {
        self.statistics
    }
}
