// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Posting to a vCPU, and waking who is parked.

use turnstile_exitstat::Page;
use turnstile_threads::Queues;
use turnstile_vm::attention::{KickToken, Posted, Reasons};

use super::objects::Vcpu;
use crate::cpu::{self, PerCpu};
use crate::irq::lapic;
use crate::time;
use crate::vm::thread::Thread;

/// The run queue of a physical CPU, for that CPU alone.
pub type Scheduler = turnstile_threads::Scheduler<Vcpu, PerCpu, ()>;
/// All vCPUs that share CPUs.
pub type System = turnstile_threads::System<Vcpu, PerCpu>;

/// The architecture.
pub struct Svm;

impl Queues for Svm {
    turnstile_threads::queues_of!(PerCpu, Vcpu, Thread, ());

    fn this() -> &'static PerCpu {
        cpu::this()
    }

    fn kick(token: KickToken) {
        lapic::kick(token);
    }

    fn ticks() -> u64 {
        time::ticks()
    }

    fn reschedule(token: KickToken) {
        lapic::reschedule(token);
    }
}

impl Vcpu {
    /// As [`turnstile_threads::notify`].
    #[inline] // On the path of every cross-CPU interrupt.
    pub fn notify(&self, posted: Posted) {
        turnstile_threads::notify::<Svm>(self, posted);
    }

    /// Sets reasons to look, and makes the vCPU do so.
    pub fn post(&self, reasons: Reasons) {
        self.notify(self.attention.post(reasons));
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

    fn device_has_moved(&self) {
        self.forget_bell();
    }
}

impl Thread {
    /// A life of the vCPU begins.
    pub fn begin(&self) {
        self.account.begin(turnstile_threads::stolen::<Svm>(self));
    }

    /// Returns how many nanoseconds of this life the vCPU was ready and did not run.
    pub fn stolen(&self) -> u64 {
        self.account.until(turnstile_threads::stolen::<Svm>(self))
    }
}
