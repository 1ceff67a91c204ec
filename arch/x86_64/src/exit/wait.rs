// SPDX-License-Identifier: Apache-2.0 OR MIT
//! vCPUs that do not run: those that wait for an interrupt (HLT), and the waiting room of those that wait for a startup
//! IPI, or whose VM is stopped. A vCPU that shares CPUs gives its own away meanwhile; nothing refers to its exclusive
//! state across that.

use turnstile_exitstat::Reason;
use turnstile_vm::attention::Reasons;
use turnstile_vm::lifecycle::Phase;
use turnstile_vm::startup::Start;

use super::{Code, Next, done, event, interrupt, skip};
use crate::facility;
use crate::frame::Frame;
use crate::interrupts::{self, Arrived};
use crate::irq;
use crate::kvm;
use crate::sched::{self, Svm};
use crate::statistics;
use crate::svm::{Vmcb, asid};
use crate::switch;
use crate::vcpu::Vcpu;
use crate::{Monitor, monitor};

/// HLT is one byte.
pub(super) const LENGTH: u64 = 1;

/// HLT: light if something is there for the guest already.
#[cfg_attr(target_os = "none", unsafe(link_section = ".text.hot"))]
pub(super) extern "C" fn light_halt<N: Next>(frame: &mut Frame, vmcb: &mut Vmcb, _: u32) -> u32 {
    skip::<N>(vmcb, LENGTH);
    if event::takes_interrupt(vmcb) { done::<N>(frame, vmcb) } else { Code::WAIT }
}

/// Says whether the vCPU has a reason to leave HLT.
fn wakes(vmcb: &Vmcb, vcpu: &Vcpu) -> bool {
    event::takes_interrupt(vmcb)
        || vcpu.owned(|owned| owned.nmi.is_deliverable(vmcb) || core::mem::take(&mut owned.unhalted))
}

/// Waits as HLT does: until an interrupt is there that the guest takes. What others ask for is done meanwhile.
pub(super) fn halt(frame: &mut Frame, vcpu: &'static Vcpu, monitor: &dyn Monitor) {
    loop {
        if vcpu.attention.is_pending() {
            // A vCPU that has begun anew does not wait.
            if attend(frame, vcpu, monitor) == Attended::Begun {
                return;
            }
        } else if vcpu.with_vmcb(|vmcb| wakes(vmcb, vcpu)) {
            return;
        } else {
            pause(frame, vcpu, monitor);
        }
    }
}

/// Waits for an interrupt and serves it; a vCPU that shares CPUs waits for its turn, too, and until something is posted to
/// it.
fn pause(frame: &mut Frame, vcpu: &'static Vcpu, monitor: &dyn Monitor) {
    if let Some(thread) = &vcpu.thread {
        let wants = || vcpu.attention.is_pending();
        let serve = |arrived| interrupt::serve(Some(vcpu), monitor, arrived);
        return statistics::waiting(frame, || sched::wait::<Svm>(vcpu, thread, wants, serve));
    }
    let mut arrived = Arrived::NOTHING;
    statistics::waiting(frame, || arrived = interrupts::wait());
    interrupt::serve(Some(vcpu), monitor, arrived);
}

/// Hints that the vCPU could wait, as PAUSE does: it goes on at once unless another one wants its CPU.
pub(super) fn give_way(frame: &mut Frame, vcpu: &'static Vcpu) {
    if let Some(thread) = &vcpu.thread {
        statistics::uncounted(frame, || sched::give_way::<Svm>(vcpu, thread));
    }
}

