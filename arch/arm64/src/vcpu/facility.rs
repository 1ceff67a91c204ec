// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Facilities that a vCPU gets when it first uses them: FP, SIMD and SVE; the PMU; debug registers; keys of pointer
//! authentication.
//!
//! A facility's registers are left in a physical CPU until another vCPU needs them there. Each CPU knows whose they
//! are, its *holders*. [`load`] opens to a vCPU what it holds and lets the rest trap; the first use ([`trap`], [`claim`])
//! stores the registers of the holder and loads those of the vCPU, which holds them from then on. Vectors and keys, once used,
//! come with the vCPU for a while ([`Wanted`](crate::state::facilities::Wanted)). [`put`] leaves
//! them where they are, so that a vCPU that comes back to find nobody in between pays nothing; what would act on others
//! (counting, breakpoints) is stopped. A vCPU that goes to another CPU takes everything along ([`depart`]).
//!
//! Claiming always loads all registers of a facility, and a reset forgets what they were ([`reset`]), so nothing
//! that one guest has left is ever seen by another, or by its own next life.

#[cfg(test)]
mod tests;

use turnstile_arch_common::of_cpu::Holder;

use crate::cpu::mode::Mode;
use crate::cpu::{self, class};
use crate::state::facilities::{Facility, State};
use crate::state::traps::{self, Open};
use crate::state::{common, debug, pauth, pmu, sve};
use crate::vm::{Vcpu, Vm};

/// Whose facilities a physical CPU has in its registers. No functions of this module that touch it call each other's callers.
pub struct Holders {
    of: [Holder<Vcpu>; Facility::ALL.len()],
}

impl Holders {
    /// Makes those of a CPU that has not started: nobody's.
    pub const fn new() -> Self {
        // SAFETY: each CPU touches only its own, which the functions of this module reach through `cpu::this`; interrupts are
        // masked at EL2.
        Self { of: [const { unsafe { Holder::nobody() } }; Facility::ALL.len()] }
    }

    fn holds(&self, facility: Facility, vcpu: &Vcpu) -> bool {
        self.of[facility as usize].is(vcpu)
    }

    /// Makes `vcpu` the holder. The registers are its own from here on, and nobody else's.
    fn give(&self, facility: Facility, vcpu: &'static Vcpu) {
        self.forget(facility);
        self.of[facility as usize].set(vcpu);
        state(vcpu).held |= facility.open(&vcpu.vm.offer);
    }

    /// Forgets the holder: it has stored what it wants to keep.
    fn forget(&self, facility: Facility) {
        if let Some(holder) = self.of[facility as usize].get() {
            let held = &mut state(holder).held;
            *held = held.without(facility.open(&holder.vm.offer));
        }
        self.of[facility as usize].forget();
    }
}

impl Default for Holders {
    fn default() -> Self {
        Self::new()
    }
}

/// Sets up this CPU: everything traps and is nobody's.
pub fn start_cpu<M: Mode>() {
    let vector_length = if sve::exists() { traps::opened(Open::FP | Open::SVE, sve::longest) } else { 0 };
    common::note(vector_length, pmu::implemented());
    pmu::abandon();
    debug::abandon();
    traps::start_cpu::<M>();
}

/// Returns a vCPU's state. Not to be kept over a call of another function of this module.
#[allow(clippy::mut_from_ref, reason = "the contract of `Vcpu::facilities` makes the reference unique")]
fn state(vcpu: &Vcpu) -> &mut State {
    // SAFETY: only the CPU that last ran the vCPU gets here, and nothing keeps the reference.
    unsafe { vcpu.facilities() }
}

/// The part of loading a vCPU that is about facilities. Once per [`put`] or [`reset`].
pub fn load(vcpu: &'static Vcpu) {
    if vcpu.pmu {
        // Its model reads the free-running counter.
        release(Facility::Pmu);
        state(vcpu).trapped_pmu.load();
    }
    // What acts without being accessed must be there.
    if state(vcpu).pmu.is_active() && !take(Facility::Pmu, vcpu) {
        // SAFETY: the vCPU holds the counters and becomes resident.
        unsafe { state(vcpu).pmu.start() };
    }
    if state(vcpu).debug.is_active() && !take(Facility::Debug, vcpu) {
        // SAFETY: as above.
        unsafe { state(vcpu).debug.start() };
    }
    if state(vcpu).wanted.is_any() {
        give_wanted(vcpu);
    }
    traps::set(state(vcpu).held);
}

/// Gives a vCPU that is being loaded what it has used lately, without waiting for the fault.
#[inline(never)] // Who uses nothing is not to pay for its registers.
fn give_wanted(vcpu: &'static Vcpu) {
    let holders = cpu::this().slot::<Holders>();
    for facility in [Facility::Vector, Facility::Pauth] {
        let holder = &holders.of[facility as usize];
        if holder.is(vcpu) || !state(vcpu).wanted.take(facility) {
            continue;
        }
        let before = holder.get();
        if facility == Facility::Vector {
            // They trap at EL2, too. What is open then is what the vCPU has anyway, and perhaps what only the holder has.
            let of_holder = before.map_or(Open::NONE, |before| facility.open(&before.vm.offer));
            traps::open(state(vcpu).held | facility.open(&vcpu.vm.offer) | of_holder);
        }
        if let Some(before) = before {
            state(before).save(facility);
        }
        // SAFETY: the vCPU becomes resident, and what the registers had is stored.
        unsafe { state(vcpu).load(facility) };
        holders.give(facility, vcpu);
    }
}

