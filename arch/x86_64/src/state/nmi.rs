// SPDX-License-Identifier: Apache-2.0 OR MIT
//! NMIs of a vCPU (APM vol. 2, 8.2.3): one waits at most, and none is taken from one NMI to the end of the next IRET.
//!
//! That IRET is intercepted, and then stepped over: with RFLAGS.TF set, the guest leaves right behind it by #DB, which is
//! intercepted anyway, and takes the NMI that waits before it executes anything else. The guest sees nothing of the step:
//! - IRET replaces RFLAGS. Exceptions that it raises instead push them, so they are intercepted during the step, and the guest gets
//!   them with TF as it was.
//! - An interrupt that the guest takes first would push them, too. Then there is no step: the IRET of the interrupt's handler is
//!   the next one.
//! - An IRET that switches tasks would store them in the task that it leaves. It is not stepped over: NMIs are unmasked by the first
//!   exit that finds RIP elsewhere, and this CPU's timer makes one if an NMI waits.
//! - DR6 is put back. Breakpoints that IRET has met are the guest's, and so is the trap if TF was its own.
//!
//! An exit that comes before IRET was executed takes the step back, so that nothing else knows of it: the guest leaves at its IRET
//! once more.

#[cfg(test)]
mod tests;

use bitflags::bitflags;

use crate::cpu::regs::flags;
use crate::cpu::regs::{cr0, efer};
use crate::cpu::svm::Vmcb;
use crate::cpu::svm::event::{DR6_BREAKPOINTS, DR6_STEP, takes_interrupt};
use crate::cpu::svm::intercept;
use crate::cpu::svm::vmcb::event;

/// DR6.BD and BT: an access to a debug register, and a task switch.
const DR6_OTHERS: u64 = 1 << 13 | 1 << 15;

bitflags! {
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    struct State: u8 {
        /// An NMI waits.
        const PENDING = 1 << 0;
        /// None is taken.
        const MASKED = 1 << 1;
        /// The guest has left at an IRET.
        const RETURNING = 1 << 2;
        /// That IRET is stepped over.
        const STEPPING = 1 << 3;
        /// That IRET switches tasks, and is executed as soon as the guest is entered.
        const SWITCHING = 1 << 4;
    }
}

/// When the guest has to leave again, so that it gets an NMI that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Again {
    /// When it likes: none can be taken, or it takes one now.
    Any,
    /// Before it executes an instruction: once it has taken another event.
    AtOnce,
    /// When it has executed an instruction or more. How often that has been asked for in vain.
    Soon(u32),
}

/// The NMIs of a vCPU.
#[derive(Clone, Copy, Debug, Default)]
pub struct Nmi {
    state: State,
    /// Of a step: TF is the guest's own, and its DR6.
    trap: bool,
    dr6: u64,
    /// The address of the IRET that switches tasks.
    iret: u64,
    tries: u32,
}

impl Nmi {
    /// An NMI arrives.
    pub fn post(&mut self) {
        self.state |= State::PENDING;
    }

    /// Says whether there is nothing to be done before the guest is entered.
    #[inline(always)] // One comparison of each full exit.
    pub fn is_idle(&self) -> bool {
        self.state.is_empty()
    }

    /// Says whether one waits that is not masked.
    pub fn is_deliverable(&mut self, vmcb: &Vmcb) -> bool {
        if self.state.contains(State::SWITCHING) && self.iret != vmcb.rip() {
            self.state -= State::SWITCHING | State::MASKED;
        }
        self.state & (State::PENDING | State::MASKED) == State::PENDING
    }

    /// The guest is about to execute IRET, which ends the masking.
    pub fn iret(&mut self) {
        self.state |= State::RETURNING;
    }

