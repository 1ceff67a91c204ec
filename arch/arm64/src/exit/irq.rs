// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Physical interrupts while a guest runs.

use turnstile_exitstat::Reason;
use turnstile_vgic::Outcome;
use turnstile_vm::attention::Reasons;

use super::light::{Code, done, leave, resident};
use crate::irq::{
    Acknowledged, Gic, PPI_HYPERVISOR_TIMER, PPI_MAINTENANCE, PPI_PHYSICAL_TIMER, PPI_PMU, PPI_VIRTUAL_TIMER,
    SGI_KICK, SGI_RESCHEDULE, SPURIOUS,
};
use crate::vcpu::facility;
use crate::vcpu::frame::Frame;
use crate::vm::{Monitor, Owned, Vcpu, own};

/// Takes what a kick announces, if that is one SGI, and forwards the guest's timers, if they and it come again as they did the
/// last time; leaves all else of these to the wide handler.
/// All other interrupts go to the full tier, already acknowledged. `TIMED`: the reason of the exit is noted.
#[inline(always)] // The light handlers.
pub(super) fn light<G: Gic, const TIMED: bool>(frame: &mut Frame) -> u32 {
    let vcpu = resident(frame);
    let acknowledged = G::acknowledge_and_end_kick();
    let mut note = |reason| {
        if TIMED {
            frame.timing.note(reason);
        }
    };
    match G::intid(acknowledged) {
        SGI_KICK => {
            note(Reason::Kick);
            let reasons = vcpu.attention.take_only(Reasons::INBOX | Reasons::SGIS);
            if receive::<G>(vcpu, reasons.bits()) {
                return done(vcpu);
            }
            leave(frame, Code::WIDE, 0, reasons.bits().into())
        }
        // Each with its number as a constant.
        PPI_VIRTUAL_TIMER => {
            note(Reason::TimerInterrupt);
            forward::<G>(frame, vcpu, PPI_VIRTUAL_TIMER)
        }
        PPI_PHYSICAL_TIMER => {
            note(Reason::TimerInterrupt);
            forward::<G>(frame, vcpu, PPI_PHYSICAL_TIMER)
        }
        SPURIOUS.. => {
            note(Reason::OtherInterrupt);
            done(vcpu)
        }
        _ => {
            note(Reason::OtherInterrupt);
            Code::IRQ | acknowledged.0 & 0xff_ffff
        }
    }
}

/// Forwards a timer's interrupt that comes again as it did the last time.
#[inline(always)] // Part of the light handlers, once for each timer.
fn forward<G: Gic>(frame: &mut Frame, vcpu: &Vcpu, intid: u32) -> u32 {
    // SAFETY: an exit handler of the CPU where the vCPU is resident; taken once in this exit.
    let gic = unsafe { &mut vcpu.owned().gic };
    match gic.present_ppi_hw(&mut G::interface(), intid) {
        true => done(vcpu),
        false => leave(frame, Code::TIMER, 0, intid.into()),
    }
}

/// Presents what was posted: one SGI that comes again, the receiving half of nearly every cross-CPU interrupt. False if it is
/// something else, of which nothing is done then.
#[inline(always)] // Part of the light handlers.
fn receive<G: Gic>(vcpu: &Vcpu, posted: u32) -> bool {
    if posted & posted.wrapping_sub(1) != 0 {
        return false;
    }
    // SAFETY: an exit handler of the CPU where the vCPU is resident; taken once in this exit.
    let gic = unsafe { &mut vcpu.owned().gic };
    if G::SYSTEM_REGISTERS {
        return gic.present_posted_sgi(&mut G::interface(), posted);
    }
    if posted & Reasons::SGIS.bits() == 0 {
        return posted == 0;
    }
    gic.present_sent_sgi(&vcpu.vm.vgic, &mut G::interface(), posted.trailing_zeros())
}

/// What is left of a kick or a timer's interrupt: delivers what others posted, or forwards the timer by a hardware-backed
/// list register.
#[inline(always)] // The wide handlers.
pub(super) fn wide<G: Gic>(frame: &mut Frame, code: u32) -> u32 {
    let vcpu = resident(frame);
    let left = frame.left.value as u32;
    // SAFETY: an exit handler of the CPU where the vCPU is resident; taken once in this exit.
    let owned = unsafe { vcpu.owned() };
    let outcome = if code == Code::TIMER {
        owned.gic.inject_ppi_hw(&mut G::interface(), left, left)
    } else {
        let reasons = Reasons::from_bits_retain(left);
        if reasons.contains(Reasons::INBOX) {
            drain::<G>(vcpu, owned);
        }
        deliver_sgis::<G>(vcpu, owned, reasons)
    };
    match outcome {
        Outcome::Done => done(vcpu),
        Outcome::Slow => Code::SETTLE,
    }
}

/// Delivers the SGIs among `reasons`.
#[inline(always)] // Part of the light exit of a kick; the other caller pays for its own instance.
pub(super) fn deliver_sgis<G: Gic>(vcpu: &Vcpu, owned: &mut Owned, reasons: Reasons) -> Outcome {
    let mut outcome = Outcome::Done;
    reasons.each_sgi(|intid| {
        if vcpu.vm.with_gic::<G, _>(|cx| owned.gic.deliver_sgi(cx, intid)) == Outcome::Slow {
            outcome = Outcome::Slow;
        }
    });
    outcome
}

/// Delivers what the inbox holds, and plans the list registers if that is needed.
#[inline(never)] // SGIs, which have no part in it, are not to pay for its registers.
pub(super) fn drain<G: Gic>(vcpu: &Vcpu, owned: &mut Owned) {
    vcpu.vm.with_gic::<G, _>(|cx| {
        vcpu.inbox.drain(|intid| owned.gic.deliver(cx, intid));
        owned.gic.settle(cx);
    });
}

/// Handles an acknowledged interrupt in the full tier or while the vCPU waits.
pub(super) fn full<G: Gic>(
    vcpu: &Vcpu,
    owned: &mut Owned,
    monitor: &dyn Monitor,
    acknowledged: Acknowledged,
) {
    match G::intid(acknowledged) {
        intid @ (PPI_VIRTUAL_TIMER | PPI_PHYSICAL_TIMER) => vcpu.vm.with_gic::<G, _>(|cx| {
            let _ = owned.gic.inject_ppi_hw(cx.vif, intid, intid);
            owned.gic.settle(cx);
        }),
        // A line of the resident vCPU, or of nobody: a vCPU that is put has stopped counting.
        intid @ PPI_PMU if facility::counts(vcpu) => vcpu.vm.with_gic::<G, _>(|cx| {
            let _ = owned.gic.inject_ppi_hw(cx.vif, intid, intid);
            owned.gic.settle(cx);
        }),
        PPI_PMU => G::deactivate(acknowledged),
        PPI_MAINTENANCE => {
            vcpu.vm.with_gic::<G, _>(|cx| {
                owned.gic.maintenance(cx);
                owned.gic.settle(cx);
            });
            G::deactivate(acknowledged);
        }
        intid => {
            if vcpu.thread.is_some() && matches!(intid, SGI_RESCHEDULE | PPI_HYPERVISOR_TIMER) {
                vcpu.attention.raise(Reasons::RESCHEDULE);
            }
            own::own::<G>(monitor, acknowledged);
        }
    }
}
