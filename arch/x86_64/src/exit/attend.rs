// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the attention word asks of a vCPU that is out of its guest; and the waiting room of those that wait for a startup IPI, or whose
//! VM is stopped. A vCPU that shares CPUs gives its own away meanwhile; nothing refers to its exclusive state across that.

use turnstile_exitstat::Reason;
use turnstile_vm::attention::Reasons;
use turnstile_vm::lifecycle::Phase;
use turnstile_vm::startup::Start;

use super::service;
use crate::cpu::svm::Vmcb;
use crate::irq::interrupts::{self, Arrived};
use crate::memory::user::Block;
use crate::state::owned::Owned;
use crate::time;
use crate::vcpu::frame::Frame;
use crate::vcpu::next::Next;
use crate::vcpu::serve::serve;
use crate::vcpu::{asid, facility, irq, kvm, statistics, switch};
use crate::vm::Vcpu;
use crate::vm::monitor::Monitor;
use crate::vm::queues::Svm;

/// Waits for an interrupt and serves it; a vCPU that shares CPUs waits for its turn, too, and until something is posted to
/// it.
pub(super) fn pause(frame: &mut Frame, vcpu: &'static Vcpu, monitor: &dyn Monitor) {
    if let Some(thread) = &vcpu.thread {
        let wants = || vcpu.attention.is_pending();
        let handle = |arrived| serve(Some(vcpu), monitor, arrived);
        return statistics::waiting(frame, || turnstile_threads::wait::<Svm>(vcpu, thread, wants, handle));
    }
    let mut arrived = Arrived::NOTHING;
    statistics::waiting(frame, || arrived = interrupts::wait());
    serve(Some(vcpu), monitor, arrived);
}

/// What attending has led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Attended {
    /// The vCPU goes on.
    Same,
    /// It has been reset.
    Begun,
    /// It goes on, and its timer has rung.
    Rang,
}

/// What is looked at without a detour.
const FREQUENT: Reasons = Reasons::MAILBOX.union(Reasons::RESCHEDULE);

/// Takes over what others have posted, in the light tier, if there is nothing else to look at.
#[inline(always)] // Most of a light exit.
pub(super) fn take_posted<N: Next>(vcpu: &'static Vcpu, vmcb: &mut Vmcb) {
    let word = vcpu.attention.word();
    if word == 0 || word & !Reasons::MAILBOX.bits() != 0 {
        return;
    }
    let reasons = vcpu.attention.take();
    // What has been posted besides meanwhile stays for the full tier.
    let others = reasons - Reasons::MAILBOX;
    if !others.is_empty() {
        vcpu.attention.raise(others);
    }
    if N::COUNTS {
        irq::take_posted::<true>(vcpu, vmcb, reasons);
    } else {
        irq::take_posted::<false>(vcpu, vmcb, reasons);
    }
}

/// Looks at what the attention word names, once. It may name some of it again then.
pub(super) fn attend(frame: &mut Frame, vcpu: &'static Vcpu, monitor: &dyn Monitor) -> Attended {
    let reasons = vcpu.attention.take();
    if !FREQUENT.contains(reasons) {
        return attend_to_others(frame, vcpu, monitor, reasons);
    }
    if reasons.intersects(Reasons::MAILBOX) {
        vcpu.with_vmcb(|vmcb| irq::drain(vcpu, vmcb, reasons));
    }
    if reasons.contains(Reasons::RESCHEDULE)
        && let Some(thread) = &vcpu.thread
    {
        frame.timing.without(time::ticks, || turnstile_threads::reschedule::<Svm>(vcpu, thread));
    }
    Attended::Same
}

