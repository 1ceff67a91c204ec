// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A guest's interrupts: XIVE, which it drives itself, or XICS, which it drives by calls.
//!
//! | file | what |
//! |---|---|
//! | `host` | the machine's controller |
//! | `firmware` | its configuration, which is the firmware's |
//! | `tima` | what the controller has of this CPU |
//! | `ring` | what of that is the resident vCPU's |
//! | `event` | event state buffers of interrupt sources |
//! | `own` | what a vCPU has |
//! | `board` | what a VM has: virtual processors, sources, what the guest has made of them |
//! | `escalation` | what comes for vCPUs that are resident nowhere |
//! | `call` | calls: waiting and waking, and those of XIVE |
//! | `xics` | the calls of XICS |
//!
//! Either way the guest's external interrupt is made by the controller, in the ring of the operating system: with XIVE by what
//! the guest's own sources send, with XICS by one store of the hypervisor's. The guest takes it by itself, at once or as soon
//! as its MSR has EE: no exit announces that, and nothing is looked at on an exit that is not about interrupts.

mod board;
pub mod call;
mod escalation;
mod event;
mod firmware;
pub mod host;
mod own;
mod ring;
mod tima;
pub mod xics;

#[cfg(test)]
mod tests;

pub use board::{Board, Presentation, Window};
pub use firmware::Error;
pub use own::Vcpu;

use turnstile_vm::attention::Reasons;

use crate::cpu;
use crate::regs::{DEC, DPDES, PSSCR};
use crate::vcpu;

/// The vCPU becomes resident on this CPU.
pub(crate) fn load(vcpu: &'static vcpu::Vcpu) {
    let interrupts = &vcpu.interrupts;
    interrupts.own(|own| own.load(&interrupts.icp));
}

/// The vCPU leaves this CPU. What comes for it from now on wakes it, if it waits.
pub(crate) fn put(vcpu: &'static vcpu::Vcpu) {
    vcpu.interrupts.own(own::Own::put);
    vcpu.interrupts.escalation.arm(vcpu);
}

/// The vCPU, which is resident, begins anew.
pub(crate) fn begin(vcpu: &'static vcpu::Vcpu) {
    let interrupts = &vcpu.interrupts;
    interrupts.own(|own| own.begin(&interrupts.icp));
}

/// Looks at what the attention word has named: an interrupt of XICS, a prod.
pub(crate) fn attend(vcpu: &'static vcpu::Vcpu, reasons: Reasons) {
    if reasons.contains(Reasons::INBOX) {
        follow(vcpu);
    }
    if reasons.contains(Reasons::UNHALT) {
        vcpu.interrupts.own(own::Own::prod);
    }
}

/// Lets the resident vCPU have the external interrupt that its presentation controller presents.
#[inline(always)] // In each of XICS' calls: two loads and a comparison.
fn follow(vcpu: &'static vcpu::Vcpu) {
    let interrupts = &vcpu.interrupts;
    interrupts.own(|own| own.follow(&interrupts.icp));
}

/// Says whether the vCPU, which is resident, has a reason not to wait: a prod, which is taken, or an interrupt.
#[inline] // On the light path of H_CEDE.
pub(crate) fn wakes(vcpu: &'static vcpu::Vcpu) -> bool {
    vcpu.interrupts.own(|own| own.take_prod() || own.is_interrupted()) || is_expired() || DPDES.read() != 0
}

/// Says whether the guest's decrementer has passed zero. LPCR has no LD: it has 32 bits.
#[inline(always)] // Two instructions.
fn is_expired() -> bool {
    (DEC.read() as u32).cast_signed() < 0
}

/// Stops this CPU until anything is pending here: an interrupt of the resident vCPU's, the hypervisor's decrementer, a kick, an
/// escalation. Kicks are taken back: what they are about is to be looked at behind this.
pub(crate) fn stop() {
    if PSSCR.read() != 0 {
        // SAFETY: the shallowest level, which loses nothing.
        unsafe { PSSCR.write(0) };
    }
    #[cfg(target_os = "none")]
    // SAFETY: with MSR.EE=0 and PSSCR.EC=0 the CPU goes on behind STOP when any interrupt is pending, also one that it would not
    // take (Power ISA 3.0B Book III, 3.3.2). Memory may have changed then.
    unsafe {
        core::arch::asm!("ptesync", "stop", "isync", options(nostack, preserves_flags));
    }
    #[cfg(not(target_os = "none"))]
    crate::regs::fakes::write("STOP", 0);
    cpu::clear_doorbell();
}
