// SPDX-License-Identifier: Apache-2.0 OR MIT
//! vCPUs that do not run: those that wait for an interrupt, and the waiting room of those that are off. A vCPU that
//! shares CPUs gives its own away meanwhile; nothing refers to its exclusive state across that.

use core::cell::Cell;

use turnstile_exitstat::Reason;
use turnstile_vgic::GROUPS_CHANGED;
use turnstile_vm::attention::Reasons;
use turnstile_vm::lifecycle::Phase;
use turnstile_vm::psci::Start;

use super::light::aborts;
use super::{attend, irq};
use crate::cpu;
use crate::irq::{
    Acknowledged, CpuInterface, Gic, PPI_PHYSICAL_TIMER, PPI_VIRTUAL_TIMER, in_gic_of, use_vectors,
    vectors_of,
};
use crate::memory::window::Window;
use crate::sched;
use crate::time;
use crate::vcpu::frame::Frame;
use crate::vcpu::{facility, switch};
use crate::vm::{Monitor, On, Owned, Thread, Vcpu, monitor};

pub use crate::vm::own::{idle, wait_for_interrupt};

/// Uses what belongs to the CPU where `vcpu` is resident.
fn with_owned<R>(vcpu: &Vcpu, f: impl FnOnce(&mut Owned) -> R) -> R {
    // SAFETY: the callers are exit handlers of the CPU where the vCPU is resident, and hold no other reference. `f` does
    // not give the CPU away.
    f(unsafe { vcpu.owned() })
}

/// Says whether an interrupt for the guest is pending.
#[inline(always)] // Of each switch.
fn has_pending<G: Gic>(vcpu: &Vcpu) -> bool {
    with_owned(vcpu, |owned| owned.gic.has_pending(&mut G::interface()))
}

/// Serves a physical interrupt.
fn serve<G: Gic>(vcpu: &'static Vcpu, acknowledged: Acknowledged) {
    with_owned(vcpu, |owned| irq::full::<G>(vcpu, owned, monitor(), acknowledged));
}

/// Waits as WFI does: until an interrupt for the guest is pending, or somebody wants attention.
pub(super) fn suspend<G: Gic>(frame: &mut Frame, vcpu: &'static Vcpu) {
    while !vcpu.attention.is_pending() && !has_pending::<G>(vcpu) {
        match &vcpu.thread {
            Some(thread) => frame.timing.without(time::ticks, || {
                if !sched::leave::<On<G>>(vcpu, thread) {
                    stay::<G>(vcpu, thread);
                }
            }),
            None => serve::<G>(vcpu, stop::<G>(frame)),
        }
    }
}

/// Waits as [`suspend`] does, while no other vCPU wants the CPU.
#[inline(never)] // Not part of what a switch pays.
fn stay<G: Gic>(vcpu: &'static Vcpu, thread: &'static Thread) {
    // Until something is served, the guest's interrupts are as they were found.
    let served = Cell::new(false);
    let wants = || vcpu.attention.is_pending() || served.get() && has_pending::<G>(vcpu);
    sched::stay::<On<G>>(vcpu, thread, wants, |acknowledged| {
        served.set(true);
        serve::<G>(vcpu, acknowledged);
    });
}

/// Hints that the vCPU could wait, as WFE does: it goes on at once unless another one wants its CPU.
pub(super) fn give_way<G: Gic>(frame: &mut Frame, vcpu: &'static Vcpu) {
    if let Some(thread) = &vcpu.thread {
        frame.timing.without(time::ticks, || sched::give_way::<On<G>>(vcpu, thread));
    }
}

/// Waits for an interrupt and serves it; a vCPU that shares CPUs waits for its turn, too, and until it `wants` to run.
fn pause<G: Gic>(
    frame: &mut Frame,
    vcpu: &'static Vcpu,
    wants: impl FnMut() -> bool,
    mut serve: impl FnMut(Acknowledged),
) {
    if let Some(thread) = &vcpu.thread {
        return frame.timing.without(time::ticks, || sched::wait::<On<G>>(vcpu, thread, wants, serve));
    }
    serve(stop::<G>(frame));
}

/// Stops this CPU, of a pinned vCPU, until it has an interrupt, and takes that.
fn stop<G: Gic>(frame: &mut Frame) -> Acknowledged {
    frame.timing.without(time::ticks, cpu::wfi);
    let acknowledged = G::acknowledge();
    // The acknowledge takes a kick away: the attention word it announces must be read after it, and reads of
    // memory are not ordered behind those of system registers.
    cpu::isb();
    acknowledged
}

