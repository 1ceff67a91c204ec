// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Physical interrupts while a guest runs.

use turnstile_exitstat::Reason;
use turnstile_vgic::{Context, Outcome};
use turnstile_vm::attention::Reasons;

use super::{Code, done};
use crate::irq::gicv3::{
    self, PPI_HYPERVISOR_TIMER, PPI_MAINTENANCE, PPI_PHYSICAL_TIMER, PPI_VIRTUAL_TIMER, SGI_KICK, SPURIOUS,
};
use crate::irq::ich::Ich;
use crate::vcpu::{Owned, Vcpu, serve_remote};
use crate::vm::Peers;

/// Forwards the guest's timers by a hardware-backed list register and takes what a kick announces; all other
/// interrupts go to the full tier, already acknowledged. `note` is told the reason of the exit.
#[inline(always)] // Two callers: with statistics, and without, where `note` is nothing.
pub(super) fn light(vcpu: &Vcpu, note: impl FnOnce(Reason)) -> u32 {
    let intid = gicv3::acknowledge();
    match intid {
        PPI_VIRTUAL_TIMER | PPI_PHYSICAL_TIMER => {
            note(Reason::TimerInterrupt);
            // SAFETY: an exit handler of the CPU where the vCPU is resident; taken once in this exit.
            let owned = unsafe { vcpu.owned() };
            match owned.gic.inject_ppi_hw(&mut Ich, intid, intid) {
                Outcome::Done => done(vcpu),
                Outcome::Slow => Code::SETTLE,
            }
        }
        SGI_KICK => {
            note(Reason::Kick);
            gicv3::deactivate(intid);
            if vcpu.attention.take_only(Reasons::INBOX).contains(Reasons::INBOX) {
                // SAFETY: as above.
                drain(vcpu, unsafe { vcpu.owned() });
            }
            done(vcpu)
        }
        SPURIOUS.. => {
            note(Reason::OtherInterrupt);
            done(vcpu)
        }
        _ => {
            note(Reason::OtherInterrupt);
            Code::IRQ | intid & 0xff_ffff
        }
    }
}

/// Delivers what others posted, and plans the list registers if that is needed.
#[inline] // The receiving half of every cross-CPU interrupt.
pub(super) fn drain(vcpu: &Vcpu, owned: &mut Owned) {
    let peers = Peers { vm: vcpu.vm };
    let mut cx = Context { vgic: &vcpu.vm.vgic, vif: &mut Ich, host: &peers };
    vcpu.inbox.drain(|intid| owned.gic.deliver(&mut cx, intid));
    owned.gic.settle(&mut cx);
}

/// Handles an acknowledged interrupt in the full tier or while the vCPU waits.
pub(super) fn full(vcpu: &Vcpu, owned: &mut Owned, monitor: &dyn crate::Monitor, intid: u32) {
    let peers = Peers { vm: vcpu.vm };
    let mut cx = Context { vgic: &vcpu.vm.vgic, vif: &mut Ich, host: &peers };
    match intid {
        PPI_VIRTUAL_TIMER | PPI_PHYSICAL_TIMER => {
            let _ = owned.gic.inject_ppi_hw(cx.vif, intid, intid);
            owned.gic.settle(&mut cx);
        }
        PPI_MAINTENANCE => {
            owned.gic.maintenance(&mut cx);
            owned.gic.settle(&mut cx);
            gicv3::deactivate(intid);
        }
        _ => own(monitor, intid),
    }
}

/// Handles an acknowledged interrupt that is the hypervisor's own.
pub(super) fn own(monitor: &dyn crate::Monitor, intid: u32) {
    match intid {
        SPURIOUS.. => return,
        SGI_KICK => {}
        PPI_HYPERVISOR_TIMER => {
            crate::time::end_deadline();
            monitor.deadline();
        }
        _ => monitor.interrupt(intid),
    }
    gicv3::deactivate(intid);
}

/// Looks at everything the attention word names, except what ends the vCPU's run: stop and start.
pub(super) fn attend(vcpu: &Vcpu, owned: &mut Owned, reasons: Reasons) {
    if reasons.contains(Reasons::REMOTE) {
        serve_remote(vcpu, &mut owned.gic, &mut Ich);
    }
    if reasons.intersects(Reasons::INBOX | Reasons::REMOTE) {
        drain(vcpu, owned);
    }
}
