// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How a vCPU comes to run on a CPU: the frame that says where its exits go on, its first wait, and its first entry; and what
//! CPUs do that have none.

#[cfg(target_os = "none")]
use super::attend::{settle, wait_for_start};
use super::entry;
#[cfg(feature = "ablation")]
use super::{hcall, naive};
use crate::cpu;
use crate::vcpu::frame::{Entries, Frame};
pub use crate::vcpu::idle::wait_for_interrupt;
#[cfg(target_os = "none")]
use crate::vcpu::{facility, interrupts};
use crate::vm::Vcpu;
#[cfg(target_os = "none")]
use crate::vm::monitor::monitor;
#[cfg(target_os = "none")]
use crate::vm::queues::Power;

/// Returns where the exits of a vCPU go on.
fn entries(vcpu: &Vcpu) -> Entries {
    let timed = vcpu.statistics.is_some();
    let entries = entry::entries(vcpu.thread.is_some(), timed);
    let services = vcpu.vm.services();
    let entries = services.map_or(entries, |services| entry::with_services(services, timed, entries));
    #[cfg(feature = "ablation")]
    if naive::is_in_use() {
        let calls = match services.and_then(|services| services.terminal.as_ref()) {
            None => core::ptr::from_ref(&hcall::NAIVE_ENTRIES).cast(),
            // The service is called as ever.
            Some(_) => hcall::with_terminal(core::ptr::from_ref(&hcall::NAIVE_ENTRIES).cast(), false),
        };
        return Entries { calls, light: naive::light, data: naive::light, facility: naive::light, ..entries };
    }
    entries
}

/// Makes the frame of a vCPU that becomes resident on this CPU.
pub fn frame(vcpu: &'static Vcpu) -> Frame {
    Frame::new(cpu::this(), vcpu, vcpu.statistics, entries(vcpu))
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
    interrupts::load(vcpu);
    let frame = cpu::this().stack_end - cpu::STACK_HEAD;
    // SAFETY: the memory above this CPU's stack, which HSPRG0 points to already.
    unsafe { live(frame as *mut Frame, vcpu) }
}

/// Waits for the first start of a resident vCPU, and enters its guest.
///
/// # Safety
/// `frame` lies above the stack in use, and is the vCPU's. What is on the stack is discarded: nothing refers to it.
#[cfg(target_os = "none")]
unsafe fn live(frame: *mut Frame, vcpu: &'static Vcpu) -> ! {
    // SAFETY: the caller's promise.
    unsafe {
        frame.write(self::frame(vcpu));
        wait_for_start(&mut *frame, vcpu, monitor());
        settle(&mut *frame, vcpu, monitor());
        // What follows loads all registers.
        let _ = (*frame).entry();
        // The first start is behind no exit that would end the reckoning.
        if (*frame).timing.is_kept() {
            crate::vcpu::statistics::account(&mut *frame);
        }
        turnstile_enter(frame as u64)
    }
}

/// Where a vCPU begins that shares CPUs: on its own stack, resident (`sched/thread.rs:prepare`).
#[cfg(target_os = "none")]
#[unsafe(no_mangle)]
extern "C" fn turnstile_run_thread(vcpu: &'static Vcpu) -> ! {
    turnstile_threads::arrive::<Power>();
    let frame = vcpu.thread.as_ref().map_or(0, crate::vm::Thread::frame);
    // SAFETY: the top of this stack, above what is in use.
    unsafe { live(frame as *mut Frame, vcpu) }
}

/// Serves physical interrupts on a CPU to which no vCPU is pinned, for ever.
pub fn idle() -> ! {
    loop {
        wait_for_interrupt();
    }
}
