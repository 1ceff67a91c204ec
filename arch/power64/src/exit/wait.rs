// SPDX-License-Identifier: Apache-2.0 OR MIT
//! vCPUs that do not run: those that have ceded their CPU (H_CEDE), and the waiting room of those that are stopped, or whose
//! VM is. A vCPU that shares CPUs gives its own away meanwhile; nothing refers to its exclusive state across that.

use turnstile_exitstat::Reason;
use turnstile_papr::processors::Start;
use turnstile_papr::vpa::Areas;
use turnstile_vm::attention::Reasons;
use turnstile_vm::lifecycle::Phase;

#[cfg(target_os = "none")]
use crate::cpu;
use crate::facility;
use crate::frame::Frame;
use crate::irq;
use crate::sched::{self, Power};
use crate::statistics;
use crate::switch;
use crate::time;
use crate::vcpu::Vcpu;
use crate::{Monitor, monitor};

/// Waits until the vCPU has an interrupt that it takes, or is prodded. What others ask for is done meanwhile.
pub(super) fn cede(frame: &mut Frame, vcpu: &'static Vcpu, monitor: &dyn Monitor) {
    loop {
        if vcpu.attention.is_pending() {
            // A vCPU that has begun anew does not wait.
            if attend(frame, vcpu, monitor) == Attended::Begun {
                return;
            }
        } else if irq::wakes(vcpu) {
            return;
        } else {
            pause(frame, vcpu, monitor, move || vcpu.attention.is_pending() || irq::wakes(vcpu));
        }
    }
}

/// Waits until this CPU has an interrupt; a vCPU that shares CPUs waits for its turn, too, and until it `wants` to run.
fn pause(frame: &mut Frame, vcpu: &'static Vcpu, monitor: &dyn Monitor, wants: impl FnMut() -> bool) {
    if let Some(thread) = &vcpu.thread {
        let serve = |due| serve(due, Some(vcpu), monitor);
        return statistics::uncounted(frame, || sched::wait::<Power>(vcpu, thread, wants, serve));
    }
    let due = statistics::uncounted(frame, irq::wait);
    serve(due, Some(vcpu), monitor);
}

/// Serves what this CPU was interrupted for while nobody ran: a deadline that is `due`. A doorbell says no more than that there
/// is something to look at.
fn serve(due: bool, vcpu: Option<&'static Vcpu>, monitor: &dyn Monitor) {
    if due {
        decrementer(vcpu, monitor);
    }
    irq::host::serve();
}

/// Serves the hypervisor decrementer.
pub(super) fn decrementer(vcpu: Option<&'static Vcpu>, monitor: &dyn Monitor) {
    if time::end_deadlines() {
        monitor.deadline();
    }
    if let Some(vcpu) = vcpu
        && vcpu.thread.is_some()
    {
        vcpu.attention.raise(Reasons::RESCHEDULE);
    }
}

/// The guest hints that it could wait (H_CONFER): it goes on at once unless another one wants its CPU.
pub(super) fn give_way(frame: &mut Frame, vcpu: &'static Vcpu) {
    if let Some(thread) = &vcpu.thread {
        statistics::uncounted(frame, || sched::give_way::<Power>(vcpu, thread));
    }
}

/// Does what the attention word names until it names nothing. Behind it the guest is entered.
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
}

/// Looks at what the attention word names, once.
fn attend(frame: &mut Frame, vcpu: &'static Vcpu, monitor: &dyn Monitor) -> Attended {
    let reasons = vcpu.attention.take();
    let stops = reasons.contains(Reasons::STOP);
    if stops || !vcpu.vm.processors.is_on(vcpu.index) {
        // In the life that ends: the last one to acknowledge lets the next one begin.
        statistics::end(vcpu, frame.timing);
        if stops {
            acknowledge_stop(vcpu, monitor);
        }
        wait_for_start(frame, vcpu, monitor);
        return Attended::Begun;
    }
    if reasons.contains(Reasons::NMI) {
        super::inject::system_reset(frame);
    }
    if reasons.contains(Reasons::INBOX) {
        irq::drain(vcpu);
    }
    if reasons.contains(Reasons::UNHALT) {
        irq::prod(vcpu);
    }
    if reasons.contains(Reasons::REMOTE) {
        facility::set_modes(vcpu, |_| {});
    }
    if reasons.contains(Reasons::RESCHEDULE)
        && let Some(thread) = &vcpu.thread
    {
        statistics::uncounted(frame, || sched::reschedule::<Power>(vcpu, thread));
    }
    Attended::Same
}

