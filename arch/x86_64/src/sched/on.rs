// SPDX-License-Identifier: Apache-2.0 OR MIT
//! AMD64 with SVM, as `turnstile_threads` sees it.

use core::sync::atomic::AtomicU64;

use turnstile_threads::{Architecture, stack};

use crate::cpu;
use crate::cpu::svm::intercept;
use crate::irq::interrupts::{self, Arrived};
use crate::time;
use crate::vcpu::{asid, facility, frame, irq, kvm, serve};
use crate::vm::Vcpu;
use crate::vm::queues::Svm;
use crate::vm::thread::Thread;

impl Architecture for Svm {
    type Interrupt = Arrived;

    fn set_schedule(at: Option<u64>) {
        time::set_schedule(at);
    }

    fn pause() -> Arrived {
        interrupts::wait()
    }

    fn idle() {
        serve::wait_for_interrupt();
    }

    fn share_cpu() {
        #[cfg(target_os = "none")]
        crate::irq::idt::expect_guests();
    }

    /// PAUSE leaves the guest while somebody waits.
    fn waited_for(resident: Option<&'static Vcpu>, _: &mut (), waited_for: bool) {
        if let Some(vcpu) = resident {
            // SAFETY: the vCPU is resident here, and nobody refers to its control block while a turn is decided.
            intercept::pause(unsafe { &mut *vcpu.vmcb() }, waited_for);
        }
    }

    fn prepare(vcpu: &'static Vcpu) {
        let Some(thread) = &vcpu.thread else { return };
        let top = frame::of(thread);
        #[cfg(target_os = "none")]
        {
            unsafe extern "C" {
                fn turnstile_thread_start() -> !;
            }
            // RBX, R12 to R15, RBP, and where it goes on.
            let mut saved = [0u64; 7];
            saved[0] = core::ptr::from_ref(vcpu) as u64;
            saved[6] = turnstile_thread_start as *const () as u64;
            // SAFETY: inside the new stack, which nobody uses yet.
            unsafe { thread.common.lay(top, saved) };
        }
        #[cfg(not(target_os = "none"))]
        let _ = (top, vcpu);
    }

    fn put(vcpu: &'static Vcpu, _: &'static Thread) -> Option<u64> {
        // SAFETY: the CPU where the vCPU is resident; nobody refers to its control block across a switch.
        let deadline = irq::put(vcpu, unsafe { &mut *vcpu.vmcb() });
        kvm::put(vcpu);
        deadline
    }

    fn load(vcpu: &'static Vcpu) {
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

    fn depart(vcpu: &'static Vcpu) {
        facility::depart(vcpu);
    }

    fn switch_stack(from: &AtomicU64, to: &'static Vcpu) {
        let Some(to) = &to.thread else { return };
        // SAFETY: the stack was left by this function, or made by `prepare`; nobody else uses it, because its vCPU is
        // resident here and nowhere else. The last word of its block names the CPU that runs on it (`cpu::this`).
        unsafe {
            #[cfg(target_os = "none")]
            ((to.stack_end - 8) as *mut &cpu::PerCpu).write(cpu::this());
            stack::switch(from, &to.common);
        }
    }
}
