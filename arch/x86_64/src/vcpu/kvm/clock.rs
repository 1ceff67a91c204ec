// SPDX-License-Identifier: Apache-2.0 OR MIT
//! kvmclock: how long the VM has run, for its guest to make of its time stamp counter; and the wall clock when it began.
//!
//! The counter of all CPUs is one, and a VM's vCPUs begin with the same offset to it, so the record that a vCPU gets when it
//! asks for it is right as long as it runs, and all vCPUs have the same: nothing is written afterwards, but that the VM was paused.

use turnstile_pvclock::{ClockRecord, Scale, WallClock, clock_request};
use turnstile_vapic::Fault;

use crate::cpu::svm::Vmcb;
use crate::memory::user;
use crate::state::kvm::Place;
use crate::time;
use crate::vm::Vcpu;

/// How long the VM has run, in nanoseconds.
fn age(vcpu: &Vcpu, scale: Scale) -> u64 {
    scale.nanoseconds(time::ticks().wrapping_add(vcpu.vm.life().tsc_offset()))
}

/// Gives a vCPU its clock, or takes it away.
pub(super) fn set(vcpu: &'static Vcpu, vmcb: &Vmcb, value: u64) -> Result<(), Fault> {
    let request = clock_request(value);
    vcpu.owned(|owned| owned.kvm.clock.set(&vcpu.vm.life().ram, value, request, ClockRecord::SIZE))?;
    // Whatever is at the new place is not the hypervisor's.
    write(vcpu, vmcb, |_| false);
    Ok(())
}

/// Writes the clock of a vCPU anew, if it has one: its guest has changed its time stamp counter. Of a pause that the guest has been
/// told of it still has to hear if it has not looked, and not once more if it has.
pub(crate) fn adjust(vcpu: &'static Vcpu, vmcb: &Vmcb) {
    write(vcpu, vmcb, |place| {
        // SAFETY: inside the record, whose memory was found in this life of the VM.
        ClockRecord::tells_of_pause(unsafe { user::read_u32(place.0.get() + ClockRecord::STATE) })
    });
}

/// The same after a pause of the VM, of which the guest is told: who watches over it is not to complain.
pub(crate) fn tell_of_pause(vcpu: &'static Vcpu, vmcb: &Vmcb) {
    write(vcpu, vmcb, |_| true);
}

/// Writes the record; whether the VM was `paused` is found out where it is.
fn write(vcpu: &'static Vcpu, vmcb: &Vmcb, paused: impl FnOnce(&Place) -> bool) {
    let Some(mut place) = vcpu.owned(|owned| owned.kvm.clock.place) else { return };
    let paused = paused(&place);
    let scale = Scale::new(time::frequency());
    let (now, offset) = (time::ticks(), vmcb.tsc_offset());
    let record = if offset == vcpu.vm.life().tsc_offset() {
        // The counter began with the VM. No rounding is in the record, so the vCPUs' clocks agree to the nanosecond.
        ClockRecord { timestamp: 0, time: 0, scale, paused }
    } else {
        ClockRecord { timestamp: now.wrapping_add(offset), time: age(vcpu, scale), scale, paused }
    };
    vcpu.owned(|owned| {
        let clock = &mut owned.kvm.clock;
        clock.version = record.write(&mut place, clock.version);
    });
}

/// Writes the wall clock to where the guest wants it, once.
pub(super) fn write_wall_clock(vcpu: &'static Vcpu, value: u64) -> Result<(), Fault> {
    vcpu.owned(|owned| owned.kvm.wall_clock = value);
    if value == 0 {
        return Ok(());
    }
    if !value.is_multiple_of(WallClock::ALIGNMENT) {
        return Err(Fault);
    }
    let mut place = Place::find(&vcpu.vm.life().ram, value, WallClock::SIZE).ok_or(Fault)?;
    let clock = WallClock::new(time::wall_nanoseconds(), age(vcpu, Scale::new(time::frequency())));
    // SAFETY: just found, in the VM's RAM, which stays as long as the VM runs.
    let version = unsafe { user::read_u32(place.0.get()) };
    clock.write(&mut place, version);
    Ok(())
}