/// Looks at what the attention word names, once. `monitor` is asked for if the vCPU's life ends.
pub(super) fn attend<G: Gic>(
    frame: &mut Frame,
    vcpu: &'static Vcpu,
    monitor: impl FnOnce() -> &'static dyn Monitor,
) {
    let reasons = vcpu.attention.take();
    with_owned(vcpu, |owned| attend::attend::<G>(frame, vcpu, owned, reasons));
    if reasons.contains(Reasons::STOP) && interrupt_life::<G>(frame, vcpu, monitor()) {
        return;
    }
    if reasons.contains(Reasons::RESCHEDULE)
        && let Some(thread) = &vcpu.thread
    {
        frame.timing.without(time::ticks, || sched::reschedule::<On<G>>(vcpu, thread));
    }
}

/// The VM is paused, or stops. True if it has stopped, and the vCPU is about to run in its next life.
#[cold]
#[inline(never)] // Apart from what comes often.
fn interrupt_life<G: Gic>(frame: &mut Frame, vcpu: &'static Vcpu, monitor: &dyn Monitor) -> bool {
    if vcpu.vm.pause.holds() {
        hold::<G>(frame, vcpu, monitor);
    }
    if !matches!(vcpu.vm.lifecycle.phase(), Phase::Stopping(_)) {
        // A pause that is over already.
        return false;
    }
    // In the life that ends: the last one to acknowledge lets the next one begin.
    frame.timing.end(time::ticks);
    acknowledge_stop::<G>(vcpu, monitor);
    wait_for_start::<G>(frame, vcpu, monitor);
    true
}

/// Says whether the vCPU is to stay out of its guest because its VM is paused. Asked behind the attention word.
fn is_held(vcpu: &Vcpu, monitor: &dyn Monitor) -> bool {
    vcpu.vm.is_held(vcpu.index, || monitor.paused(vcpu.vm))
}

/// Waits as long as the VM is paused. What others ask of the vCPU's state is done; what they send waits, as do its timers.
fn hold<G: Gic>(frame: &mut Frame, vcpu: &'static Vcpu, monitor: &dyn Monitor) {
    let timers = switch::take_timers();
    // A reason to look at the run queue may have been taken with the others.
    let mut posted = Reasons::RESCHEDULE;
    while is_held(vcpu, monitor) {
        if !vcpu.attention.is_pending() {
            pause::<G>(frame, vcpu, || vcpu.attention.is_pending(), serve_off::<G>(vcpu, monitor));
        }
        let reasons = vcpu.attention.take();
        if reasons.contains(Reasons::REMOTE) {
            with_owned(vcpu, |owned| {
                crate::vm::serve_remote::<G>(vcpu, &mut owned.gic, &mut G::interface());
            });
        }
        // Behind a stop the phase says so.
        posted |= reasons - (Reasons::STOP | Reasons::START);
    }
    switch::return_timers(&timers, vcpu.vm.cntvoff());
    monitor.resumed(vcpu.vm);
    vcpu.attention.raise(posted);
}

/// Serves the physical interrupts of a vCPU whose timers are off: one of theirs was on its way.
fn serve_off<G: Gic>(vcpu: &'static Vcpu, monitor: &dyn Monitor) -> impl FnMut(Acknowledged) {
    move |acknowledged| match G::intid(acknowledged) {
        PPI_VIRTUAL_TIMER | PPI_PHYSICAL_TIMER => {
            switch::stop_timers();
            G::deactivate(acknowledged);
        }
        _ => with_owned(vcpu, |owned| irq::full::<G>(vcpu, owned, monitor, acknowledged)),
    }
}

/// Leaves the VM's stop to be finished by whoever acknowledges last.
fn acknowledge_stop<G: Gic>(vcpu: &'static Vcpu, monitor: &dyn Monitor) {
    if !matches!(vcpu.vm.lifecycle.phase(), Phase::Stopping(_)) {
        return;
    }
    switch::stop_timers();
    with_owned(vcpu, |owned| owned.gic.reset(&vcpu.vm.vgic, &mut G::interface()));
    facility::reset(vcpu);
    if let Some(stop) = vcpu.vm.lifecycle.acknowledge(vcpu.index) {
        monitor.stopped(vcpu.vm, stop);
    }
}

