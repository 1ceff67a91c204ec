// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How a vCPU comes and goes that shares CPUs.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::cpu::{self, STACK_TAIL};
use crate::vcpu::frame::Frame;
use crate::vcpu::{asid, facility};
use crate::vcpu::{irq, kvm};
use crate::vm::Vcpu;
use crate::vm::queues::Svm;
use crate::vm::thread::Thread;

/// Returns where the exit frame of a thread is: at the top of its stack.
pub(crate) fn frame(thread: &Thread) -> u64 {
    thread.stack_end - STACK_TAIL - size_of::<Frame>() as u64
}

/// Puts a vCPU, which is nobody's then. Returns when its timer wants it back.
pub(super) fn put(vcpu: &'static Vcpu) -> Option<u64> {
    // SAFETY: the CPU where the vCPU is resident; nobody refers to its control block across a switch.
    let deadline = irq::put(vcpu, unsafe { &mut *vcpu.vmcb() });
    kvm::put(vcpu);
    deadline
}

/// Makes a vCPU that is queued resident on this CPU.
pub(super) fn load(vcpu: &'static Vcpu) {
    let Some(thread) = &vcpu.thread else { return };
    vcpu.attention.load(cpu::this().kick_token());
    turnstile_threads::resident::<Svm>(vcpu, thread, |(), _| {});
    facility::load(vcpu);
    // SAFETY: the vCPU has just become this CPU's; nobody refers to its control block across a switch.
    let vmcb = unsafe { &mut *vcpu.vmcb() };
    asid::load(vcpu, vmcb);
    irq::load(vcpu, vmcb);
    kvm::load(vcpu, vmcb);
}

unsafe extern "C" {
    #[cfg(target_os = "none")]
    fn turnstile_switch_stack(from: *mut u64, to: u64);
    #[cfg(target_os = "none")]
    fn turnstile_thread_start() -> !;
}

/// Goes on on the stack of `to`, and leaves the RSP of the one in use in `from`.
pub(super) fn switch_stack(from: &AtomicU64, to: &'static Vcpu) {
    let Some(to) = &to.thread else { return };
    #[cfg(target_os = "none")]
    // SAFETY: the stack was left by this function, or made by `prepare`; nobody else uses it, because its vCPU is
    // resident here and nowhere else. The last word of its block names the CPU that runs on it (`cpu::this`).
    unsafe {
        ((to.stack_end - 8) as *mut &cpu::PerCpu).write(cpu::this());
        turnstile_switch_stack(from.as_ptr(), to.common.sp.load(Ordering::Relaxed));
    }
    #[cfg(not(target_os = "none"))]
    let _ = (from, to.common.sp.load(Ordering::Relaxed));
}

/// Makes the stack of a vCPU that has never run.
pub(super) fn prepare(vcpu: &'static Vcpu) {
    let Some(thread) = &vcpu.thread else { return };
    #[cfg(target_os = "none")]
    {
        // RBX, R12 to R15, RBP, and where it goes on.
        let mut saved = [0u64; 7];
        saved[0] = core::ptr::from_ref(vcpu) as u64;
        saved[6] = turnstile_thread_start as *const () as u64;
        let sp = frame(thread) - size_of_val(&saved) as u64;
        // SAFETY: inside the new stack, which nobody uses yet.
        unsafe { (sp as *mut [u64; 7]).write(saved) };
        thread.common.sp.store(sp, Ordering::Relaxed);
    }
    #[cfg(not(target_os = "none"))]
    let _ = (frame(thread), vcpu);
}