/// The same for reasons that are rarer; the frequent ones are left in the word.
#[cold]
#[inline(never)] // So that the frequent ones pay one test for it.
fn attend_to_others(
    frame: &mut Frame,
    vcpu: &'static Vcpu,
    monitor: &dyn Monitor,
    reasons: Reasons,
) -> Attended {
    vcpu.owned(|owned| {
        if reasons.contains(Reasons::NMI) {
            owned.nmi.post();
        }
        owned.unhalted |= reasons.contains(Reasons::UNHALT);
    });
    let stops = reasons.contains(Reasons::STOP);
    if stops && !is_stopped(frame, vcpu, monitor) {
        // The NMI and the end of HLT have been noted.
        let noted = Reasons::STOP | Reasons::NMI | Reasons::UNHALT;
        return attend_to_others(frame, vcpu, monitor, reasons - noted);
    }
    if stops || reasons.contains(Reasons::INIT) && !vcpu.vm.startup.is_on(vcpu.index) {
        end(frame, vcpu, monitor, stops);
        return Attended::Begun;
    }
    vcpu.attention.raise(reasons & FREQUENT);
    vcpu.with_vmcb(|vmcb| {
        if reasons.contains(Reasons::EXTERNAL) {
            irq::external(vcpu, vmcb);
        }
        if reasons.contains(Reasons::DEADLINE) {
            irq::timer(vcpu, vmcb);
        }
    });
    if reasons.intersects(RARE) {
        attend_to_rare(frame, vcpu, reasons);
    }
    if reasons.contains(Reasons::DEADLINE) { Attended::Rang } else { Attended::Same }
}

/// Says whether the vCPU is to stay out of its guest because its VM is paused. Asked behind the attention word.
fn is_held(vcpu: &Vcpu, monitor: &dyn Monitor) -> bool {
    vcpu.vm.is_held(vcpu.index, || monitor.paused(vcpu.vm))
}

/// The VM stops, which this says, or is paused: then this returns when it goes on, or at once if it does already.
#[cold]
#[inline(never)] // As above.
fn is_stopped(frame: &mut Frame, vcpu: &'static Vcpu, monitor: &dyn Monitor) -> bool {
    if vcpu.vm.pause.holds() {
        hold(frame, vcpu, monitor);
    }
    matches!(vcpu.vm.lifecycle.phase(), Phase::Stopping(_))
}

/// Waits as long as the VM is paused. What others send waits, as do the vCPU's timers.
fn hold(frame: &mut Frame, vcpu: &'static Vcpu, monitor: &dyn Monitor) {
    let silent = vcpu.with_vmcb(|vmcb| irq::silence(vcpu, vmcb));
    // A reason to look at the run queue may have been taken with the others.
    let mut posted = if vcpu.thread.is_some() { Reasons::RESCHEDULE } else { Reasons::empty() };
    while is_held(vcpu, monitor) {
        if !vcpu.attention.is_pending() {
            pause(frame, vcpu, monitor);
        }
        // Behind a stop the phase says so.
        posted |= vcpu.attention.take() - (Reasons::STOP | Reasons::START);
    }
    vcpu.with_vmcb(|vmcb| {
        if irq::sound(vcpu, vmcb, &silent) {
            kvm::tell_of_pause(vcpu, vmcb);
        }
    });
    monitor.resumed(vcpu.vm);
    vcpu.attention.raise(posted);
}

/// What is rarer than other rare reasons.
const RARE: Reasons = Reasons::FLUSH.union(Reasons::SERVICE);

#[cold]
#[inline(never)] // As above.
fn attend_to_rare(frame: &mut Frame, vcpu: &'static Vcpu, reasons: Reasons) {
    if reasons.contains(Reasons::FLUSH) {
        // Memory has gone to others by whose addresses code was found, too.
        vcpu.owned(|owned| owned.walks.clear());
        vcpu.forget_bell();
        vcpu.with_vmcb(|vmcb| asid::renew(vcpu, vmcb));
    }
    if reasons.contains(Reasons::SERVICE) {
        service::look(frame, vcpu);
    }
}

/// The vCPU's life ends, because its VM stops or it has got an INIT; returns when the next one has begun.
fn end(frame: &mut Frame, vcpu: &'static Vcpu, monitor: &dyn Monitor, stops: bool) {
    // In the life that ends: the last one to acknowledge lets the next one begin.
    frame.timing.end(time::ticks);
    kvm::end(vcpu);
    vcpu.with_vmcb(|vmcb| irq::off(vcpu, vmcb));
    if stops {
        acknowledge_stop(vcpu, monitor);
    } else if vcpu.index == 0 && monitor.resumes(vcpu.vm) {
        // Nobody has to be told. If it does not wait any longer, a startup IPI was faster.
        let _ = vcpu.vm.startup.resume(vcpu.index);
    }
    wait_for_start(frame, vcpu, monitor);
}

