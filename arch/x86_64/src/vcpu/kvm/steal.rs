// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Stolen time, and that a vCPU does not run: so that others spin for it no longer, and leave a flush of its TLB to the
//! moment when it runs again.

use turnstile_exitstat::Event;
use turnstile_pvclock::{FLUSH_TLB, Memory, PREEMPTED, StealRecord, steal_request};
use turnstile_vapic::Fault;

use crate::cpu::svm::Vmcb;
use crate::memory::user;
use crate::vcpu::{asid, statistics};
use crate::vm::Vcpu;
use turnstile_x86policy::features::kvm as feature;

/// Gives a vCPU a record of its stolen time, or takes it away.
pub(super) fn set(vcpu: &'static Vcpu, value: u64) -> Result<(), Fault> {
    let request = steal_request(value);
    vcpu.owned(|owned| owned.kvm.steal.set(&vcpu.vm.life().ram, value, request, StealRecord::SIZE))?;
    account(vcpu);
    Ok(())
}

/// Writes how much was stolen from a vCPU, if its guest wants to know.
fn account(vcpu: &Vcpu) {
    let stolen = vcpu.thread.as_ref().map_or(0, |thread| thread.stolen());
    vcpu.owned(|owned| {
        let steal = &mut owned.kvm.steal;
        if let Some(mut place) = steal.place {
            steal.version = StealRecord { stolen }.write(&mut place, steal.version);
        }
    });
}

/// A vCPU leaves its CPU: others may know that it does not run. Only from here on until [`load`] do they change the word.
pub(crate) fn put(vcpu: &Vcpu) {
    if let Some(mut place) = vcpu.owned(|owned| owned.kvm.steal.place) {
        place.write_u32(StealRecord::STATE, PREEMPTED);
    }
}

/// A vCPU has become resident. A flush of its TLB that was left to this moment is done before its guest runs: whoever asks
/// for one later finds that the vCPU runs, and sends it an interrupt.
pub(crate) fn load(vcpu: &Vcpu, vmcb: &mut Vmcb) {
    let Some(place) = vcpu.owned(|owned| owned.kvm.steal.place) else { return };
    // SAFETY: the record's memory, found in this life of the VM, at a multiple of 64.
    let state = unsafe { user::and_u32(place.0.get() + StealRecord::STATE, !(PREEMPTED | FLUSH_TLB)) };
    if state & FLUSH_TLB != 0 && vcpu.vm.offers(feature::PV_TLB_FLUSH) {
        asid::renew(vcpu, vmcb);
        statistics::add(vcpu, Event::PvTlbFlush);
    }
    account(vcpu);
}
