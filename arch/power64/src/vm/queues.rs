// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Posting to vCPUs, kicking those that are resident elsewhere, and waking those that are resident nowhere: what
//! `turnstile_threads` needs for that.

use turnstile_exitstat::Page;
use turnstile_papr::xics::{Icp, Servers};
use turnstile_threads::Queues;
use turnstile_vm::attention::{KickToken, Posted, Reasons};

use super::objects::{Vcpu, Vm};
use super::thread::Thread;
use crate::cpu::{self, PerCpu};
use crate::time;

/// The run queue of a physical CPU, for that CPU alone.
pub type Scheduler = turnstile_threads::Scheduler<Vcpu, PerCpu, ()>;
/// All vCPUs that share CPUs.
pub type System = turnstile_threads::System<Vcpu, PerCpu>;

/// The architecture.
pub struct Power;

impl Queues for Power {
    turnstile_threads::queues_of!(PerCpu, Vcpu, Thread, ());

    fn this() -> &'static PerCpu {
        cpu::this()
    }

    fn kick(token: KickToken) {
        cpu::ring(token);
    }

    fn ticks() -> u64 {
        time::ticks()
    }

    fn reschedule(token: KickToken) {
        // Its vCPU's attention word does not say so: there the doorbell does (`exit/mod.rs:listen`).
        cpu::ring(token);
    }
}

/// Reasons to look that other vCPUs of the VM give each other: a doorbell, or a prod.
pub(crate) const SENT: Reasons = Reasons::REMOTE.union(Reasons::UNHALT);

impl Vcpu {
    /// As [`turnstile_threads::notify`].
    #[inline] // On the path of every cross-CPU interrupt.
    pub fn notify(&self, posted: Posted) {
        turnstile_threads::notify::<Power>(self, posted);
    }

    /// Sets reasons to look, and makes the vCPU do so.
    pub fn post(&self, reasons: Reasons) {
        self.notify(self.attention.post(reasons));
    }

    /// What other vCPUs have sent until now to this one, which is about to stop, or whose VM's life has ended, is not for its
    /// next start. Before anybody can start it.
    pub(crate) fn forget(&self) {
        // Nobody's reason is lost: who still sends is not ordered before the stop.
        let _ = self.attention.take_only(SENT);
        self.interrupts.take_doorbell();
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

impl Thread {
    /// A life of the vCPU begins.
    pub fn begin(&self) {
        self.stolen.begin(turnstile_threads::stolen::<Power>(self));
    }

    /// Returns how many nanoseconds of this life the vCPU was ready and did not run.
    pub fn stolen(&self) -> u64 {
        self.stolen.until(turnstile_threads::stolen::<Power>(self))
    }
}

impl Servers for Vm {
    fn icp(&self, server: u32) -> Option<&Icp> {
        Some(&self.vcpu(server as usize)?.interrupts.icp)
    }

    fn notify(&self, server: u32) {
        if let Some(vcpu) = self.vcpu(server as usize) {
            vcpu.post(Reasons::INBOX);
        }
    }
}