    /// The guest has left by #DB. Says whether that was the step's alone.
    pub fn end_step(&mut self, vmcb: &mut Vmcb) -> bool {
        if !self.state.contains(State::STEPPING) {
            return false;
        }
        let raised = vmcb.dr6() & (DR6_BREAKPOINTS | DR6_STEP | DR6_OTHERS);
        let executed = raised & DR6_STEP != 0;
        if executed {
            // TF is what IRET has loaded.
            self.state -= State::STEPPING | State::MASKED;
            intercept::faults(vmcb, false);
            vmcb.set_dr6(self.dr6);
        } else {
            self.take_back(vmcb);
        }
        let own = if self.trap { raised } else { raised & !DR6_STEP };
        if executed && own & (DR6_STEP | DR6_OTHERS | enabled(vmcb.dr7())) == 0 {
            return true;
        }
        vmcb.set_dr6(self.dr6 & !DR6_BREAKPOINTS | own);
        false
    }

    /// Before the guest is entered: it gets an NMI if it can take one, or is made to leave when it can.
    pub fn enter(&mut self, vmcb: &mut Vmcb) -> Again {
        let returning = self.state.contains(State::RETURNING);
        self.state -= State::RETURNING;
        if self.state.contains(State::STEPPING) {
            self.take_back(vmcb);
        }
        let deliverable = self.is_deliverable(vmcb);
        if vmcb.event() & event::VALID != 0 {
            // One event at a time. It comes first, being that of an instruction that was executed.
            return if deliverable { Again::AtOnce } else { Again::Any };
        }
        if deliverable {
            // The instruction behind STI, MOV SS or POP SS is executed first.
            return if vmcb.interrupt_shadow() & 1 != 0 { self.soon() } else { self.inject(vmcb) };
        }
        if returning {
            self.unmask(vmcb);
        }
        // Nothing else leaves behind an IRET that switches tasks.
        let waits = self.state.contains(State::SWITCHING | State::PENDING);
        if waits { self.soon() } else { Again::Any }
    }

    fn soon(&mut self) -> Again {
        let tries = self.tries;
        self.tries = tries.saturating_add(1);
        Again::Soon(tries)
    }

    fn inject(&mut self, vmcb: &mut Vmcb) -> Again {
        self.state -= State::PENDING;
        self.state |= State::MASKED;
        self.tries = 0;
        vmcb.set_event(event::VALID | event::NMI | 2);
        intercept::iret(vmcb, true);
        Again::Any
    }

    /// Lets the guest execute its IRET.
    fn unmask(&mut self, vmcb: &mut Vmcb) {
        if takes_interrupt(vmcb) && vmcb.interrupt_shadow() & 1 == 0 {
            return;
        }
        intercept::iret(vmcb, false);
        if switches_tasks(vmcb) {
            self.state |= State::SWITCHING;
            self.iret = vmcb.rip();
            return;
        }
        self.state |= State::STEPPING;
        (self.trap, self.dr6) = (vmcb.rflags() & flags::TRAP != 0, vmcb.dr6());
        intercept::faults(vmcb, true);
        vmcb.set_rflags(vmcb.rflags() | flags::TRAP);
        // So that it says what has happened: its bits stay set.
        vmcb.set_dr6(self.dr6 & !(DR6_BREAKPOINTS | DR6_STEP | DR6_OTHERS));
    }

    /// IRET was not executed.
    fn take_back(&mut self, vmcb: &mut Vmcb) {
        self.state -= State::STEPPING;
        if !self.trap {
            vmcb.set_rflags(vmcb.rflags() & !flags::TRAP);
        }
        vmcb.set_dr6(self.dr6);
        intercept::faults(vmcb, false);
        intercept::iret(vmcb, true);
    }
}

/// The breakpoints of DR6 that DR7 has on, each for its task or for all (APM vol. 2, 13.1.1.4).
fn enabled(dr7: u64) -> u64 {
    (0..4).filter(|breakpoint| dr7 >> (2 * breakpoint) & 3 != 0).map(|breakpoint| 1 << breakpoint).sum()
}

/// Says whether IRET goes back to another task: RFLAGS.NT in protected mode. In long mode that is #GP (APM vol. 3, IRET).
fn switches_tasks(vmcb: &Vmcb) -> bool {
    vmcb.rflags() & (flags::NESTED | flags::VIRTUAL_8086) == flags::NESTED
        && vmcb.cr0() & cr0::PE != 0
        && vmcb.efer() & efer::LMA == 0
}
