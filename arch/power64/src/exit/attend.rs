// SPDX-License-Identifier: Apache-2.0 OR MIT
//! vCPUs that do not run: those that have ceded their CPU (H_CEDE), and the waiting room of those that are stopped, or whose
//! VM is. A vCPU that shares CPUs gives its own away meanwhile; nothing refers to its exclusive state across that.

use turnstile_exitstat::Reason;
use turnstile_papr::processors::Start;
use turnstile_papr::vpa::Areas;
use turnstile_vm::attention::Reasons;
use turnstile_vm::lifecycle::Phase;

use super::{inject, inside};
use crate::memory::user::Block;
use crate::sched;
use crate::time;
use crate::vcpu::frame::Frame;
use crate::vcpu::idle::serve;
use crate::vcpu::{facility, idle, interrupts, switch};
use crate::vm::Vcpu;
use crate::vm::monitor::Monitor;
use crate::vm::queues::{Power, SENT};

/// Waits until the vCPU has an interrupt that it takes, or is prodded. What others ask for is done meanwhile.
#[inline(never)] // Apart from calls that do not wait.
pub(super) fn cede(frame: &mut Frame, vcpu: &'static Vcpu, monitor: &dyn Monitor) {
    let told = vcpu.owned(|owned| owned.areas.vpa.is_some());
    if told {
        rest(vcpu);
    }
    wait(frame, vcpu, monitor);
    if told {
        go_on(vcpu);
    }
}

/// The guest is told that the vCPU waits.
#[inline(never)] // Apart from the wait of those that want to know nothing.
fn rest(vcpu: &'static Vcpu) {
    vcpu.owned(|owned| owned.areas.rest(vcpu.vm));
}

/// The guest is told that it goes on. If it has begun anew meanwhile, it has no area.
#[inline(never)] // As above.
fn go_on(vcpu: &'static Vcpu) {
    vcpu.owned(|owned| owned.areas.go_on(vcpu.vm));
}

#[inline(always)] // Part of its one caller.
fn wait(frame: &mut Frame, vcpu: &'static Vcpu, monitor: &dyn Monitor) {
    loop {
        if vcpu.attention.is_pending() {
            // A vCPU that has begun anew does not wait, nor one that goes on elsewhere.
            if attend(frame, vcpu, monitor) != Attended::Same {
                return;
            }
        } else {
            // The light tier has just looked, or the last time round: what has come since ends STOP.
            pause(frame, vcpu, monitor, move || vcpu.attention.is_pending() || interrupts::wakes(vcpu));
        }
        if !vcpu.attention.is_pending() && interrupts::wakes(vcpu) {
            return;
        }
    }
}

/// Stops this CPU, of a pinned vCPU, until anything is pending ([`idle::wait`]).
#[inline(never)] // It needs no stack frame if it is alone.
fn stop(frame: &mut Frame) -> bool {
    frame.timing.without(time::ticks, idle::wait)
}

/// Waits until this CPU has an interrupt; a vCPU that shares CPUs waits for its turn, too, and until it `wants` to run.
fn pause(frame: &mut Frame, vcpu: &'static Vcpu, monitor: &dyn Monitor, wants: impl FnMut() -> bool) {
    if let Some(thread) = &vcpu.thread {
        let serve = |due| serve(due, Some(vcpu), monitor);
        return frame.timing.without(time::ticks, || sched::wait::<Power>(vcpu, thread, wants, serve));
    }
    let due = stop(frame);
    serve(due, Some(vcpu), monitor);
}

/// The guest hints that it could wait (H_CONFER): it goes on at once unless another one wants its CPU.
#[inline(never)] // As above.
pub(super) fn give_way(frame: &mut Frame, vcpu: &'static Vcpu) {
    if let Some(thread) = &vcpu.thread {
        frame.timing.without(time::ticks, || sched::give_way::<Power>(vcpu, thread));
    }
}

