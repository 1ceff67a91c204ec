// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a vCPU has of interrupts.

use core::cell::UnsafeCell;

use turnstile_papr::xics::Icp;

use super::board::Presentation;
use super::escalation::Escalation;
use super::ring::{Ring, wire};
use crate::vm::Vm;

/// The interrupts of a vCPU.
#[derive(Debug)]
pub struct Vcpu {
    /// Its presentation controller, if its guest uses XICS: anybody's.
    pub icp: Icp,
    /// How it is woken where it is resident nowhere.
    pub(super) escalation: Escalation,
    own: UnsafeCell<Own>,
}

// SAFETY: `own` is reached only on the CPU where the vCPU is resident, by the contract of `Vcpu::own`.
unsafe impl Sync for Vcpu {}

impl Vcpu {
    /// Makes those of vCPU `index` of `vm`.
    pub fn new(vm: &Vm, index: usize) -> Self {
        let board = &vm.board;
        Self { icp: Icp::new(), escalation: board.escalation(index), own: UnsafeCell::new(board.own(index)) }
    }

    /// Uses what belongs to the CPU where the vCPU is resident: on that CPU, where nothing interrupts it. `f` does not give the
    /// CPU away, and does not get here again.
    #[inline(always)] // An address computation on the light path.
    pub(super) fn own<R>(&self, f: impl FnOnce(&mut Own) -> R) -> R {
        // SAFETY: unique by the contract.
        f(unsafe { &mut *self.own.get() })
    }
}

/// What belongs to the CPU where it is resident.
#[derive(Debug)]
pub(super) struct Own {
    /// Its guest drives its ring by calls: it is the wire of the model's external interrupt.
    models: bool,
    /// It was prodded, and has not ceded since.
    prodded: bool,
    /// The wire says that an interrupt is presented.
    raised: bool,
    ring: Ring,
}

impl Own {
    pub(super) fn new(ring: Ring, presentation: Presentation) -> Self {
        Self { models: presentation == Presentation::Xics, prodded: false, raised: false, ring }
    }

    /// The vCPU becomes resident on this CPU.
    pub(super) fn load(&mut self, icp: &Icp) {
        self.ring.load();
        if self.models {
            self.prepare(icp);
        }
    }

    /// The vCPU leaves this CPU.
    pub(super) fn put(&mut self) {
        self.ring.put();
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