/// Leaves the VM's stop to be finished by whoever acknowledges last.
fn acknowledge_stop(vcpu: &'static Vcpu, monitor: &dyn Monitor) {
    if !matches!(vcpu.vm.lifecycle.phase(), Phase::Stopping(_)) {
        return;
    }
    // Nothing refers to the guest's memory any more when it is given back.
    vcpu.with_vmcb(|vmcb| irq::reset(vcpu, vmcb));
    if let Some(stop) = vcpu.vm.lifecycle.acknowledge(vcpu.index) {
        monitor.stopped(vcpu.vm, stop);
    }
}

/// The waiting room of a vCPU that waits for its start, or whose VM is stopped. Physical interrupts are served. Returns
/// with the vCPU reset and about to run.
pub(super) fn wait_for_start(frame: &mut Frame, vcpu: &'static Vcpu, monitor: &dyn Monitor) {
    let mut nmi = Reasons::empty();
    loop {
        // Before the word is read: what was posted in an earlier life is gone once the next one runs.
        let runs = matches!(vcpu.vm.lifecycle.phase(), Phase::Running);
        let reasons = vcpu.attention.take();
        // An NMI behind the startup IPI is for the vCPU that begins, however long it has to wait for that; one before it is lost.
        let starts = runs && !vcpu.vm.startup.waits(vcpu.index);
        nmi = if starts { nmi | reasons & Reasons::NMI } else { Reasons::empty() };
        if reasons.contains(Reasons::STOP) {
            acknowledge_stop(vcpu, monitor);
        }
        if vcpu.index == 0 {
            monitor.waiting(vcpu.vm);
        } else if vcpu.thread.is_none() {
            vcpu.vm.crew.help::<Block>();
        }
        if !is_held(vcpu, monitor)
            && matches!(vcpu.vm.lifecycle.phase(), Phase::Running)
            && let Some(start) = vcpu.vm.startup.take_start(vcpu.index)
        {
            begin(frame, vcpu, start);
            vcpu.attention.raise(nmi);
            return look_again(vcpu);
        }
        if !vcpu.attention.is_pending() {
            pause(frame, vcpu, monitor);
        }
    }
}

/// What still stands, though the reason to look at it may have been taken while the vCPU waited, is looked at before it runs: nobody
/// would say it again.
fn look_again(vcpu: &Vcpu) {
    let mut reasons = Reasons::empty();
    if vcpu.thread.is_some() {
        // Somebody may be on the wake list.
        reasons |= Reasons::RESCHEDULE;
    }
    if vcpu.index == 0 {
        // The 8259s' request.
        reasons |= Reasons::EXTERNAL;
    }
    if vcpu.vm.services().is_some() {
        // What they were left with is with them.
        reasons |= Reasons::SERVICE;
    }
    vcpu.attention.raise(reasons);
}

/// Gives a vCPU its reset state and its start.
pub(super) fn begin(frame: &mut Frame, vcpu: &'static Vcpu, start: Start) {
    frame.timing.begin(Reason::Start, time::ticks);
    vcpu.owned(Owned::reset);
    vcpu.forget_bell();
    vcpu.set_on(true);
    frame.clear();
    vcpu.with_vmcb(|vmcb| {
        switch::reset_vcpu(frame, vmcb, vcpu, start);
        match start {
            Start::Boot => irq::reset(vcpu, vmcb),
            Start::Startup(_) => irq::init(vcpu, vmcb),
            Start::Resume => irq::resume(vcpu, vmcb),
        }
        asid::renew(vcpu, vmcb);
    });
    facility::reset(vcpu);
    if let Some(thread) = &vcpu.thread {
        thread.begin();
    }
}
