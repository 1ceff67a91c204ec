// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a vCPU has of interrupts.

use core::sync::atomic::{AtomicBool, Ordering};

use turnstile_papr::xics::Icp;

use super::escalation::Escalation;
use super::ring::{self, Ring};
use super::wire;

/// How a guest sees its interrupt controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presentation {
    /// XIVE, which the guest drives itself.
    Xive,
    /// XICS, which it drives by calls.
    Xics,
}

/// What others reach, too.
#[derive(Debug, Default)]
pub struct Shared {
    /// Its presentation controller, if its guest uses XICS.
    pub icp: Icp,
    /// Another thread of its core has rung its doorbell, which is not in DPDES yet.
    doorbell: AtomicBool,
}

impl Shared {
    /// Makes it for a vCPU that has never run.
    pub fn new() -> Self {
        Self::default()
    }

    /// Another thread rings: [`Reasons::REMOTE`](turnstile_vm::attention::Reasons::REMOTE) is to tell.
    pub fn ring(&self) {
        // Release: the vCPU that takes the doorbell sees what was done before; pairs with `take_doorbell`.
        self.doorbell.store(true, Ordering::Release);
    }

    /// Takes the doorbell, if another thread has rung.
    pub(crate) fn take_doorbell(&self) -> bool {
        self.doorbell.load(Ordering::Relaxed) && self.doorbell.swap(false, Ordering::Acquire)
    }

    /// Says whether another thread has rung, and the vCPU has not looked yet.
    pub fn is_rung(&self) -> bool {
        self.doorbell.load(Ordering::Relaxed)
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
    pub(crate) fn load(&mut self, icp: &Icp) {
        self.ring.load();
        if self.models {
            self.prepare(icp);
        }
    }

    /// Before [`Own::put`]: what comes behind this escalates, what has come before that is pending.
    /// `expect` gets the number that the events have which wake it.
    #[inline(always)] // A comparison or two of each switch.
    pub(crate) fn arm(&mut self, expect: impl FnOnce(usize)) {
        self.escalation.arm(expect);
    }

    /// The vCPU leaves this CPU. True if an interrupt is pending for it.
    pub(crate) fn put(&mut self) -> bool {
        self.ring.put() || self.raised
    }

    /// The vCPU, which is resident, begins anew.
    pub(crate) fn begin(&mut self, icp: &Icp) {
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
    pub(crate) fn follow(&mut self, icp: &Icp) {
        let presented = icp.is_presented();
        if presented != self.raised {
            self.raised = presented;
            if presented { wire::raise() } else { wire::lower() }
        }
    }

    /// The vCPU is prodded: it does not wait when it cedes next.
    #[inline(always)] // One store.
    pub(crate) fn prod(&mut self) {
        self.prodded = true;
    }

    /// Takes the prod, if there is one.
    #[inline(always)] // A load and a store.
    pub(crate) fn take_prod(&mut self) -> bool {
        core::mem::take(&mut self.prodded)
    }

    /// Says whether an external interrupt is pending for the vCPU, which is resident.
    #[inline(always)] // One load; for a guest that drives its ring itself, one of a device's register.
    pub(crate) fn is_interrupted(&self) -> bool {
        if self.models { self.raised } else { ring::is_pending() }
    }
}
