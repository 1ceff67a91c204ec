// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a vCPU has of interrupts.

use core::sync::atomic::{AtomicBool, Ordering};

use turnstile_papr::xics::{Change, Icp};

use super::escalation::Escalation;
use super::ring::Ring;
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

/// What a light exit has left to the full tier, which can call functions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Left {
    /// Nothing.
    #[default]
    Nothing,
    /// A reason was posted to the vCPU of this number, which is in no CPU.
    Absent(usize),
    /// The sources are to be told of a change of the presentation controller of the vCPU of this number.
    Sources(usize, Change),
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
    left: Left,
}

impl Own {
    pub(super) fn new(ring: Ring, presentation: Presentation, escalation: Escalation) -> Self {
        let models = presentation == Presentation::Xics;
        Self { models, prodded: false, raised: false, ring, escalation, left: Left::Nothing }
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
            self.ring.reset();
        }
    }

    /// Says whether its guest uses XICS.
    #[inline(always)] // One load.
    pub(crate) fn models(&self) -> bool {
        self.models
    }

    /// Leaves something to the full tier of this exit.
    #[inline(always)] // A few stores.
    pub(crate) fn leave(&mut self, left: Left) {
        self.left = left;
    }

    /// Takes what the light tier has left.
    pub(crate) fn take_left(&mut self) -> Left {
        core::mem::take(&mut self.left)
    }

    fn prepare(&mut self, icp: &Icp) {
        wire::prepare(&self.ring);
        self.raised = false;
        self.follow(icp.is_presented());
    }

    /// Lets the wire say whether an interrupt is `presented`. Nothing is stored if it does already. What another CPU presents
    /// meanwhile the attention word tells of.
    #[inline(always)] // A load and a comparison, in each of XICS' calls.
    pub(crate) fn follow(&mut self, presented: bool) {
        if presented != self.raised {
            self.raised = presented;
            if presented { wire::raise(&self.ring) } else { wire::lower(&self.ring) }
        }
    }

    /// The vCPU is prodded: it does not wait when it cedes next.
    #[inline(always)] // One store.
    pub(crate) fn prod(&mut self) {
        self.prodded = true;
    }

    /// Takes the prod, if there is one.
    #[inline(always)] // A load, and a store if there is one.
    pub(crate) fn take_prod(&mut self) -> bool {
        let prodded = self.prodded;
        if prodded {
            self.prodded = false;
        }
        prodded
    }

    /// Says whether an external interrupt is pending for the vCPU, which is resident.
    #[inline(always)] // One load; for a guest that drives its ring itself, one of a device's register.
    pub(crate) fn is_interrupted(&self) -> bool {
        if self.models { self.raised } else { self.ring.is_pending() }
    }
}