/// The part of putting a vCPU that is about facilities.
pub fn put(vcpu: &Vcpu) {
    let state = state(vcpu);
    if vcpu.pmu {
        state.trapped_pmu.put();
    }
    if state.held.intersects(Open::PMU) {
        state.pmu.stop();
    }
    if state.held.intersects(Open::DEBUG) {
        state.debug.stop();
    }
}

/// Takes everything of a vCPU out of this CPU, which ran it last, before another CPU loads it. Behind [`put`].
pub fn depart(vcpu: &Vcpu) {
    for facility in Facility::ALL {
        if cpu::this().slot::<Holders>().holds(facility, vcpu) {
            release(facility);
        }
    }
}

/// Puts a vCPU's facilities into their reset state, on the CPU that last ran it. Behind it comes [`load`], or a life
/// in which the vCPU is not loaded.
pub fn reset(vcpu: &Vcpu) {
    let holders = cpu::this().slot::<Holders>();
    for facility in Facility::ALL {
        if holders.holds(facility, vcpu) {
            abandon(facility);
        }
    }
    state(vcpu).reset();
}

/// A trapped instruction: gives the resident vCPU the facility, so that the instruction can be executed again. False if
/// it is not part of this machine.
pub fn trap(vcpu: &'static Vcpu, exception: u64) -> bool {
    match exception {
        class::FP => claim(vcpu, Facility::Vector),
        class::SVE if vcpu.vm.offer.sve => claim(vcpu, Facility::Vector),
        class::PAUTH if vcpu.vm.offer.pauth => claim(vcpu, Facility::Pauth),
        _ => false,
    }
}

/// Gives the resident vCPU a facility, so that the access that trapped can be made again. False if it has it.
pub fn claim(vcpu: &'static Vcpu, facility: Facility) -> bool {
    if facility == Facility::Pauth {
        pauth::note_use();
    }
    let taken = take(facility, vcpu);
    state(vcpu).wanted.used(facility);
    traps::set(state(vcpu).held);
    taken
}

/// Gives the resident vCPU all that its VM has, as images for ablation do at the start: the state that they switch on
/// exits must not trap at EL2.
#[cfg(feature = "ablation")]
pub fn claim_all(vcpu: &'static Vcpu) {
    let offer = vcpu.vm.offer;
    let has = |facility| match facility {
        Facility::Pmu => offer.pmu == pmu::Kind::Owned,
        Facility::Pauth => offer.pauth,
        Facility::Vector | Facility::Debug => true,
    };
    Facility::ALL.into_iter().filter(|facility| has(*facility)).for_each(|facility| {
        claim(vcpu, facility);
    });
}

/// Says whether this CPU's counters are those of `vcpu`, and so their interrupt.
pub fn counts(vcpu: &Vcpu) -> bool {
    cpu::this().slot::<Holders>().holds(Facility::Pmu, vcpu)
}

/// Locks the OS lock of the resident vCPU, or unlocks it (OSLAR_EL1).
pub fn set_os_lock(vcpu: &'static Vcpu, value: u64) {
    claim(vcpu, Facility::Debug);
    // SAFETY: the vCPU is resident and holds the debug registers.
    unsafe { state(vcpu).debug.set_os_lock(value) };
}

/// Returns OSLSR_EL1 of the resident vCPU.
pub fn os_lock_status(vcpu: &Vcpu) -> u64 {
    state(vcpu).debug.os_lock_status()
}

/// Makes `vcpu` the holder. False if it is already.
fn take(facility: Facility, vcpu: &'static Vcpu) -> bool {
    let holders = cpu::this().slot::<Holders>();
    if holders.holds(facility, vcpu) {
        return false;
    }
    with_access(facility, vcpu.vm, || {
        release(facility);
        // SAFETY: the vCPU is resident or becomes so, and the registers are nobody's.
        unsafe { state(vcpu).load(facility) };
    });
    holders.give(facility, vcpu);
    true
}

/// Stores the holder's registers, which are nobody's from then on.
fn release(facility: Facility) {
    let Some(holder) = cpu::this().slot::<Holders>().of[facility as usize].get() else { return };
    with_access(facility, holder.vm, || state(holder).save(facility));
    abandon(facility);
}

/// Forgets the holder. What would act on others is switched off; the rest nobody can reach.
fn abandon(facility: Facility) {
    match facility {
        Facility::Pmu => pmu::abandon(),
        Facility::Debug => debug::abandon(),
        Facility::Vector | Facility::Pauth => {}
    }
    cpu::this().slot::<Holders>().forget(facility);
}

/// Does something with a facility's registers for a vCPU of `vm`. Only vectors trap at EL2.
fn with_access(facility: Facility, vm: &Vm, action: impl FnOnce()) {
    match facility {
        Facility::Vector => traps::opened(facility.open(&vm.offer), action),
        _ => action(),
    }
}
