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
//! written: RAM of a VM stays where it is as long as it runs, and each life of a vCPU begins with everything off.

mod calls;
mod clock;
mod steal;
#[cfg(test)]
mod tests;

use core::num::NonZeroU64;

use turnstile_pvclock::{Memory, Request};
use turnstile_vapic::Fault;
use turnstile_x86policy::features::kvm as feature;

use crate::irq;
use crate::memory::user;
use crate::svm::Vmcb;
use crate::vcpu::Vcpu;
use crate::vm::Vm;

pub(crate) use calls::{ENOSYS, KICK_CPU, SEND_IPI, call};
pub(crate) use clock::adjust;
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

/// What a vCPU's guest has asked for. Off in each new life, and after an INIT.
#[derive(Debug, Default)]
pub struct State {
    /// What it wrote to the register of the wall clock.
    wall_clock: u64,
    clock: Record,
    steal: Record,
}

/// What a guest says of polling while its vCPU halts (MSR 4B564D05h).
#[derive(Debug)]
pub struct Polling {
    /// How many values the register takes: none where it is not offered. So one comparison checks both.
    values: u64,
    allowed: bool,
}

impl Polling {
    /// Makes it as it is after a reset, of a vCPU whose guest is `offered` the register or not.
    pub fn new(offered: bool) -> Self {
        Self { values: if offered { 2 } else { 0 }, allowed: true }
    }

    /// Takes what the guest wrote; false if that is a fault.
    #[inline(always)] // Hot: two instructions of a light exit.
    pub fn set(&mut self, value: u64) -> bool {
        let is_valid = value < self.values;
        if is_valid {
            self.allowed = value != 0;
        }
        is_valid
    }

    /// Goes back to the state after a reset.
    pub fn reset(&mut self) {
        self.allowed = true;
    }
}

/// A record in guest memory.
#[derive(Debug, Default)]
struct Record {
    /// What the guest wrote to the register.
    value: u64,
    place: Option<Place>,
    /// The version that is there.
    version: u32,
}

impl Record {
    /// Takes what the guest wrote to the register: a new place has `size` bytes.
    fn set(&mut self, vcpu: &Vcpu, value: u64, request: Option<Request>, size: u64) -> Result<(), Fault> {
        let place = match request.ok_or(Fault)? {
            Request::Off => None,
            Request::At(address) => Some(Place::find(vcpu, address, size).ok_or(Fault)?),
        };
        *self = Self { value, place, version: self.version };
        Ok(())
    }
}

/// Guest memory of a record, by the address at which the hypervisor reaches it.
#[derive(Clone, Copy, Debug)]
struct Place(NonZeroU64);

impl Place {
    /// Finds `size` bytes at a guest physical address.
    fn find(vcpu: &Vcpu, address: u64, size: u64) -> Option<Self> {
        vcpu.vm.life().ram.host(address, size).and_then(NonZeroU64::new).map(Self)
    }
}

impl Memory for Place {
    fn write_u32(&mut self, offset: u64, value: u32) {
        // SAFETY: inside what `find` has found, in this life of the VM: a new one begins with `State::default`.
        unsafe { user::write_u32(self.0.get() + offset, value) };
    }

    fn write_u64(&mut self, offset: u64, value: u64) {
        // SAFETY: as above.
        unsafe { user::write_u64(self.0.get() + offset, value) };
    }
}

/// Says whether the guest of `vcpu` is offered this.
fn offers(vcpu: &Vcpu, feature: u32) -> bool {
    vm_offers(vcpu.vm, feature)
}

fn vm_offers(vm: &Vm, feature: u32) -> bool {
    vm.kvm.is_some_and(|features| features & feature != 0)
}

/// Makes what a vCPU of `vm` has of polling.
pub(crate) fn polling(vm: &Vm) -> Polling {
    Polling::new(vm_offers(vm, feature::POLL_CONTROL))
}

/// The life of a vCPU ends, or an INIT has reached it: nothing is written to its guest's memory any more.
pub(crate) fn end(vcpu: &Vcpu) {
    vcpu.owned(|owned| owned.kvm = State::default());
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
    if !offers(vcpu, feature_of(number)) {
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

/// Writes a register of the interface.
pub(crate) fn write(vcpu: &'static Vcpu, vmcb: &mut Vmcb, number: u32, value: u64) -> Result<(), Fault> {
    if !offers(vcpu, feature_of(number)) {
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
