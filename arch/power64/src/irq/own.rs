// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a vCPU has of interrupts.

use turnstile_papr::xics::Icp;

use super::board::Presentation;
use super::escalation::Escalation;
use super::ring::{Ring, wire};
use crate::vcpu::Vcpu;

/// What others reach, too.
#[derive(Debug, Default)]
pub struct Shared {
    /// Its presentation controller, if its guest uses XICS.
    pub icp: Icp,
}

impl Shared {
    /// Makes it for a vCPU that has never run.
    pub fn new() -> Self {
        Self::default()
    }
}

/// What belongs to the CPU where it is resident.
#[derive(Debug)]
pub struct Own {
    /// Its guest drives its ring by calls: it is the wire of the model's external interrupt.
    models: bool,
    /// It was prodded, and has not ceded since.
    prodded: bool,
    /// The wire says that an interrupt is presented.
    raised: bool,
    ring: Ring,
    /// How it is woken where it is resident nowhere.
    escalation: Escalation,
}

impl Own {
    pub(super) fn new(ring: Ring, presentation: Presentation, escalation: Escalation) -> Self {
        Self { models: presentation == Presentation::Xics, prodded: false, raised: false, ring, escalation }
    }

    /// The vCPU becomes resident on this CPU.
    pub(super) fn load(&mut self, icp: &Icp) {
        self.ring.load();
        if self.models {
            self.prepare(icp);
        }
    }

    /// Before [`Own::put`]: what comes behind this escalates, what has come before that is pending.
    pub(super) fn arm(&mut self, vcpu: &'static Vcpu) {
        self.escalation.arm(vcpu);
    }

    /// The vCPU leaves this CPU. True if an interrupt is pending for it.
    pub(super) fn put(&mut self) -> bool {
        self.ring.put() || self.raised
    }

    /// The vCPU, which is resident, begins anew.
    pub(super) fn begin(&mut self, icp: &Icp) {
        self.prodded = false;
        if self.models {
            self.prepare(icp);
        } else {
            Ring::reset();
        }
    }

    fn prepare(&mut self, icp: &Icp) {
        wire::prepare();
        self.raised = false;
        self.follow(icp);
    }

    /// Lets the wire say what the model says. Nothing is stored if it does already.
    #[inline(always)] // Two loads and a comparison, in each of XICS' calls.
    pub(super) fn follow(&mut self, icp: &Icp) {
        let presented = icp.is_presented();
        if presented != self.raised {
            self.raised = presented;
            if presented { wire::raise() } else { wire::lower() }
        }
    }

    /// The vCPU is prodded: it does not wait when it cedes next.
    #[inline(always)] // One store.
    pub(super) fn prod(&mut self) {
        self.prodded = true;
    }

    /// Takes the prod, if there is one.
    #[inline(always)] // A load and a store.
    pub(super) fn take_prod(&mut self) -> bool {
        core::mem::take(&mut self.prodded)
    }

    /// Says whether an external interrupt is pending for the vCPU, which is resident.
    #[inline(always)] // One load; for a guest that drives its ring itself, one of a device's register.
    pub(super) fn is_interrupted(&self) -> bool {
        if self.models { self.raised } else { super::ring::is_pending() }
    }
}
