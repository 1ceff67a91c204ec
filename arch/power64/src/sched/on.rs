// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a switch moves, for `turnstile_threads`.

use core::sync::atomic::{AtomicU64, Ordering};

use turnstile_threads::Architecture;

use super::turns;
use crate::cpu;
use crate::time;
use crate::vcpu::frame::Frame;
use crate::vcpu::{facility, idle, interrupts};
use crate::vm::queues::Power;
use crate::vm::{Thread, Vcpu};

#[cfg(target_os = "none")]
unsafe extern "C" {
    fn turnstile_switch_stack(from: *mut u64, to: u64, frame: u64);
    fn turnstile_thread_start() -> !;
    /// Where a vCPU begins that shares CPUs: on its own stack, resident (`exit/wait.rs`).
    fn turnstile_run_thread() -> !;
}

impl Architecture for Power {
    /// Whether a deadline of the hypervisor's has come.
    type Interrupt = bool;

    fn set_schedule(at: Option<u64>) {
        time::set_schedule(at);
    }

    fn pause() -> bool {
        idle::wait()
    }

    fn idle() {
        idle::wait_for_interrupt();
    }

    fn share_cpu() {
        time::share_cpu();
    }

    /// Nothing: a guest says by a call that it could wait (H_CONFER).
    fn waited_for(_: Option<&'static Vcpu>, _: &mut (), _: bool) {}

    fn prepare(vcpu: &'static Vcpu) {
        let Some(thread) = &vcpu.thread else { return };
        #[cfg(target_os = "none")]
        {
            /// What `switch.S` finds on a stack: linkage, R14 to R31, R2, R13.
            const WORDS: usize = 4 + 18 + 2;
            let mut saved = [0u64; WORDS];
            saved[4] = core::ptr::from_ref(vcpu) as u64;
            saved[5] = turnstile_run_thread as *const () as u64;
            let top = thread.frame() - 32;
            // SAFETY: inside the new stack, which nobody uses yet; above it the linkage of who goes on, which has the CR and the
            // LR that it goes on with.
            unsafe {
                (thread.frame() as *mut Frame).write(Frame::idle(cpu::this()));
                (top as *mut [u64; 4]).write([0, 0, turnstile_thread_start as *const () as u64, 0]);
                thread.as_ref().lay(top, saved);
            }
        }
        #[cfg(not(target_os = "none"))]
        let _ = (thread.frame(), vcpu, Frame::idle as fn(_) -> _);
    }

    fn put(vcpu: &'static Vcpu, _: &'static Thread) -> Option<u64> {
        turns::leave(vcpu);
        interrupts::put(vcpu);
        vcpu.vm.processors.is_on(vcpu.index).then(|| facility::decrementer(vcpu))
    }

    fn load(vcpu: &'static Vcpu) {
        let Some(thread) = &vcpu.thread else { return };
        vcpu.attention.load(cpu::this().kick_token());
        turnstile_threads::resident::<Power>(vcpu, thread, |(), _| {});
        facility::load(vcpu);
        interrupts::load(vcpu);
        turns::dispatch(vcpu);
    }

    fn depart(vcpu: &'static Vcpu) {
        facility::depart(vcpu);
    }

    fn switch_stack(from: &AtomicU64, to: &'static Vcpu) {
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
}
