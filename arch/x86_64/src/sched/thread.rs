// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Threads: what a vCPU has that shares CPUs, and how it comes and goes.

use core::sync::atomic::{AtomicU64, Ordering};

use turnstile_vm::stolen::Account;

use super::Svm;
use crate::cpu::{self, STACK_TAIL};
use crate::facility;
use crate::frame::Frame;
use crate::irq;
use crate::kvm;
use crate::svm::asid;
use crate::time;
use crate::vcpu::Vcpu;

/// What a vCPU has that shares its CPUs.
pub struct Thread {
    /// What it has on every architecture.
    common: turnstile_threads::Thread,
    /// The end of its stack's block.
    stack_end: u64,
    /// The time that it was ready and did not run.
    stolen: Account,
}

impl AsRef<turnstile_threads::Thread> for Thread {
    fn as_ref(&self) -> &turnstile_threads::Thread {
        &self.common
    }
}

impl Thread {
    /// Makes thread `number` with the stack whose block ends at `stack_end`.
    pub fn new(number: u32, stack_end: u64) -> Self {
        Self {
            common: turnstile_threads::Thread::new(number),
            stack_end,
            stolen: Account::new(time::frequency()),
        }
    }

    /// A life of the vCPU begins.
    pub fn begin(&self) {
        self.stolen.begin(turnstile_threads::stolen::<Svm>(self));
    }

    /// Returns how many nanoseconds of this life the vCPU was ready and did not run.
    pub fn stolen(&self) -> u64 {
        self.stolen.until(turnstile_threads::stolen::<Svm>(self))
    }

    /// The exit frame, at the top of its stack.
    fn frame(&self) -> u64 {
        self.stack_end - STACK_TAIL - size_of::<Frame>() as u64
    }
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
        let sp = thread.frame() - size_of_val(&saved) as u64;
        // SAFETY: inside the new stack, which nobody uses yet.
        unsafe { (sp as *mut [u64; 7]).write(saved) };
        thread.common.sp.store(sp, Ordering::Relaxed);
    }
    #[cfg(not(target_os = "none"))]
    let _ = (thread.frame(), vcpu);
}

/// Where a vCPU begins that shares CPUs: on its own stack, resident.
#[cfg(target_os = "none")]
#[unsafe(no_mangle)]
extern "C" fn turnstile_run_thread(vcpu: &'static Vcpu) -> ! {
    turnstile_threads::arrive::<Svm>();
    let frame = vcpu.thread.as_ref().map_or(0, Thread::frame);
    // SAFETY: the top of this stack, above what is in use.
    unsafe { crate::exit::wait::live(frame as *mut Frame, vcpu) }
}
