// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Events for the guest: exceptions, and deliveries that an exit has cut short (APM vol. 2, 15.20).

use super::code;
use super::vmcb::{Vmcb, event, interrupt};
use crate::cpu::regs::flags;

/// Exception vectors (APM vol. 2, 8.2).
pub(crate) mod vector {
    pub const DEBUG: u8 = 1;
    pub const BREAKPOINT: u8 = 3;
    pub const OVERFLOW: u8 = 4;
    pub const UNDEFINED: u8 = 6;
    pub const STACK: u8 = 12;
    pub const GENERAL_PROTECTION: u8 = 13;
    pub const PAGE_FAULT: u8 = 14;
    pub const ALIGNMENT: u8 = 17;
    /// The first that is nobody's but interrupts' (APM vol. 2, 8.1).
    pub const FIRST_INTERRUPT: u8 = 32;
}

/// DR6.BS: a single step.
pub(crate) const DR6_STEP: u64 = 1 << 14;
/// DR6.B0 to B3: breakpoints.
pub(crate) const DR6_BREAKPOINTS: u64 = 0xf;

/// An exception for the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exception {
    /// Its vector.
    pub vector: u8,
    /// Its error code, if it has one.
    pub error: Option<u32>,
    /// What CR2 becomes, of a page fault.
    pub address: Option<u64>,
}

impl Exception {
    /// #UD.
    pub const UNDEFINED: Self = Self { vector: vector::UNDEFINED, error: None, address: None };
    /// #GP(0).
    pub const PROTECTION: Self = Self { vector: vector::GENERAL_PROTECTION, error: Some(0), address: None };
    /// #SS(0).
    pub const STACK: Self = Self { vector: vector::STACK, error: Some(0), address: None };

    /// #PF.
    pub const fn page_fault(address: u64, error: u32) -> Self {
        Self { vector: vector::PAGE_FAULT, error: Some(error), address: Some(address) }
    }

    /// The guest takes the exception before it executes anything else.
    pub fn inject(self, vmcb: &mut Vmcb) {
        let error = match self.error {
            Some(error) => event::ERROR_CODE | u64::from(error) << 32,
            None => 0,
        };
        if let Some(address) = self.address {
            vmcb.set_cr2(address);
        }
        vmcb.set_event(event::VALID | event::EXCEPTION | u64::from(self.vector) | error);
    }
}

/// An instruction was executed for a guest with RFLAGS.TF or RF set: RF is over, TF is a trap.
#[cold]
pub(crate) fn executed(vmcb: &mut Vmcb) {
    let rflags = vmcb.rflags();
    vmcb.set_rflags(rflags & !flags::RESUME);
    if rflags & flags::TRAP != 0 {
        vmcb.set_dr6(vmcb.dr6() & !DR6_BREAKPOINTS | DR6_STEP);
        Exception { vector: vector::DEBUG, error: None, address: None }.inject(vmcb);
    }
}

/// Gives back the exception that was intercepted: the guest takes it as if it had not been.
pub(crate) fn reflect(vmcb: &mut Vmcb, exit: u32) {
    let vector = (exit - (code::DEBUG - u32::from(vector::DEBUG))) as u8;
    let [code, address] = vmcb.exit_info();
    let error = match vector {
        vector::DEBUG => None,
        // Always zero.
        vector::ALIGNMENT => Some(0),
        _ => Some(code as u32),
    };
    Exception { vector, error, address: (vector == vector::PAGE_FAULT).then_some(address) }.inject(vmcb);
}

/// Says whether the exit has cut the delivery of an event short.
pub(crate) fn was_cut_short(vmcb: &Vmcb) -> bool {
    vmcb.exit_interrupt() & event::VALID != 0
}

/// Lets the event be delivered again whose delivery the exit has cut short. What an instruction has raised is not
/// repeated: the instruction is. An interrupt is offered again as it was: vector and priority are where they were, and to
/// its APIC it was never taken. Before anything else of the exit looks at the APIC.
pub(crate) fn deliver_again(vmcb: &mut Vmcb) {
    let cut_short = vmcb.exit_interrupt();
    if cut_short & event::VALID == 0 {
        return;
    }
    match cut_short & event::TYPE {
        event::INTERRUPT => offer_again(vmcb),
        event::SOFTWARE => {}
        // QEMU's name for a virtual interrupt. Injected as what it is called it would be refused by VMRUN: there is no such exception.
        event::EXCEPTION if cut_short as u8 >= vector::FIRST_INTERRUPT => offer_again(vmcb),
        event::EXCEPTION if matches!(cut_short as u8, vector::BREAKPOINT | vector::OVERFLOW) => {}
        _ => vmcb.set_event(cut_short),
    }
}

/// Lets the virtual interrupt come again that the control block still has.
fn offer_again(vmcb: &mut Vmcb) {
    vmcb.set_interrupts(vmcb.interrupts() | interrupt::PENDING);
}

/// Says whether the guest takes the virtual interrupt that is offered to it as soon as it is entered.
pub fn takes_interrupt(vmcb: &Vmcb) -> bool {
    let offered = vmcb.interrupts();
    // The last vector that the task priority masks.
    let masked = (offered & interrupt::TPR & 0xf) << 4 | 0xf;
    let allowed = offered & interrupt::IGNORE_TPR != 0 || vmcb.interrupt_vector() > masked;
    offered & interrupt::PENDING != 0 && allowed && vmcb.rflags() & flags::INTERRUPT != 0
}
