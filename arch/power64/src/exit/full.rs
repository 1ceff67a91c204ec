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
use crate::vm::Vcpu;
use crate::vm::monitor::{Monitor, monitor};

/// Finishes an exit.
#[inline(always)] // The body of its two callers.
pub(super) fn exit(frame: &mut Frame, why: u32) -> Entry {
    let vcpu = resident(frame);
    let monitor = monitor();
    take_over(frame, why);
    let then = match why & Code::KIND {
        Code::FULL => unfinished(frame, vcpu, monitor),
        other => other,
    };
    match then {
        Code::WAIT => attend::cede(frame, vcpu, monitor),
        Code::GIVE_WAY => attend::give_way(frame, vcpu),
        Code::LEFT => xics::finish(vcpu),
        _ => {}
    }
    attend::settle(frame, vcpu, monitor);
    frame.entry()
}

/// Takes over where the guest goes on. The registers of a call that may be changed have no hypervisor's value behind it.
fn take_over(frame: &mut Frame, why: u32) {
    (frame.pc, frame.msr) = match frame.vector {
        vector::CALL | vector::SYSTEM_RESET | vector::MACHINE_CHECK => (SRR0.read(), SRR1.read()),
        _ => (HSRR0.read(), HSRR1.read()),
    };
    if frame.vector == vector::CALL {
        resident(frame).attention.note(0);
        if why & Code::KIND != Code::FULL {
            frame.clear_changeable();
        }
    }
}

/// What the light tier has left. Returns what comes then: zero, or a [`Code`].
fn unfinished(frame: &mut Frame, vcpu: &'static Vcpu, monitor: &dyn Monitor) -> u32 {
    match frame.vector {
        vector::CALL => return hcall::full(frame, vcpu, monitor),
        vector::HYPERVISOR_DATA_STORAGE => storage::data(frame, vcpu, monitor),
        vector::HYPERVISOR_INSTRUCTION_STORAGE => storage::instruction(frame, vcpu),
        vector::HYPERVISOR_DECREMENTER => idle::decrementer(Some(vcpu), monitor),
        vector::VIRTUALIZATION => interrupts::serve(),
        vector::EMULATION_ASSISTANCE => illegal::instruction(frame, vcpu),
        vector::HYPERVISOR_FACILITY => illegal::facility(frame, vcpu),
        vector::SOFT_PATCH => illegal::soft_patch(frame, vcpu),
        // What is to be known of is in HMER; it is cleared by writing zeros (Book III, 10.2.1).
        vector::MAINTENANCE => {
            // SAFETY: clears what interrupts the hypervisor.
            unsafe { HMER.write(0) };
        }
        vector::SYSTEM_RESET => inject::system_reset(frame),
        // Elsewhere the light tier takes it; what it is rung for is looked at behind every exit.
        #[cfg(feature = "ablation")]
        vector::HYPERVISOR_DOORBELL => {}
        _ => vcpu.vm.stop(Stop::Crash(Crash::MachineCheck as u16)),
    }
    0
}
