// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Full exits. All registers are in the frame, but for R13 to R31 of a call. Those are in the CPU, too, and stay there unless the
//! frame gets others ([`Entry`]).

use turnstile_vm::lifecycle::Stop;

use super::crash::Crash;
use super::{Code, attend, hcall, illegal, inject, resident, storage, xics};
use crate::cpu::regs::{HMER, HSRR0, HSRR1, SRR0, SRR1};
use crate::cpu::vector;
use crate::vcpu::frame::{Entry, Frame};
use crate::vcpu::{idle, interrupts};
use crate::vm::monitor::monitor;

/// Finishes an exit other than a call.
#[inline(always)] // The body of its two callers.
pub(super) fn exit(frame: &mut Frame, why: u32) -> Entry {
    (frame.pc, frame.msr) = (HSRR0.read(), HSRR1.read());
    if why & Code::KIND == Code::FULL {
        match frame.vector {
            vector::HYPERVISOR_DATA_STORAGE => storage::data(frame),
            vector::HYPERVISOR_FACILITY => illegal::facility(frame),
            _ => unfinished(frame),
        }
    }
    end(frame)
}

/// The end of every full exit: what the attention word names is done, mostly nothing.
#[inline(always)] // Two comparisons. What they lead to is apart, so that exits need few registers.
pub(super) fn end(frame: &mut Frame) -> Entry {
    let vcpu = resident(frame);
    if vcpu.attention.is_pending() {
        attend::settle(frame, vcpu, monitor());
    }
    frame.entry()
}

/// Finishes a call.
#[inline(always)] // As above.
pub(super) fn call(frame: &mut Frame, why: u32) -> Entry {
    (frame.pc, frame.msr) = (SRR0.read(), SRR1.read());
    resident(frame).attention.note(0);
    // The registers of a call that may be changed have no hypervisor's value behind it.
    let kind = why & Code::KIND;
    let then = if kind == Code::FULL {
        hcall::full(frame, resident(frame), monitor())
    } else {
        frame.clear_changeable();
        kind
    };
    match then {
        Code::WAIT => attend::cede(frame, resident(frame), monitor()),
        Code::GIVE_WAY => attend::give_way(frame, resident(frame)),
        Code::LEFT => xics::finish(resident(frame)),
        _ => {}
    }
    end(frame)
}

/// What the light tier has left of the less frequent exits.
#[inline(never)] // Apart from the others.
fn unfinished(frame: &mut Frame) {
    let vcpu = resident(frame);
    match frame.vector {
        vector::HYPERVISOR_INSTRUCTION_STORAGE => storage::instruction(frame, vcpu),
        vector::HYPERVISOR_DECREMENTER => idle::decrementer(Some(vcpu), monitor()),
        vector::VIRTUALIZATION => interrupts::serve(),
        vector::EMULATION_ASSISTANCE => illegal::instruction(frame, vcpu),
        vector::SOFT_PATCH => illegal::soft_patch(frame, vcpu),
        // What is to be known of is in HMER; it is cleared by writing zeros (Book III, 10.2.1).
        vector::MAINTENANCE => {
            // SAFETY: clears what interrupts the hypervisor.
            unsafe { HMER.write(0) };
        }
        // Errors are interrupts to SRR0 and SRR1.
        vector::SYSTEM_RESET => {
            (frame.pc, frame.msr) = (SRR0.read(), SRR1.read());
            inject::system_reset(frame);
        }
        // Elsewhere the light tier takes it; what it is rung for is looked at behind every exit.
        #[cfg(feature = "ablation")]
        vector::HYPERVISOR_DOORBELL => {}
        _ => vcpu.vm.stop(Stop::Crash(Crash::MachineCheck as u16)),
    }
}
