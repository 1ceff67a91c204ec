// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where CPUs, and the vCPUs that share them, begin; and before a guest is entered again: HLT, and what the attention word asks for. A vCPU
//! that shares CPUs gives its own away while it waits; nothing refers to its exclusive state across that.

use turnstile_vm::attention::Reasons;

#[cfg(target_os = "none")]
use super::attend::wait_for_start;
use super::attend::{Attended, attend, pause};
use crate::cpu;
use crate::cpu::svm::{Vmcb, event};
use crate::irq::lapic;
use crate::state::nmi::Again;
use crate::time;
use crate::vcpu::frame::Frame;
pub use crate::vcpu::serve::wait_for_interrupt;
use crate::vcpu::{irq, statistics};
use crate::vm::Vcpu;
use crate::vm::monitor::Monitor;
#[cfg(target_os = "none")]
use crate::vm::monitor::monitor;
use crate::vm::queues::Svm;

/// Says whether the vCPU has a reason to leave HLT.
fn wakes(vmcb: &Vmcb, vcpu: &Vcpu) -> bool {
    event::takes_interrupt(vmcb)
        || vcpu.owned(|owned| owned.nmi.is_deliverable(vmcb) || core::mem::take(&mut owned.unhalted))
}

/// Waits as HLT does: until an interrupt is there that the guest takes. What others ask for is done meanwhile.
pub(super) fn halt(frame: &mut Frame, vcpu: &'static Vcpu, monitor: &dyn Monitor) {
    loop {
        if vcpu.attention.is_pending() {
            match attend(frame, vcpu, monitor) {
                Attended::Same => {}
                // A vCPU that has begun anew does not wait.
                Attended::Begun => return,
                Attended::Rang => return halt_on(frame, vcpu, monitor),
            }
        } else if vcpu.with_vmcb(|vmcb| wakes(vmcb, vcpu)) {
            return;
        } else {
            pause(frame, vcpu, monitor);
        }
    }
}

/// The same after the guest's timer has rung: if the guest does not take its interrupt, it would ring for that again and again.
#[cold]
#[inline(never)] // So that waits for others' interrupts pay nothing for it.
fn halt_on(frame: &mut Frame, vcpu: &'static Vcpu, monitor: &dyn Monitor) {
    let mut rests = false;
    loop {
        if vcpu.attention.is_pending() {
            if attend(frame, vcpu, monitor) == Attended::Begun {
                return;
            }
        } else if vcpu.with_vmcb(|vmcb| wakes(vmcb, vcpu)) {
            break;
        } else {
            vcpu.with_vmcb(|vmcb| irq::rest(vcpu, vmcb));
            rests = true;
            pause(frame, vcpu, monitor);
        }
    }
    if rests {
        vcpu.with_vmcb(|vmcb| irq::rise(vcpu, vmcb));
    }
}

/// Hints that the vCPU could wait, as PAUSE does: it goes on at once unless another one wants its CPU.
pub(super) fn give_way(frame: &mut Frame, vcpu: &'static Vcpu) {
    if let Some(thread) = &vcpu.thread {
        frame.timing.without(time::ticks, || turnstile_threads::give_way::<Svm>(vcpu, thread));
    }
}

/// Does what the attention word names until it names nothing, and offers the guest what it is to take. Behind it the guest
/// is entered.
pub(super) fn settle(frame: &mut Frame, vcpu: &'static Vcpu, monitor: &dyn Monitor) {
    while vcpu.attention.is_pending() {
        attend(frame, vcpu, monitor);
    }
    vcpu.with_vmcb(|vmcb| {
        if !vcpu.owned(|owned| owned.nmi.is_idle()) {
            offer_nmi(vcpu, vmcb);
        }
        statistics::count_event(vcpu, vmcb);
    });
}

/// Gives the guest the NMI that waits, if it can take it, or sees to it that it leaves as soon as it can. The word keeps that in
/// mind, whatever leaves first; and as posters do not kick then, something has to leave in any case.
#[cold]
fn offer_nmi(vcpu: &'static Vcpu, vmcb: &mut Vmcb) {
    match vcpu.owned(|owned| owned.nmi.enter(vmcb)) {
        Again::Any => {}
        Again::AtOnce => {
            vcpu.attention.raise(Reasons::NMI);
            // VMRUN delivers the event that is injected before it looks at physical interrupts (APM vol. 2, 15.20).
            lapic::kick(cpu::this().kick_token());
        }
        Again::Soon(tries) => {
            vcpu.attention.raise(Reasons::NMI);
            time::ring_guest_in(MICROSECOND << tries.min(MOST_DOUBLINGS));
        }
    }
}

/// In nanoseconds: in which a guest usually gets to its next instruction. Doubled each time that it has not.
const MICROSECOND: u64 = 1000;
/// A millisecond is enough for any.
const MOST_DOUBLINGS: u32 = 10;

#[cfg(target_os = "none")]
unsafe extern "C" {
    #[cfg(feature = "ablation")]
    fn turnstile_enter_naive(frame: u64) -> !;
    /// The run loops: by [`crate::board::mitigation::Exit::number`], and by the CPU's naming the next instruction (1) and statistics (2).
    static turnstile_loops: [[unsafe extern "C" fn(u64) -> !; 4]; 16];
}

/// Runs `vcpu` on this CPU, for ever.
#[cfg(target_os = "none")]
pub fn run(vcpu: &'static Vcpu) -> ! {
    crate::irq::idt::expect_guests();
    vcpu.attention.load(cpu::this().kick_token());
    let frame = cpu::this().stack_end - cpu::STACK_TAIL - size_of::<Frame>() as u64;
    // SAFETY: the memory above this CPU's stack, mapped and used by nobody else.
    unsafe { live(frame as *mut Frame, vcpu) }
}

/// Waits for the first start of a resident vCPU, and enters its guest.
///
/// # Safety
/// `frame` lies above the stack in use, and is the vCPU's. What is on the stack is discarded: nothing refers to it.
#[cfg(target_os = "none")]
unsafe fn live(frame: *mut Frame, vcpu: &'static Vcpu) -> ! {
    // SAFETY: the caller's promise; the control block belongs to the CPU where the vCPU is resident.
    unsafe {
        frame.write(Frame::new(vcpu, vcpu.vmcb(), vcpu.statistics));
        wait_for_start(&mut *frame, vcpu, monitor());
        settle(&mut *frame, vcpu, monitor());
        #[cfg(feature = "ablation")]
        if super::naive::is_in_use() {
            turnstile_enter_naive(frame as u64)
        }
        let kind = usize::from(crate::cpu::svm::names_next()) | usize::from(vcpu.statistics.is_some()) << 1;
        turnstile_loops[crate::board::mitigation::exit().number()][kind](frame as u64)
    }
}

/// Serves physical interrupts on a CPU to which no vCPU is pinned, for ever.
pub fn idle() -> ! {
    loop {
        wait_for_interrupt();
    }
}

/// Where a vCPU begins that shares CPUs: on its own stack, resident.
#[cfg(target_os = "none")]
#[unsafe(no_mangle)]
extern "C" fn turnstile_run_thread(vcpu: &'static Vcpu) -> ! {
    turnstile_threads::arrive::<Svm>();
    let frame = vcpu.thread.as_ref().map_or(0, crate::vcpu::frame::of);
    // SAFETY: the top of this stack, above what is in use.
    unsafe { live(frame as *mut Frame, vcpu) }
}

#[cfg(test)]
mod tests;
