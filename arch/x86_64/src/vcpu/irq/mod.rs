// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A guest's interrupts: the models of `core/vapic` on this machine.
//!
//! An exit that is not about interrupts touches none of this. The pending interrupt of the highest priority lies in the control
//! block, and the guest takes it by itself; what it did is looked at when something else is to be done with its APIC.

mod interface;

pub use interface::Interface;

use core::num::NonZeroU64;

use turnstile_vapic::{Context, Fault, Lapic, NEVER};
use turnstile_vm::attention::Reasons;

use crate::cpu::svm::Vmcb;
use crate::time;
use crate::vm::{Vcpu, Vm};

/// Uses the local APIC of the vCPU that is resident on this CPU, in an exit handler. With `COUNTS`, events go to the vCPU's
/// statistics, if it has any.
#[inline(always)] // Two addresses.
pub(crate) fn with_lapic<const COUNTS: bool, R>(
    vcpu: &'static Vcpu,
    vmcb: &mut Vmcb,
    f: impl FnOnce(&mut Lapic, &mut Context<'_, Interface<'_, COUNTS>, Vm>) -> R,
) -> R {
    let mut hardware = Interface::<COUNTS>::new(vcpu, vmcb);
    vcpu.owned(|owned| f(&mut owned.lapic, &mut Context { hardware: &mut hardware, bus: vcpu.vm }))
}

/// Takes over what others posted: the attention word has said so, and where it lies.
pub(crate) fn drain(vcpu: &'static Vcpu, vmcb: &mut Vmcb, reasons: Reasons) {
    take_posted::<true>(vcpu, vmcb, reasons);
}

/// The same for the light tier.
#[inline(always)] // Few callers.
pub(crate) fn take_posted<const COUNTS: bool>(vcpu: &'static Vcpu, vmcb: &mut Vmcb, reasons: Reasons) {
    with_lapic::<COUNTS, _>(vcpu, vmcb, |lapic, cx| lapic.drain(cx, &vcpu.mailbox, reasons));
}

/// The timer that was armed for this vCPU has rung, or is to be armed anew.
#[inline(always)] // One caller, on the way of each interrupt of a timer.
pub(crate) fn timer(vcpu: &'static Vcpu, vmcb: &mut Vmcb) {
    with_lapic::<true, _>(vcpu, vmcb, |lapic, cx| lapic.timer(cx));
    if vcpu.index == 0 {
        vcpu.vm.ring();
        // The 8254 may have another time now, and an APIC whose own timer stands still arms none.
        load(vcpu, vmcb);
    }
}

/// The 8259s assert something else. For the first vCPU.
pub(crate) fn external(vcpu: &'static Vcpu, vmcb: &mut Vmcb) {
    let asserted = vcpu.vm.asserted();
    with_lapic::<true, _>(vcpu, vmcb, |lapic, cx| lapic.set_line(cx, asserted));
}

/// Bytes of the word for paravirtual EOIs.
pub(crate) const EOI_WORD: u64 = 4;

/// Says whether the vCPU is offered paravirtual EOIs (KVM's feature leaf).
fn has_pv_eoi(vcpu: &Vcpu) -> bool {
    const FEATURES: u32 = 0x4000_0001;
    const PV_EOI: u32 = 1 << 6;
    vcpu.cpuid.get(FEATURES, 0).registers[0] & PV_EOI != 0
}

/// Reads MSR 0x4b564d04.
pub(crate) fn pv_eoi(vcpu: &Vcpu) -> Result<u64, Fault> {
    if has_pv_eoi(vcpu) { Ok(vcpu.owned(|owned| owned.lapic.pv_eoi())) } else { Err(Fault) }
}

/// Writes MSR 0x4b564d04.
pub(crate) fn set_pv_eoi(vcpu: &'static Vcpu, vmcb: &mut Vmcb, value: u64) -> Result<(), Fault> {
    if !has_pv_eoi(vcpu) {
        return Err(Fault);
    }
    let resolve = |address| vcpu.vm.life().ram.host_to_keep(address, EOI_WORD).and_then(NonZeroU64::new);
    with_lapic::<true, _>(vcpu, vmcb, |lapic, cx| lapic.set_pv_eoi(cx, value, resolve))
}

/// The guest's time stamp counter is written.
pub(crate) fn set_clock(vcpu: &'static Vcpu, vmcb: &mut Vmcb, value: u64) {
    let offset = value.wrapping_sub(time::ticks());
    let by = offset.wrapping_sub(vmcb.tsc_offset());
    vmcb.set_tsc_offset(offset);
    with_lapic::<true, _>(vcpu, vmcb, |lapic, cx| lapic.shift_clock(cx.hardware, by));
}

/// Before the vCPU uses a port of the 8259s: they hear of the interrupt that it has taken.
#[inline(always)] // One comparison.
pub(crate) fn before_port(vcpu: &'static Vcpu, vmcb: &mut Vmcb) {
    if vcpu.owned(|owned| owned.lapic.owes_acknowledge()) {
        settle(vcpu, vmcb);
    }
}