/// Does what the attention word names until it names nothing. Behind it the guest is entered.
#[inline(never)] // Apart from exits behind which it names nothing.
pub(super) fn settle(frame: &mut Frame, vcpu: &'static Vcpu, monitor: &dyn Monitor) {
    while vcpu.attention.is_pending() {
        attend(frame, vcpu, monitor);
    }
}

/// What attending has led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Attended {
    /// The vCPU goes on.
    Same,
    /// It has been reset.
    Begun,
    /// It has been interrupted.
    Interrupted,
}

/// Looks at what the attention word names, once.
#[inline(never)] // One function, for three callers.
fn attend(frame: &mut Frame, vcpu: &'static Vcpu, monitor: &dyn Monitor) -> Attended {
    let reasons = vcpu.attention.take();
    // Both in one comparison: whoever has neither pays for one.
    if reasons.intersects(Reasons::STOP.union(Reasons::SERVICE)) || !vcpu.vm.processors.is_on(vcpu.index) {
        return seldom(frame, vcpu, reasons, monitor);
    }
    if reasons.contains(Reasons::NMI) {
        inject::system_reset(frame);
        // The others are looked at before the guest is entered.
        vcpu.attention.raise(reasons.difference(Reasons::NMI));
        return Attended::Interrupted;
    }
    if reasons.contains(Reasons::INBOX) {
        interrupts::drain(vcpu);
    }
    if reasons.contains(Reasons::UNHALT) {
        interrupts::prod(vcpu);
    }
    if reasons.contains(Reasons::REMOTE) {
        facility::set_modes(vcpu, |_| {});
        interrupts::receive(vcpu);
    }
    if reasons.contains(Reasons::RESCHEDULE)
        && let Some(thread) = &vcpu.thread
    {
        frame.timing.without(time::ticks, || sched::reschedule::<Power>(vcpu, thread));
    }
    Attended::Same
}

/// The life may end, or a service has something to handle.
#[cold] // The registers that it needs are not saved for the others.
fn seldom(frame: &mut Frame, vcpu: &'static Vcpu, reasons: Reasons, monitor: &dyn Monitor) -> Attended {
    if reasons.contains(Reasons::STOP) || !vcpu.vm.processors.is_on(vcpu.index) {
        return interrupt_life(frame, vcpu, reasons, monitor);
    }
    // The others are looked at before the guest is entered.
    vcpu.attention.raise(reasons.difference(Reasons::SERVICE));
    inside::look(frame, vcpu);
    Attended::Same
}

/// The VM is paused, or a life ends.
#[inline(never)] // The registers that it needs are not saved for services.
fn interrupt_life(
    frame: &mut Frame,
    vcpu: &'static Vcpu,
    reasons: Reasons,
    monitor: &dyn Monitor,
) -> Attended {
    if reasons.contains(Reasons::STOP) && vcpu.vm.pause.holds() {
        hold(frame, vcpu, monitor);
    }
    let stops = matches!(vcpu.vm.lifecycle.phase(), Phase::Stopping(_));
    // Otherwise it was a pause.
    let reasons = if stops { reasons } else { reasons.difference(Reasons::STOP) };
    if reasons.contains(Reasons::STOP) || !vcpu.vm.processors.is_on(vcpu.index) {
        return end(frame, vcpu, reasons, monitor);
    }
    // The others are looked at before the guest is entered.
    vcpu.attention.raise(reasons);
    Attended::Same
}

/// Says whether the vCPU is to stay out of its guest because its VM is paused. Asked behind the attention word.
fn is_held(vcpu: &Vcpu, monitor: &dyn Monitor) -> bool {
    vcpu.vm.is_held(vcpu.index, || monitor.paused(vcpu.vm))
}