/// Does what the attention word names until it names nothing, and offers the guest what it is to take. Behind it the guest
/// is entered.
pub(super) fn settle(frame: &mut Frame, vcpu: &'static Vcpu, monitor: &dyn Monitor) {
    while vcpu.attention.is_pending() {
        attend(frame, vcpu, monitor);
    }
    vcpu.with_vmcb(|vmcb| {
        vcpu.owned(|owned| owned.nmi.inject(vmcb));
        statistics::count_event(vcpu, vmcb);
    });
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
    vcpu.owned(|owned| {
        if reasons.contains(Reasons::NMI) {
            owned.nmi.post();
        }
        owned.unhalted |= reasons.contains(Reasons::UNHALT);
    });
    let stops = reasons.contains(Reasons::STOP);
    if stops || reasons.contains(Reasons::INIT) && !vcpu.vm.startup.is_on(vcpu.index) {
        // In the life that ends: the last one to acknowledge lets the next one begin.
        statistics::end(vcpu, frame.timing);
        kvm::end(vcpu);
        if stops {
            acknowledge_stop(vcpu, monitor);
        }
        wait_for_start(frame, vcpu, monitor);
        return Attended::Begun;
    }
    vcpu.with_vmcb(|vmcb| {
        if reasons.contains(Reasons::INBOX) {
            irq::drain(vcpu, vmcb);
        }
        if reasons.contains(Reasons::EXTERNAL) {
            irq::external(vcpu, vmcb);
        }
        if reasons.contains(Reasons::DEADLINE) {
            irq::timer(vcpu, vmcb);
        }
        if reasons.contains(Reasons::FLUSH) {
            asid::renew(vcpu, vmcb);
        }
    });
    if reasons.contains(Reasons::RESCHEDULE)
        && let Some(thread) = &vcpu.thread
    {
        statistics::uncounted(frame, || sched::reschedule::<Svm>(vcpu, thread));
    }
    Attended::Same
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
            && let Some(start) = vcpu.vm.startup.take_start(vcpu.index)
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
            pause(frame, vcpu, monitor);
        }
    }
}

/// Gives a vCPU its reset state and its start.
fn begin(frame: &mut Frame, vcpu: &'static Vcpu, start: Start) {
    statistics::begin(frame, Reason::Start);
    vcpu.owned(crate::vcpu::Owned::reset);
    frame.clear();
    vcpu.with_vmcb(|vmcb| {
        switch::reset_vcpu(frame, vmcb, vcpu, start);
        match start {
            Start::Boot => irq::reset(vcpu, vmcb),
            Start::Startup(_) => irq::init(vcpu, vmcb),
        }
        asid::renew(vcpu, vmcb);
    });
    facility::reset(vcpu);
    if let Some(thread) = &vcpu.thread {
        thread.begin();
    }
}

#[cfg(target_os = "none")]
unsafe extern "C" {
    #[cfg(feature = "ablation")]
    fn turnstile_enter_naive(frame: u64) -> !;
    fn turnstile_enter_known(frame: u64) -> !;
    fn turnstile_enter_named(frame: u64) -> !;
    fn turnstile_enter_known_timed(frame: u64) -> !;
    fn turnstile_enter_named_timed(frame: u64) -> !;
}

/// Runs `vcpu` on this CPU, for ever.
#[cfg(target_os = "none")]
pub fn run(vcpu: &'static Vcpu) -> ! {
    crate::idt::expect_guests();
    vcpu.attention.load(crate::cpu::this().kick_token());
    let frame = crate::cpu::this().stack_end - crate::cpu::STACK_TAIL - size_of::<Frame>() as u64;
    // SAFETY: the memory above this CPU's stack, mapped and used by nobody else.
    unsafe { live(frame as *mut Frame, vcpu) }
}

/// Waits for the first start of a resident vCPU, and enters its guest.
///
/// # Safety
/// `frame` lies above the stack in use, and is the vCPU's. What is on the stack is discarded: nothing refers to it.
#[cfg(target_os = "none")]
pub(crate) unsafe fn live(frame: *mut Frame, vcpu: &'static Vcpu) -> ! {
    // SAFETY: the caller's promise; the control block belongs to the CPU where the vCPU is resident.
    unsafe {
        frame.write(Frame::new(vcpu, vcpu.vmcb(), statistics::page(vcpu)));
        wait_for_start(&mut *frame, vcpu, monitor());
        settle(&mut *frame, vcpu, monitor());
        #[cfg(feature = "ablation")]
        if crate::naive::is_in_use() {
            turnstile_enter_naive(frame as u64)
        }
        match (crate::svm::names_next(), vcpu.statistics.is_some()) {
            (false, false) => turnstile_enter_known(frame as u64),
            (true, false) => turnstile_enter_named(frame as u64),
            (false, true) => turnstile_enter_known_timed(frame as u64),
            (true, true) => turnstile_enter_named_timed(frame as u64),
        }
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
    interrupt::serve(None, monitor(), interrupts::wait());
}