#[cold]
#[inline(never)] // So that ports are short.
fn settle(vcpu: &'static Vcpu, vmcb: &mut Vmcb) {
    with_lapic::<true, _>(vcpu, vmcb, |lapic, cx| lapic.settle(cx));
}

/// The life of the vCPU's VM ends, or a new one begins.
pub(crate) fn reset(vcpu: &'static Vcpu, vmcb: &mut Vmcb) {
    vcpu.mailbox.clear();
    with_lapic::<true, _>(vcpu, vmcb, |lapic, cx| lapic.reset(cx));
}

/// The vCPU's local APIC has got an INIT. The control block has its reset state, or will have it before the guest runs. What others
/// have sent before is gone; what they send from here on finds an APIC that accepts nothing until its guest enables it.
pub(crate) fn init(vcpu: &'static Vcpu, vmcb: &mut Vmcb) {
    with_lapic::<true, _>(vcpu, vmcb, |lapic, cx| lapic.init(cx));
    vcpu.mailbox.clear();
}

/// The same, and then the 8259s' interrupts get through, as firmware leaves it.
pub(crate) fn resume(vcpu: &'static Vcpu, vmcb: &mut Vmcb) {
    init(vcpu, vmcb);
    with_lapic::<true, _>(vcpu, vmcb, |lapic, cx| lapic.wire(cx));
}

/// The vCPU is off: it has got an INIT, or its VM stops. None of its timers rings until it begins anew.
pub(crate) fn off(vcpu: &'static Vcpu, vmcb: &mut Vmcb) {
    // An INIT changes nothing of the 8259s: what the guest has taken is in service there.
    before_port(vcpu, vmcb);
    vcpu.set_on(false);
    init(vcpu, vmcb);
}

/// The vCPU halts, and goes on doing so: until [`rise`] its APIC's timer does not ring for what could change nothing. The 8254 does,
/// whose interrupt may be another vCPU's.
pub(crate) fn rest(vcpu: &'static Vcpu, vmcb: &mut Vmcb) {
    with_lapic::<true, _>(vcpu, vmcb, |lapic, cx| lapic.rest(cx));
}

/// The vCPU leaves HLT.
pub(crate) fn rise(vcpu: &'static Vcpu, vmcb: &mut Vmcb) {
    with_lapic::<true, _>(vcpu, vmcb, |lapic, cx| lapic.rise(cx));
}

/// What is silent of a vCPU whose VM is paused.
#[derive(Debug)]
pub(crate) struct Silent {
    deadline: u64,
    has_8254: bool,
    /// The ticks for which the VM's clock had stood still before.
    still: u64,
}

/// The VM is paused: neither the timer of the vCPU's APIC nor the 8254 rings, until [`sound`].
pub(crate) fn silence(vcpu: &'static Vcpu, vmcb: &mut Vmcb) -> Silent {
    let (has_8254, still) = (vcpu.has_8254(), vcpu.vm.pause.still());
    vcpu.set_on(false);
    let deadline = with_lapic::<true, _>(vcpu, vmcb, |lapic, cx| lapic.silence(cx));
    Silent { deadline, has_8254, still }
}

/// The VM goes on, and its time stamp counter from where it was. Says whether that has stood still.
pub(crate) fn sound(vcpu: &'static Vcpu, vmcb: &mut Vmcb, silent: &Silent) -> bool {
    let stood = vcpu.vm.pause.still().wrapping_sub(silent.still);
    if stood != 0 {
        vmcb.set_tsc_offset(vmcb.tsc_offset().wrapping_sub(stood));
    }
    vcpu.set_on(silent.has_8254);
    with_lapic::<true, _>(vcpu, vmcb, |lapic, cx| lapic.sound(cx, silent.deadline));
    timer(vcpu, vmcb);
    stood != 0
}

/// The vCPU becomes resident on this CPU: its timer rings here.
pub(crate) fn load(vcpu: &'static Vcpu, vmcb: &mut Vmcb) {
    with_lapic::<true, _>(vcpu, vmcb, |lapic, cx| {
        use turnstile_vapic::Hardware as _;
        cx.hardware.arm(lapic.deadline());
    });
}

/// The vCPU leaves this CPU. Returns when its timer will have rung, by this machine's time stamp counter.
pub(crate) fn put(vcpu: &'static Vcpu, vmcb: &mut Vmcb) -> Option<u64> {
    time::set_guest(None);
    let deadline = vcpu.owned(|owned| owned.lapic.deadline());
    let own = if deadline == NEVER { NEVER } else { interface::to_host(vmcb, deadline) };
    let board = if vcpu.has_8254() { vcpu.vm.board.timer() } else { NEVER };
    let at = own.min(board);
    (at != NEVER).then_some(at)
}

#[cfg(test)]
mod tests;