/// Leaves the VM's stop to be finished by whoever acknowledges last.
fn acknowledge_stop(vcpu: &'static Vcpu, monitor: &dyn Monitor) {
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

/// The waiting room of a vCPU that is stopped, or whose VM is. Physical interrupts are served. Returns with the vCPU reset
/// and about to run.
pub(super) fn wait_for_start(frame: &mut Frame, vcpu: &'static Vcpu, monitor: &dyn Monitor) {
    let mut posted = Reasons::empty();
    loop {
        // Before the word is read: what was posted in an earlier life is gone once the next one runs.
        let runs = matches!(vcpu.vm.lifecycle.phase(), Phase::Running);
        let reasons = vcpu.attention.take();
        posted = if runs { posted | reasons & Reasons::INBOX } else { Reasons::empty() };
        if reasons.contains(Reasons::STOP) {
            acknowledge_stop(vcpu, monitor);
        }
        if vcpu.index == 0 {
            monitor.waiting(vcpu.vm);
        }
        if matches!(vcpu.vm.lifecycle.phase(), Phase::Running)
            && let Some(start) = vcpu.vm.processors.take_start(vcpu.index)
        {
            begin(frame, vcpu, start);
            // What came while the vCPU waited is looked at before it runs. So is the run queue: a reason to do that may have
            // been taken with the others, and nobody would say again that somebody is on the wake list.
            if vcpu.thread.is_some() {
                posted |= Reasons::RESCHEDULE;
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
    statistics::begin(frame, Reason::Start);
    facility::reset(vcpu);
    switch::reset_vcpu(frame, vcpu, start);
    irq::begin(vcpu);
    if let Some(thread) = &vcpu.thread {
        thread.begin();
    }
}

#[cfg(target_os = "none")]
unsafe extern "C" {
    fn turnstile_enter(frame: u64) -> !;
}

/// Runs `vcpu` on this CPU, for ever.
#[cfg(target_os = "none")]
pub fn run(vcpu: &'static Vcpu) -> ! {
    vcpu.attention.load(cpu::this().kick_token());
    facility::load(vcpu);
    irq::load(vcpu);
    let frame = cpu::this().stack_end - cpu::STACK_HEAD;
    // SAFETY: the memory above this CPU's stack, which HSPRG0 points to already.
    unsafe { live(frame as *mut Frame, vcpu) }
}

/// Waits for the first start of a resident vCPU, and enters its guest.
///
/// # Safety
/// `frame` lies above the stack in use, and is the vCPU's. What is on the stack is discarded: nothing refers to it.
#[cfg(target_os = "none")]
pub(crate) unsafe fn live(frame: *mut Frame, vcpu: &'static Vcpu) -> ! {
    // SAFETY: the caller's promise.
    unsafe {
        frame.write(Frame::new(cpu::this(), vcpu, statistics::page(vcpu)));
        wait_for_start(&mut *frame, vcpu, monitor());
        settle(&mut *frame, vcpu, monitor());
        // The first start is behind no exit that would end the reckoning.
        if !(*frame).page.is_null() {
            statistics::account(&mut *frame);
        }
        turnstile_enter(frame as u64)
    }
}

/// Serves physical interrupts on a CPU to which no vCPU is pinned, for ever.
pub fn idle() -> ! {
    loop {
        wait_for_interrupt();
    }
}

/// Waits until this CPU is interrupted or kicked, and handles that.
pub fn wait_for_interrupt() {
    // Nobody's decrementer would end each wait once it is negative.
    switch::quiet();
    let due = irq::wait();
    serve(due, None, monitor());
}
