// SPDX-License-Identifier: Apache-2.0 OR MIT
//! AMD64 with SVM, as `turnstile_threads` sees it.

use core::sync::atomic::AtomicU64;

use turnstile_threads::Architecture;

use super::thread::{load, prepare, put, switch_stack};
use crate::cpu::svm::intercept;
use crate::irq::interrupts::{self, Arrived};
use crate::time;
use crate::vcpu::{facility, serve};
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
        prepare(vcpu);
    }

    fn put(vcpu: &'static Vcpu, _: &'static Thread) -> Option<u64> {
        put(vcpu)
    }

    fn load(vcpu: &'static Vcpu) {
        load(vcpu);
    }

    fn depart(vcpu: &'static Vcpu) {
        facility::depart(vcpu);
    }

    fn switch_stack(from: &AtomicU64, to: &'static Vcpu) {
        switch_stack(from, to);
    }
}
