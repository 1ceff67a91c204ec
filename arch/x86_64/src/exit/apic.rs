// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The guest's local APIC: the MSRs of an x2APIC, the page of an xAPIC, and the registers beside them.

use turnstile_exitstat::Event;
use turnstile_vapic::Fault;

use super::tier::{done, executed};
use crate::cpu::svm::Vmcb;
use crate::cpu::svm::event::Exception;
use crate::vcpu::frame::{Frame, resident};
use crate::vcpu::irq::with_lapic;
use crate::vcpu::next::{Next, length, skip};
use crate::vcpu::statistics;
use crate::vm::Vcpu;

/// The EOI register of an x2APIC.
pub(super) const X2APIC_EOI: u32 = 0x80b;
/// The EOI register in the page of an xAPIC.
const EOI_OFFSET: u32 = 0xb0;

/// Ends the interrupt of an x2APIC if there is only one. False if nothing was done.
#[inline(always)] // Half of the exits of an interrupt.
pub(super) fn try_eoi(vcpu: &'static Vcpu, vmcb: &mut Vmcb) -> bool {
    with_lapic::<false, _>(vcpu, vmcb, |lapic, cx| lapic.try_x2apic_eoi(cx.hardware))
}

/// Sends an interrupt of an x2APIC to itself, if it has no other. False if nothing was done.
#[inline(always)] // Half of the exits of such an interrupt.
pub(super) fn try_self_ipi(vcpu: &'static Vcpu, vmcb: &mut Vmcb, number: u32, value: u64) -> bool {
    with_lapic::<false, _>(vcpu, vmcb, |lapic, cx| lapic.try_self_ipi_msr(cx.hardware, number, value))
}

/// WRMSR to an x2APIC's range, light: interprocessor interrupts, ends of interrupts, the timer.
#[inline(always)] // Its one caller is a light exit.
pub(super) fn write_msr<N: Next>(frame: &mut Frame, vmcb: &mut Vmcb, number: u32, value: u64) -> u32 {
    let vcpu = resident(frame);
    if !N::COUNTS && with_lapic::<false, _>(vcpu, vmcb, |lapic, cx| lapic.try_send_msr(cx, number, value)) {
        return executed::<N>(frame, vmcb, length::MSR);
    }
    write_any_msr::<N>(frame, vmcb, number, value)
}

/// The same for all registers and states, apart so that the frequent ones are a leaf.
#[inline(never)]
fn write_any_msr<N: Next>(frame: &mut Frame, vmcb: &mut Vmcb, number: u32, value: u64) -> u32 {
    let vcpu = resident(frame);
    let result = if N::COUNTS {
        write_counted(vcpu, vmcb, number, value)
    } else {
        with_lapic::<false, _>(vcpu, vmcb, |lapic, cx| lapic.write_msr(cx, number, value))
    };
    match result {
        Ok(()) => skip::<N>(vmcb, length::MSR),
        Err(Fault) => Exception::PROTECTION.inject(vmcb),
    }
    done::<N>(frame, vmcb)
}

fn write_counted(vcpu: &'static Vcpu, vmcb: &mut Vmcb, number: u32, value: u64) -> Result<(), Fault> {
    statistics::add(vcpu, Event::ApicWrite);
    if number == X2APIC_EOI {
        statistics::add(vcpu, Event::EoiMsr);
    }
    with_lapic::<true, _>(vcpu, vmcb, |lapic, cx| lapic.write_msr(cx, number, value))
}

/// RDMSR from an x2APIC's range, light.
#[inline(never)] // So that writes are a leaf.
pub(super) fn read_msr<N: Next>(frame: &mut Frame, vmcb: &mut Vmcb, number: u32) -> u32 {
    let vcpu = resident(frame);
    statistics::add(vcpu, Event::ApicRead);
    match with_lapic::<true, _>(vcpu, vmcb, |lapic, cx| lapic.read_msr(cx, number)) {
        Ok(value) => {
            frame.set_pair(vmcb, value);
            skip::<N>(vmcb, length::MSR);
        }
        Err(Fault) => Exception::PROTECTION.inject(vmcb),
    }
    done::<N>(frame, vmcb)
}

/// Returns the offset of a guest physical address in the page of the vCPU's xAPIC, if it is there.
#[inline]
pub(super) fn page_offset(vcpu: &'static Vcpu, address: u64) -> Option<u32> {
    let page = vcpu.owned(|owned| owned.lapic.page())?;
    (address & !0xfff == page).then_some(address as u32 & 0xfff)
}

/// Reads the page of the vCPU's xAPIC.
pub(super) fn read_page(vcpu: &'static Vcpu, vmcb: &mut Vmcb, offset: u32, size: u8) -> u64 {
    statistics::add(vcpu, Event::ApicRead);
    with_lapic::<true, _>(vcpu, vmcb, |lapic, cx| lapic.read_page(cx, offset, size))
}

/// Writes the page of the vCPU's xAPIC.
pub(super) fn write_page(vcpu: &'static Vcpu, vmcb: &mut Vmcb, offset: u32, size: u8, value: u64) {
    statistics::add(vcpu, Event::ApicWrite);
    if offset == EOI_OFFSET {
        statistics::add(vcpu, Event::EoiPage);
    }
    with_lapic::<true, _>(vcpu, vmcb, |lapic, cx| lapic.write_page(cx, offset, size, value as u32));
}
