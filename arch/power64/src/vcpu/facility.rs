// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What of a vCPU is in registers that no exit touches: the special-purpose registers of the guest, FP and vector registers,
//! the decrementer. The hypervisor uses none of them.
//!
//! It is left in a physical CPU until another vCPU is to run there. Each CPU knows whose it is, the *holder*. [`load`] stores
//! what the holder has left and loads what the next one has, so that a vCPU that comes back to find nobody in between pays
//! nothing. A vCPU that goes to another CPU takes everything along ([`depart`]). A life begins with everything in its reset
//! state ([`reset`]); nothing that one guest has left is ever seen by another, or by its own next life.
//!
//! The groups of registers are in `state`.

#[cfg(test)]
pub(crate) mod tests;

use turnstile_arch_common::of_cpu;
use turnstile_papr::Memory;
use turnstile_papr::vpa::offset;

use super::switch;
use crate::cpu;
use crate::cpu::regs::{DEC, HFSCR};
use crate::memory::partition;
#[cfg(feature = "ablation")]
use crate::state::techniques::{Technique, is_off};
use crate::state::{Modes, State, residue};
use crate::time;
use crate::vm::Vcpu;

/// Whose state a physical CPU has in its registers. This module alone sees who it is.
pub struct Holder(of_cpu::Holder<Vcpu>);

impl Holder {
    /// Makes that of a CPU that has not started: nobody.
    ///
    /// # Safety
    /// As for [`of_cpu::OfCpu::new`].
    pub const unsafe fn nobody() -> Self {
        // SAFETY: the caller's promise.
        Self(unsafe { of_cpu::Holder::nobody() })
    }
}

/// Whose state this CPU has.
#[inline(always)] // An address computation.
fn holder() -> &'static of_cpu::Holder<Vcpu> {
    let holder: &'static Holder = cpu::this().slot();
    &holder.0
}

/// Makes a vCPU that becomes resident the holder.
#[inline] // One comparison, for a vCPU that comes back.
pub fn load(vcpu: &'static Vcpu) {
    if !holder().is(vcpu) {
        take(vcpu);
    }
}

#[inline(never)] // Who comes back is not to pay for its registers.
fn take(vcpu: &'static Vcpu) {
    // SAFETY: the vCPU becomes resident here, and the registers are nobody's once they are stored.
    let state = unsafe { vcpu.facilities() };
    let before = release(Some(state));
    // SAFETY: this CPU has run it last, nobody refers to its state, and it is not the vCPU that is loaded.
    let before = before.map(|before| unsafe { &*before.facilities() });
    #[cfg(feature = "ablation")]
    let before = before.filter(|_| !is_off(Technique::SprCompare));
    let modes = Modes { lpidr: vcpu.vm.lpid().into(), lpcr: vcpu.vm.lpcr(), ..state.modes };
    state.modes = modes;
    state.modes.hfscr = state.demanded.grow_old(state.modes.hfscr);
    state.newer.hashpkeyr = vcpu.vm.hash_key();
    residue::forget(before.is_some_and(|before| before.modes.lpidr == modes.lpidr));
    // SAFETY: the state of the vCPU, whose guest is entered next; nothing of the machine's is among it. MSR.IR and MSR.DR are
    // 0, so nothing is translated before the guest is entered, which synchronizes the context.
    unsafe {
        state.common.load(before.map(|before| &before.common));
        state.newer.load(before.map(|before| &before.newer));
        state.emulated.load(before.map(|before| &before.emulated));
        state.newer_emulated.load(before.map(|before| &before.newer_emulated));
        state.modes.load(before.map(|before| &before.modes));
        state.demanded.load(before.map(|before| &before.demanded));
        state.vectors.load();
        DEC.write(time::bounded(state.decrementer.wrapping_sub(time::ticks()) as i64));
    }
    let index = cpu::this().index;
    if state.cpu.replace(index).is_some_and(|last| last != index) {
        // Its guest invalidates by TLBIEL what it alone has used. It has done so on the CPU where it was, not on this one,
        // which may know what it left here earlier; and it will on this one, not where it was, where other vCPUs of its VM
        // go on. So both forget all of the partition: rare enough for an invalidation on all CPUs.
        partition::invalidate(vcpu.vm.lpid());
    }
    holder().set(vcpu);
}

