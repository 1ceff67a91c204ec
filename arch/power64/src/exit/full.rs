// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Full exits. R0 to R12 are in the frame; R13 to R31 are in the CPU, and an exit that needs one of them says so before it
//! does anything ([`Entry::Stores`]): then it is handled anew.

use turnstile_vm::lifecycle::Stop;

use super::crash::Crash;
use super::{Code, attend, hcall, illegal, inject, resident, storage, xics};
use crate::cpu::regs::{HMER, HSRR0, HSRR1, SRR0, SRR1};
use crate::cpu::vector;
use crate::vcpu::frame::{Entry, Frame};
use crate::vcpu::{idle, interrupts};
use crate::vm::Vcpu;
use crate::vm::monitor::{Monitor, monitor};

/// What carrying out an exit has led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Done {
    /// The guest goes on.
    Yes,
    /// A waiting [`Code`].
    Then(u32),
    /// Nothing has been done: it needs registers that are not in the frame.
    Stores,
}

/// Finishes an exit.
#[inline(always)] // The body of its two callers.
pub(super) fn exit(frame: &mut Frame, why: u32) -> Entry {
    let vcpu = resident(frame);
    let monitor = monitor();
    take_over(frame, why);
    let then = match why & Code::KIND {
        Code::FULL => match unfinished(frame, vcpu, monitor) {
            Done::Stores => return Entry::Stores,
            Done::Then(code) => code,
            Done::Yes => 0,
        },
        other => other,
    };
    let begun = match then {
        Code::WAIT => attend::cede(frame, vcpu, monitor),
        Code::GIVE_WAY => attend::give_way(frame, vcpu),
        Code::LEFT => xics::finish(vcpu),
        _ => false,
    };
    if attend::settle(frame, vcpu, monitor) | begun { Entry::All } else { Entry::Some }
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

/// What the light tier has left.
fn unfinished(frame: &mut Frame, vcpu: &'static Vcpu, monitor: &dyn Monitor) -> Done {
    match frame.vector {
        vector::CALL => return Done::Then(hcall::full(frame, vcpu, monitor)),
        vector::HYPERVISOR_DATA_STORAGE => return storage::data(frame, vcpu, monitor),
        vector::HYPERVISOR_INSTRUCTION_STORAGE => storage::instruction(frame, vcpu),
        vector::HYPERVISOR_DECREMENTER => idle::decrementer(Some(vcpu), monitor),
        vector::VIRTUALIZATION => interrupts::serve(),
        vector::EMULATION_ASSISTANCE => illegal::instruction(frame, vcpu),
        vector::HYPERVISOR_FACILITY => return illegal::facility(frame, vcpu),
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
    Done::Yes
}
