// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What exits cost, for the vCPUs of VMs that keep statistics.
//!
//! They use a run loop of their own (`timed_loop` in `vectors.S`). It reads the time-stamp counter first thing and notes
//! the reason of the exit in the frame; before it enters the guest it reads the counter again and adds the difference to
//! the reason's record in the vCPU's page. Here is the rest: reasons that only a handler knows, and time that is nobody's
//! cost.
//!
//! An entry closes exactly one reckoning. An exit that does not lead back into its guest (the vCPU gets an INIT, its VM
//! stops) is reckoned when that is known ([`Timing::end`]); the vCPU's next entry is then its start ([`Timing::begin`]). While a vCPU
//! waits, in the waiting room or in HLT, no cost accrues.

#[cfg(doc)]
use turnstile_exitstat::Timing;
use turnstile_exitstat::{Event, Reason, record_offset};

use crate::cpu::svm::vmcb::event;
use crate::cpu::svm::{Vmcb, code};
use crate::time;
use crate::vcpu::frame::Frame;
use crate::vcpu::next::Next;
use crate::vm::Vcpu;

/// The offset of the record of each exit code: `vectors.S` reads it. Nested page faults, whose code is beyond, have the
/// place of a code that is never intercepted.
#[cfg_attr(target_os = "none", unsafe(no_mangle))]
pub static EXIT_RECORDS: [u16; 256] = {
    let mut records = [offset(Reason::Other); 256];
    records[(code::NESTED_PAGE_FAULT & 0xff) as usize] = offset(Reason::DataAbort);
    records[code::DEBUG as usize] = offset(Reason::Exception);
    records[code::ALIGNMENT as usize] = offset(Reason::Exception);
    let mut fault = code::INVALID_TSS as usize;
    while fault <= code::PAGE_FAULT as usize {
        records[fault] = offset(Reason::Exception);
        fault += 1;
    }
    records[code::MACHINE_CHECK as usize] = offset(Reason::MachineError);
    records[code::INTR as usize] = offset(Reason::OtherInterrupt);
    records[code::NMI as usize] = offset(Reason::NonMaskable);
    records[code::CPUID as usize] = offset(Reason::Identification);
    records[code::PAUSE as usize] = offset(Reason::Wait);
    records[code::HLT as usize] = offset(Reason::Wait);
    records[code::IOIO as usize] = offset(Reason::Port);
    records[code::MSR as usize] = offset(Reason::ModelRegister);
    records[code::VMMCALL as usize] = offset(Reason::Hypercall);
    records
};

const fn offset(reason: Reason) -> u16 {
    record_offset(reason) as u16
}

/// Notes the reason of the exit that is being handled, where statistics are kept.
#[inline(always)] // Two instructions of a light exit.
pub fn note<N: Next>(frame: &mut Frame, reason: Reason) {
    if N::COUNTS {
        frame.timing.note(reason);
    }
}

/// Counts an event of a light exit, where statistics are kept.
#[inline(always)] // Nothing without.
pub fn count<N: Next>(vcpu: &Vcpu, event: Event) {
    if N::COUNTS {
        add(vcpu, event);
    }
}

/// Counts an event of the vCPU that is resident on this CPU, where statistics are kept.
#[inline]
pub fn add(vcpu: &Vcpu, event: Event) {
    if let Some(page) = vcpu.statistics {
        page.count(event);
    }
}

/// Counts what the guest is about to be given.
#[inline(always)] // Mostly nothing: two instructions.
pub fn count_event(vcpu: &Vcpu, vmcb: &Vmcb) {
    if vmcb.event() & event::VALID != 0 {
        count_given(vcpu, vmcb.event());
    }
}

#[cold]
#[inline(never)]
fn count_given(vcpu: &Vcpu, given: u64) {
    match given & event::TYPE {
        event::EXCEPTION => add(vcpu, Event::InjectedException),
        event::NMI => add(vcpu, Event::InjectedNmi),
        _ => {}
    }
}

/// Waits, because the vCPU has nothing to do: which is nobody's cost.
pub fn waiting(frame: &mut Frame, f: impl FnOnce()) {
    frame.timing.count(Event::Halted);
    frame.timing.without(time::ticks, f);
}
