// SPDX-License-Identifier: Apache-2.0 OR MIT
//! KVM's paravirtual interface (Linux, Documentation/virt/kvm/x86/msr.rst, hypercalls.rst): registers that name places in
//! guest memory, and the records there; calls.
//!
//! | file | what |
//! |---|---|
//! | `clock` | kvmclock and the wall clock |
//! | `steal` | stolen time, and TLB flushes of a vCPU that does not run |
//! | `calls` | interprocessor interrupts to many, ending another vCPU's HLT |
//!
//! A guest has what its CPUID says; the rest is #GP, or an unknown call. An address is looked up once, when it is
//! written: RAM of a VM stays where it is as long as it runs, or is pinned there, and each life of a vCPU begins with everything off.

mod calls;
mod clock;
mod steal;
#[cfg(test)]
mod tests;

use turnstile_pvclock::{ClockRecord, Request, StealRecord, WallClock, clock_request, steal_request};
use turnstile_vapic::Fault;
use turnstile_x86policy::features::kvm as feature;

use crate::cpu::svm::Vmcb;
use crate::state::kvm;
use crate::vcpu::irq;
use crate::vm::Vcpu;

pub(crate) use calls::{ENOSYS, KICK_CPU, SEND_IPI, call};
pub(crate) use clock::{adjust, tell_of_pause};
pub(crate) use steal::{load, put};

/// The wall clock and the clock of a vCPU, at their old numbers.
const OLD_WALL_CLOCK: u32 = 0x11;
const OLD_CLOCK: u32 = 0x12;
/// And at those of their own, with all that came later.
const WALL_CLOCK: u32 = 0x4b56_4d00;
const CLOCK: u32 = 0x4b56_4d01;
const STEAL_TIME: u32 = 0x4b56_4d03;
const PV_EOI: u32 = 0x4b56_4d04;
const POLL_CONTROL: u32 = 0x4b56_4d05;

/// The life of a vCPU ends, or an INIT has reached it: nothing is written to its guest's memory any more.
pub(crate) fn end(vcpu: &Vcpu) {
    vcpu.owned(|owned| owned.kvm = kvm::State::default());
}

/// The feature that a register belongs to; zero for registers that there are not.
const fn feature_of(number: u32) -> u32 {
    match number {
        OLD_WALL_CLOCK | OLD_CLOCK => feature::CLOCKSOURCE,
        WALL_CLOCK | CLOCK => feature::CLOCKSOURCE2,
        STEAL_TIME => feature::STEAL_TIME,
        PV_EOI => feature::PV_EOI,
        POLL_CONTROL => feature::POLL_CONTROL,
        _ => 0,
    }
}

/// Reads a register of the interface.
pub(crate) fn read(vcpu: &'static Vcpu, number: u32) -> Result<u64, Fault> {
    if !vcpu.vm.offers(feature_of(number)) {
        return Err(Fault);
    }
    if number == PV_EOI {
        return irq::pv_eoi(vcpu);
    }
    Ok(vcpu.owned(|owned| match number {
        OLD_WALL_CLOCK | WALL_CLOCK => owned.kvm.wall_clock,
        OLD_CLOCK | CLOCK => owned.kvm.clock.value,
        STEAL_TIME => owned.kvm.steal.value,
        _ => owned.polling.allowed.into(),
    }))
}

/// Says whether a register is to name memory for which a pool has no block: it is written again, later.
#[cold]
#[inline(never)] // Not part of what others pay.
pub(crate) fn is_dry(vcpu: &Vcpu, number: u32, value: u64) -> bool {
    let ram = &vcpu.vm.life().ram;
    if !vcpu.vm.offers(feature_of(number)) {
        return false;
    }
    let (request, size) = match number {
        OLD_WALL_CLOCK | WALL_CLOCK => (Some(Request::At(value)), WallClock::SIZE),
        OLD_CLOCK | CLOCK => (clock_request(value), ClockRecord::SIZE),
        STEAL_TIME => (steal_request(value), StealRecord::SIZE),
        // Its address has the same form.
        PV_EOI => (clock_request(value), irq::EOI_WORD),
        _ => (None, 0),
    };
    matches!(request, Some(Request::At(address)) if ram.is_dry(address, size))
}

/// Writes a register of the interface.
pub(crate) fn write(vcpu: &'static Vcpu, vmcb: &mut Vmcb, number: u32, value: u64) -> Result<(), Fault> {
    if !vcpu.vm.offers(feature_of(number)) {
        return Err(Fault);
    }
    match number {
        OLD_WALL_CLOCK | WALL_CLOCK => clock::write_wall_clock(vcpu, value),
        OLD_CLOCK | CLOCK => clock::set(vcpu, vmcb, value),
        STEAL_TIME => steal::set(vcpu, value),
        PV_EOI => irq::set_pv_eoi(vcpu, vmcb, value),
        _ if vcpu.owned(|owned| owned.polling.set(value)) => Ok(()),
        _ => Err(Fault),
    }
}