/// Waits as long as the VM is paused. What others send waits, as do the vCPU's own interrupts.
fn hold(frame: &mut Frame, vcpu: &'static Vcpu, monitor: &dyn Monitor) {
    let kept = sched::keep(vcpu);
    let silent = interrupts::silence(vcpu);
    let decrementer = facility::decrementer(vcpu);
    // A reason to look at the run queue may have been taken with the others.
    let mut posted = if vcpu.thread.is_some() { Reasons::RESCHEDULE } else { Reasons::empty() };
    while is_held(vcpu, monitor) {
        if !vcpu.attention.is_pending() {
            switch::quiet();
            pause(frame, vcpu, monitor, move || vcpu.attention.is_pending());
        }
        // Behind a stop the phase says so.
        posted |= vcpu.attention.take() - (Reasons::STOP | Reasons::START);
    }
    facility::set_decrementer(decrementer);
    interrupts::sound(vcpu, silent);
    sched::go_on(vcpu, kept, [frame.pc, frame.msr]);
    monitor.resumed(vcpu.vm);
    vcpu.attention.raise(posted);
}

/// Ends a life: the VM stops, or the vCPU has stopped itself. Returns when the next one has begun.
fn end(frame: &mut Frame, vcpu: &'static Vcpu, reasons: Reasons, monitor: &dyn Monitor) -> Attended {
    // In the life that ends: the last one to acknowledge lets the next one begin.
    frame.timing.end(time::ticks);
    if reasons.contains(Reasons::STOP) {
        acknowledge_stop(vcpu, monitor);
    } else {
        // It may be about to start already, and what it was sent since is for that.
        vcpu.attention.raise(reasons & KEPT);
    }
    wait_for_start(frame, vcpu, monitor);
    Attended::Begun
}

/// Leaves the VM's stop to be finished by whoever acknowledges last.
pub(super) fn acknowledge_stop(vcpu: &'static Vcpu, monitor: &dyn Monitor) {
    if !matches!(vcpu.vm.lifecycle.phase(), Phase::Stopping(_)) {
        return;
    }
    // Nothing refers to the guest's memory any more when it is given back.
    vcpu.owned(|owned| owned.areas = Areas::default());
    if let Some(stop) = vcpu.vm.lifecycle.acknowledge(vcpu.index) {
        vcpu.vm.end();
        monitor.stopped(vcpu.vm, stop);
    }
}

/// Reasons to look that are not dropped while a vCPU waits for its start.
const KEPT: Reasons = SENT.union(Reasons::INBOX).union(Reasons::SERVICE);

/// The waiting room of a vCPU that is stopped, or whose VM is. Physical interrupts are served. Returns with the vCPU reset
/// and about to run.
pub(super) fn wait_for_start(frame: &mut Frame, vcpu: &'static Vcpu, monitor: &dyn Monitor) {
    let mut posted = Reasons::empty();
    loop {
        // Before the word is read: what was posted in an earlier life is gone once the next one runs.
        let runs = matches!(vcpu.vm.lifecycle.phase(), Phase::Running);
        let reasons = vcpu.attention.take();
        posted = if runs { posted | reasons & KEPT } else { Reasons::empty() };
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
            && let Some(start) = vcpu.vm.processors.take_start(vcpu.index)
        {
            begin(frame, vcpu, start);
            // What came while the vCPU waited is looked at before it runs. So is the run queue: a reason to do that may have
            // been taken with the others, and nobody would say again that somebody is on the wake list.
            if vcpu.thread.is_some() {
                posted |= Reasons::RESCHEDULE;
            }
            if vcpu.vm.services().is_some() {
                // What they were left with while no VM of theirs ran is with them.
                posted |= Reasons::SERVICE;
            }
            vcpu.attention.raise(posted);
            return;
        }
        if !vcpu.attention.is_pending() {
            // The decrementer of the life that has ended does not end the wait.
            switch::quiet();
            pause(frame, vcpu, monitor, move || vcpu.attention.is_pending());
        }
    }
}

/// Gives a vCPU its reset state and its start.
fn begin(frame: &mut Frame, vcpu: &'static Vcpu, start: Start) {
    frame.timing.begin(Reason::Start, time::ticks);
    facility::reset(vcpu);
    switch::reset_vcpu(frame, start);
    interrupts::begin(vcpu);
    if let Some(thread) = &vcpu.thread {
        thread.begin();
    }
}
