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
pub use own::{Own, Shared};

use turnstile_vm::attention::Reasons;

use crate::cpu;
use crate::regs::{DEC, DPDES, PSSCR};
use crate::time;
use crate::vcpu::Vcpu;

/// The vCPU becomes resident on this CPU.
pub(crate) fn load(vcpu: &'static Vcpu) {
    vcpu.owned(|owned| owned.irq.load(&vcpu.interrupts.icp));
}

/// The vCPU leaves this CPU. What comes for it from now on wakes it, if it waits.
pub(crate) fn put(vcpu: &'static Vcpu) {
    let pending = vcpu.owned(|owned| {
        owned.irq.arm(vcpu);
        owned.irq.put()
    });
    if pending {
        vcpu.attention.raise(Reasons::EXTERNAL);
    }
}

/// The vCPU, which is resident, begins anew.
pub(crate) fn begin(vcpu: &'static Vcpu) {
    vcpu.owned(|owned| owned.irq.begin(&vcpu.interrupts.icp));
}

/// Lets the resident vCPU have the external interrupt that its presentation controller presents: another CPU may have changed
/// it, then the attention word has said so.
#[inline(always)] // In each of XICS' calls: two loads and a comparison.
pub(crate) fn drain(vcpu: &'static Vcpu) {
    vcpu.owned(|owned| owned.irq.follow(&vcpu.interrupts.icp));
}

/// The vCPU is prodded: by itself, or by another one, of which the attention word has told.
#[inline(always)] // One store.
pub(crate) fn prod(vcpu: &'static Vcpu) {
    vcpu.owned(|owned| owned.irq.prod());
}

/// Says whether the vCPU, which is resident, has a reason not to wait: a prod, which is taken, or an interrupt.
#[inline] // On the light path of H_CEDE.
pub(crate) fn wakes(vcpu: &'static Vcpu) -> bool {
    vcpu.owned(|owned| owned.irq.take_prod() || owned.irq.is_interrupted())
        || is_expired()
        || DPDES.read() != 0
}

/// Says whether the guest's decrementer has passed zero. LPCR has no LD: it has 32 bits.
#[inline(always)] // Two instructions.
fn is_expired() -> bool {
    time::signed(DEC.read()) < 0
}

/// Stops this CPU until anything is pending here: an interrupt of the resident vCPU's, the hypervisor's decrementer, a kick, an
/// escalation. Kicks are taken back: what they are about is to be looked at behind this. Says whether a deadline of the
/// hypervisor's has come.
pub(crate) fn wait() -> bool {
    if PSSCR.read() != 0 {
        // SAFETY: the shallowest level, which loses nothing.
        unsafe { PSSCR.write(0) };
    }
    let due = time::stop(|| {
        #[cfg(target_os = "none")]
        // SAFETY: with MSR.EE=0 and PSSCR.EC=0 the CPU goes on behind STOP when any interrupt is pending, also one that it would
        // not take (Power ISA 3.0B Book III, 3.3.2). Memory may have changed then.
        unsafe {
            core::arch::asm!("ptesync", "stop", "isync", options(nostack, preserves_flags));
        }
        #[cfg(not(target_os = "none"))]
        crate::regs::fakes::write("STOP", 0);
    });
    cpu::clear_doorbell();
    due
}