/// The waiting room of a vCPU that is off, or whose VM is stopped. Physical interrupts and requests of others are served.
/// Returns with the vCPU reset and about to run.
pub(super) fn wait_for_start<G: Gic>(frame: &mut Frame, vcpu: &'static Vcpu, monitor: &dyn Monitor) {
    switch::stop_timers();
    let mut posted = Reasons::empty();
    loop {
        // Before the word is read: what was posted in an earlier life is gone once the next one runs.
        let runs = matches!(vcpu.vm.lifecycle.phase(), Phase::Running);
        let reasons = vcpu.attention.take();
        if reasons.contains(Reasons::REMOTE) {
            with_owned(vcpu, |owned| {
                crate::vm::serve_remote::<G>(vcpu, &mut owned.gic, &mut G::interface());
            });
        }
        if reasons.contains(Reasons::INBOX) {
            // All else that is posted waits until the vCPU is on; who has written GICD_CTLR waits for this.
            with_owned(vcpu, |owned| {
                vcpu.vm.with_gic::<G, _>(|cx| owned.gic.deliver(cx, GROUPS_CHANGED));
            });
        }
        posted = if runs {
            posted | reasons & (Reasons::INBOX | Reasons::SERVICE | Reasons::SGIS)
        } else {
            Reasons::empty()
        };
        if reasons.contains(Reasons::STOP) {
            acknowledge_stop::<G>(vcpu, monitor);
        }
        if vcpu.index == 0 {
            monitor.waiting(vcpu.vm);
        } else if vcpu.thread.is_none() {
            vcpu.vm.crew.help::<Window>();
        }
        if !is_held(vcpu, monitor)
            && matches!(vcpu.vm.lifecycle.phase(), Phase::Running)
            && let Some(start) = vcpu.vm.psci.take_start(vcpu.index)
        {
            begin::<G>(frame, vcpu, start);
            // What came while the vCPU was off is looked at before it runs. So is the run queue: a reason to do that may
            // have been taken with the others, and nobody would say again that somebody is on the wake list.
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
            pause::<G>(frame, vcpu, || vcpu.attention.is_pending(), serve_off::<G>(vcpu, monitor));
        }
    }
}

/// Gives a vCPU its reset state and its start address.
fn begin<G: Gic>(frame: &mut Frame, vcpu: &'static Vcpu, start: Start) {
    frame.timing.begin(Reason::Start, time::ticks);
    facility::reset(vcpu);
    facility::load(vcpu);
    switch::load(&vcpu.vm.residence(), vcpu.vmpidr);
    switch::forget_vm();
    if let Some(thread) = &vcpu.thread {
        sched::begin::<G>(thread);
    }
    switch::reset_vcpu(start.entry);
    G::Interface::reset();
    with_owned(vcpu, |owned| {
        vcpu.vm.with_gic::<G, _>(|cx| {
            owned.gic.power_on(cx);
            owned.gic.load(cx);
        });
    });
    #[cfg(feature = "ablation")]
    facility::claim_all(vcpu);
    #[cfg(feature = "ablation")]
    // SAFETY: the CPU where the vCPU has just become resident; taken once.
    unsafe { vcpu.saved() }.begin();
    frame.clear();
    frame.set(0, start.context);
}

unsafe extern "C" {
    fn turnstile_enter(frame: u64) -> !;
    fn turnstile_enter_timed(frame: u64) -> !;
}

/// Runs `vcpu` on this CPU, for ever.
pub fn run(vcpu: &'static Vcpu) -> ! {
    fn run_with<G: Gic>(vcpu: &'static Vcpu) -> ! {
        vcpu.attention.load(cpu::this().kick_token());
        use_vectors(vectors_of::<G>(vcpu.statistics.is_some()));
        // SAFETY: the memory above this CPU's stack, mapped and used by nobody else; TPIDR_EL2 was set at boot.
        unsafe { live::<G>(cpu::this().stack_top as *mut Frame, vcpu) }
    }
    in_gic_of!(vcpu.vm.vgic.model(), run_with(vcpu))
}

/// Waits for the first start of a resident vCPU, and enters its guest.
///
/// # Safety
/// `frame` lies above the stack in use, and is the vCPU's. What is on the stack is discarded: nothing refers to it.
pub(crate) unsafe fn live<G: Gic>(frame: *mut Frame, vcpu: &'static Vcpu) -> ! {
    #[cfg(feature = "ablation")]
    crate::exit::naive::start_cpu();
    // SAFETY: the caller's promise.
    unsafe {
        frame.write(Frame::new(vcpu, aborts(vcpu)));
        wait_for_start::<G>(&mut *frame, vcpu, monitor());
        while vcpu.attention.is_pending() {
            attend::<G>(&mut *frame, vcpu, monitor);
        }
        match vcpu.statistics {
            Some(_) => turnstile_enter_timed(frame as u64),
            None => turnstile_enter(frame as u64),
        }
    }
}

/// Where a vCPU begins that shares CPUs: on its own stack, resident.
#[cfg(target_os = "none")]
#[unsafe(no_mangle)]
extern "C" fn turnstile_run_thread(vcpu: &'static Vcpu) -> ! {
    fn run<G: Gic>(vcpu: &'static Vcpu) -> ! {
        sched::arrive::<On<G>>();
        let frame = vcpu.thread.as_ref().map_or(core::ptr::null_mut(), sched::frame);
        // SAFETY: the top of this stack, above what is in use.
        unsafe { live::<G>(frame, vcpu) }
    }
    in_gic_of!(vcpu.vm.vgic.model(), run(vcpu))
}
