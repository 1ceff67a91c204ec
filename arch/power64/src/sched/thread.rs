// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How a vCPU that shares CPUs comes and goes.

use core::sync::atomic::{AtomicU64, Ordering};

use super::turns;
use crate::cpu;
use crate::vcpu::frame::Frame;
use crate::vcpu::{facility, interrupts};
use crate::vm::Vcpu;
use crate::vm::queues::Power;

/// Puts a vCPU, which is nobody's then. Returns when its decrementer wants it back.
pub(super) fn put(vcpu: &'static Vcpu) -> Option<u64> {
    turns::leave(vcpu);
    interrupts::put(vcpu);
    vcpu.vm.processors.is_on(vcpu.index).then(|| facility::decrementer(vcpu))
}

/// Makes a vCPU that is queued resident on this CPU.
pub(super) fn load(vcpu: &'static Vcpu) {
    let Some(thread) = &vcpu.thread else { return };
    vcpu.attention.load(cpu::this().kick_token());
    turnstile_threads::resident::<Power>(vcpu, thread, |(), _| {});
    facility::load(vcpu);
    interrupts::load(vcpu);
    turns::dispatch(vcpu);
}

unsafe extern "C" {
    #[cfg(target_os = "none")]
    fn turnstile_switch_stack(from: *mut u64, to: u64, frame: u64);
    #[cfg(target_os = "none")]
    fn turnstile_thread_start() -> !;
    /// Where a vCPU begins that shares CPUs: on its own stack, resident (`exit/wait.rs`).
    #[cfg(target_os = "none")]
    fn turnstile_run_thread() -> !;
}

/// Goes on on the stack of `to`, and leaves the R1 of the one in use in `from`.
pub(super) fn switch_stack(from: &AtomicU64, to: &'static Vcpu) {
    let Some(to) = &to.thread else { return };
    #[cfg(target_os = "none")]
    // SAFETY: the stack was left by this function, or made by `prepare`; nobody else uses it, because its vCPU is
    // resident here and nowhere else. Its frame names the CPU that runs on it (`cpu::this`), and HSPRG0 gets its address.
    unsafe {
        (*(to.frame() as *mut Frame)).cpu = cpu::this();
        turnstile_switch_stack(from.as_ptr(), to.as_ref().sp.load(Ordering::Relaxed), to.frame());
    }
    #[cfg(not(target_os = "none"))]
    let _ = (from, to.as_ref().sp.load(Ordering::Relaxed));
}

/// Makes the stack of a vCPU that has never run.
pub(super) fn prepare(vcpu: &'static Vcpu) {
    let Some(thread) = &vcpu.thread else { return };
    #[cfg(target_os = "none")]
    {
        /// What `switch.S` finds on a stack: linkage, R14 to R31, R2, and what keeps 16 bytes aligned.
        const WORDS: usize = 4 + 18 + 2;
        let mut saved = [0u64; WORDS];
        saved[4] = core::ptr::from_ref(vcpu) as u64;
        saved[5] = turnstile_run_thread as *const () as u64;
        let sp = thread.frame() - 32 - size_of_val(&saved) as u64;
        // SAFETY: inside the new stack, which nobody uses yet; above it the linkage of who goes on, which has the CR and the
        // LR that it goes on with.
        unsafe {
            (thread.frame() as *mut Frame).write(Frame::idle(cpu::this()));
            (sp as *mut [u64; WORDS]).write(saved);
            let linkage = (sp + size_of_val(&saved) as u64) as *mut [u64; 4];
            linkage.write([0, 0, turnstile_thread_start as *const () as u64, 0]);
        }
        thread.as_ref().sp.store(sp, Ordering::Relaxed);
    }
    #[cfg(not(target_os = "none"))]
    let _ = (thread.frame(), vcpu, Frame::idle as fn(_) -> _);
}