/// Takes everything of a vCPU out of this CPU, which ran it last, before another CPU loads it.
pub fn depart(vcpu: &Vcpu) {
    if holder().is(vcpu) {
        release(None);
    }
    // A guest that was interrupted between TLBIE and TLBSYNC has the rest of its sequence carried out on another CPU, for
    // which this one's invalidations need not be done. So they are, here, once, instead of on each exit.
    switch::finish_invalidations();
}

/// Begins a life of the resident vCPU.
pub fn reset(vcpu: &'static Vcpu) {
    // SAFETY: the vCPU is resident, and nobody refers to its state.
    let state = unsafe { vcpu.facilities() };
    if holder().is(vcpu) {
        state.demanded.freeze();
        holder().forget();
    }
    let cpu = state.cpu;
    *state = State { cpu, ..State::default() };
    take(vcpu);
}

/// Gives the resident vCPU a facility that it has just used for the first time, or again after a while. False if this is not
/// given on demand.
#[inline]
pub fn demand(vcpu: &'static Vcpu, facility: u8) -> bool {
    // SAFETY: the vCPU is resident here, and nobody refers to its state.
    let state = unsafe { vcpu.facilities() };
    let Some(bit) = state.demanded.demand(facility) else { return false };
    state.modes.hfscr |= bit;
    // SAFETY: the guest's own registers have been loaded.
    unsafe { HFSCR.write(state.modes.hfscr) };
    true
}

/// The guest has changed what the hypervisor sets for it.
pub fn set_modes(vcpu: &'static Vcpu, f: impl FnOnce(&mut Modes)) {
    // SAFETY: the vCPU is resident here, and nobody refers to its state.
    let state = unsafe { vcpu.facilities() };
    let before = state.modes;
    f(&mut state.modes);
    state.modes.lpcr = vcpu.vm.lpcr();
    // SAFETY: checked by who has called.
    unsafe { state.modes.load(Some(&before)) };
}

/// When the decrementer of a vCPU that has been put rings.
pub fn decrementer(vcpu: &'static Vcpu) -> u64 {
    if holder().is(vcpu) {
        return time::ticks().wrapping_add(time::signed(DEC.read()) as u64);
    }
    // SAFETY: this CPU has it, and nobody refers to its state.
    unsafe { vcpu.facilities() }.decrementer
}

/// Lets the decrementer of the resident vCPU ring at a value of the time base, which may be past.
pub fn set_decrementer(at: u64) {
    // SAFETY: the guest's own timer.
    unsafe { DEC.write(time::bounded(at.wrapping_sub(time::ticks()) as i64)) };
}

/// Stores what the holder has in registers. They are nobody's then, or those of the `next` one. Returns who it was.
#[cfg_attr(
    not(feature = "ablation"),
    allow(unused_variables, reason = "only without the groups the two are mixed")
)]
fn release(next: Option<&State>) -> Option<&'static Vcpu> {
    let holder = holder();
    let vcpu = holder.get()?;
    // SAFETY: this CPU has run it last.
    let state = unsafe { vcpu.facilities() };
    #[cfg(feature = "ablation")]
    match next {
        // SAFETY: the next one's are loaded.
        Some(next) if is_off(Technique::SprGroups) => unsafe { state.common.exchange(&next.common) },
        _ => state.common.save(),
    }
    #[cfg(not(feature = "ablation"))]
    state.common.save();
    state.newer.save();
    state.emulated.save();
    state.newer_emulated.save();
    state.demanded.save(|| counters_in_use(vcpu));
    state.vectors.save();
    state.decrementer = time::ticks().wrapping_add(time::signed(DEC.read()) as u64);
    holder.forget();
    Some(vcpu)
}

/// What the guest says in the area that it shares: without one, all counters are in use.
fn counters_in_use(vcpu: &Vcpu) -> bool {
    let Some(area) = vcpu.owned(|owned| owned.areas.vpa) else { return true };
    let mut flag = [1];
    let read = vcpu.vm.read(area.address + offset::PMC_IN_USE, &mut flag);
    !read || flag != [0]
}
