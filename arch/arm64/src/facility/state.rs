// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a vCPU has of facilities while no CPU holds it.

use alloc::boxed::Box;

use super::debug::Debug;
use super::fp::Fp;
use super::pauth::Keys;
use super::pmu::Counters;
use super::sve::Sve;
use super::trapped_pmu::TrappedPmu;
use super::{Facility, common};
use crate::vm::Vm;

/// A vCPU's facilities: those that it does not hold anywhere are here; of the others, what was here when they were
/// claimed.
pub struct State {
    /// Its PMU, if that traps.
    pub trapped_pmu: TrappedPmu,
    vector: Vector,
    pub(super) pmu: Counters,
    pub(super) debug: Debug,
    keys: Keys,
}

/// Vector registers, as long as the VM's.
enum Vector {
    Fp(Box<Fp>),
    Sve(Sve),
}

impl State {
    /// Makes the reset state of a vCPU of `vm`.
    pub fn new(vm: &Vm) -> Self {
        let vector = if vm.offer.sve {
            Vector::Sve(Sve::new(common::vector_length()))
        } else {
            Vector::Fp(Box::default())
        };
        Self {
            trapped_pmu: TrappedPmu::default(),
            vector,
            pmu: Counters::default(),
            debug: Debug::new(),
            keys: Keys::default(),
        }
    }

    /// Returns to the reset state.
    pub(super) fn reset(&mut self) {
        match &mut self.vector {
            Vector::Fp(fp) => **fp = Fp::default(),
            Vector::Sve(sve) => sve.reset(),
        }
        self.trapped_pmu = TrappedPmu::default();
        self.pmu = Counters::default();
        self.debug = Debug::new();
        self.keys = Keys::default();
    }

    /// Stores a facility from this CPU's registers. Of those that act on others, the vCPU is not resident.
    pub(super) fn save(&mut self, facility: Facility) {
        match (facility, &mut self.vector) {
            (Facility::Vector, Vector::Fp(fp)) => fp.save(),
            (Facility::Vector, Vector::Sve(sve)) => sve.save(),
            (Facility::Pmu, _) => self.pmu.save(),
            (Facility::Debug, _) => self.debug.save(),
            (Facility::Pauth, _) => self.keys.save(),
        }
    }

    /// Loads a facility into this CPU's registers.
    ///
    /// # Safety
    /// The vCPU is resident, or becomes so, and the registers' former holder has been stored.
    pub(super) unsafe fn load(&self, facility: Facility) {
        // SAFETY: the caller's promise.
        unsafe {
            match (facility, &self.vector) {
                (Facility::Vector, Vector::Fp(fp)) => fp.load(),
                (Facility::Vector, Vector::Sve(sve)) => sve.load(),
                (Facility::Pmu, _) => self.pmu.load(),
                (Facility::Debug, _) => self.debug.load(),
                (Facility::Pauth, _) => self.keys.load(),
            }
        }
    }
}
