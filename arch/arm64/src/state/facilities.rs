// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Facilities, and what a vCPU has of them while no CPU holds it.

use alloc::boxed::Box;

use super::common;
use super::debug::Debug;
use super::fp::Fp;
use super::idregs::Offer;
use super::pauth::Keys;
use super::pmu::Counters;
use super::sve::Sve;
use super::trapped_pmu::TrappedPmu;
use super::traps::Open;

/// Registers that are claimed together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Facility {
    /// FP and SIMD; with SVE, if the VM has it.
    Vector,
    /// The PMU, if the VM owns it.
    Pmu,
    /// Breakpoints, watchpoints and what belongs to them.
    Debug,
    /// Keys of pointer authentication.
    Pauth,
}

impl Facility {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Vector, Self::Pmu, Self::Debug, Self::Pauth];

    /// What the holder, a vCPU of a VM that has `offer`, uses without a trap.
    pub fn open(self, offer: &Offer) -> Open {
        match self {
            Self::Vector if offer.sve => Open::FP | Open::SVE,
            Self::Vector => Open::FP,
            Self::Pmu => Open::PMU,
            Self::Debug => Open::DEBUG,
            Self::Pauth => Open::PAUTH,
        }
    }
}

/// Which facilities a vCPU gets when it is loaded, because it has used them lately: no fault tells of that as long as it does.
///
/// Of those that are only state, without effects of their own. A vCPU that does not use one any more would have it switched for
/// ever; so after [`Wanted::LOADS`] times the next use traps again, and begins anew.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    vector: u16,
    keys: u16,
}

impl Wanted {
    /// How many times a facility is loaded unasked.
    pub const LOADS: u16 = 256;

    fn left(&mut self, facility: Facility) -> Option<&mut u16> {
        match facility {
            Facility::Vector => Some(&mut self.vector),
            Facility::Pauth => Some(&mut self.keys),
            Facility::Pmu | Facility::Debug => None,
        }
    }

    /// Says whether there is one.
    #[inline(always)] // A load, of each switch.
    pub const fn is_any(self) -> bool {
        self.vector | self.keys != 0
    }

    /// Notes that the vCPU has used a facility.
    pub fn used(&mut self, facility: Facility) {
        if let Some(left) = self.left(facility) {
            *left = Self::LOADS;
        }
    }

    /// Says whether a facility is to be loaded, and counts that.
    pub fn take(&mut self, facility: Facility) -> bool {
        match self.left(facility) {
            None | Some(0) => false,
            Some(left) => {
                *left -= 1;
                true
            }
        }
    }
}

/// A vCPU's facilities: those that it does not hold anywhere are here; of the others, what was here when they were
/// claimed.
pub struct State {
    /// Its PMU, if that traps.
    pub trapped_pmu: TrappedPmu,
    /// What it gets when it is loaded.
    pub wanted: Wanted,
    /// What it uses without a trap where it is resident: the facilities that the CPU that last ran it holds for it.
    pub held: Open,
    vector: Vector,
    /// Its PMU, if that is the CPU's.
    pub pmu: Counters,
    /// Its debug registers.
    pub debug: Debug,
    keys: Keys,
}

/// Vector registers, as long as the VM's.
enum Vector {
    Fp(Box<Fp>),
    Sve(Sve),
}

impl State {
    /// Makes the reset state of a vCPU of a VM that has `offer`.
    pub fn new(offer: &Offer) -> Self {
        let vector = if offer.sve {
            Vector::Sve(Sve::new(common::vector_length()))
        } else {
            Vector::Fp(Box::default())
        };
        Self {
            trapped_pmu: TrappedPmu::default(),
            wanted: Wanted::default(),
            held: Open::NONE,
            vector,
            pmu: Counters::default(),
            debug: Debug::new(),
            keys: Keys::default(),
        }
    }

    /// Returns to the reset state. No CPU holds anything.
    pub fn reset(&mut self) {
        match &mut self.vector {
            Vector::Fp(fp) => **fp = Fp::default(),
            Vector::Sve(sve) => sve.reset(),
        }
        self.trapped_pmu = TrappedPmu::default();
        self.wanted = Wanted::default();
        self.pmu = Counters::default();
        self.debug = Debug::new();
        self.keys = Keys::default();
    }

    /// Stores a facility from this CPU's registers. Of those that act on others, the vCPU is not resident.
    pub fn save(&mut self, facility: Facility) {
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
    pub unsafe fn load(&self, facility: Facility) {
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
