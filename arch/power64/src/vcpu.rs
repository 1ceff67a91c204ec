// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A vCPU: what others may touch (atomics), and what belongs to the physical CPU where it is resident.

use alloc::boxed::Box;
use core::cell::UnsafeCell;

use turnstile_exitstat::Page;
use turnstile_papr::vpa::Areas;
use turnstile_vm::attention::{Attention, Posted, Reasons};

use crate::cpu::{self, PerCpu};
use crate::facility;
use crate::irq;
use crate::sched::{self, Power, Thread};
use crate::time;
use crate::vm::Vm;

/// A vCPU.
#[repr(C)]
pub struct Vcpu {
    /// Why it must look before it enters its guest. First: `vectors.S` loads it on every call.
    pub attention: Attention,
    /// Its VM.
    pub vm: &'static Vm,
    /// Its number in the VM, and its server number.
    pub index: usize,
    /// The physical CPU it is pinned to, or where it begins.
    pub cpu: &'static PerCpu,
    /// Its interrupts.
    pub interrupts: irq::Shared,
    owned: UnsafeCell<Owned>,
    /// What its exits cost, if its VM keeps statistics: its CPU adds, anybody reads.
    pub statistics: Option<&'static Page>,
    facilities: UnsafeCell<facility::State>,
    /// Where its state goes on an exit that does without techniques.
    #[cfg(feature = "ablation")]
    saved: UnsafeCell<crate::naive::Saved>,
    /// What it has if it shares CPUs with others; `None` if it is pinned.
    pub thread: Option<Thread>,
}

/// The part of a vCPU that only its physical CPU touches.
pub struct Owned {
    /// Its interrupts.
    pub irq: irq::Own,
    /// Memory that it shares with the hypervisor.
    pub areas: Areas,
}

// SAFETY: everything shared is atomic; the rest is reached only on the CPU where the vCPU is resident, as the contracts of the
// functions say.
unsafe impl Sync for Vcpu {}
// SAFETY: it may be handed to the CPU that runs the vCPU.
unsafe impl Send for Vcpu {}

const _: () = assert!(core::mem::offset_of!(Vcpu, attention) == 0 && Attention::WORD_OFFSET == 0);

impl Vcpu {
    /// Makes vCPU `index` of `vm`, pinned to `cpu`; or a thread that begins there.
    #[inline(never)] // One place on the stack is enough.
    pub fn new(vm: &'static Vm, index: usize, cpu: &'static PerCpu, thread: Option<Thread>) -> Self {
        Self {
            attention: Attention::new(),
            vm,
            index,
            cpu,
            interrupts: irq::Shared::new(),
            owned: UnsafeCell::new(Owned { irq: vm.board.own(index), areas: Areas::default() }),
            statistics: vm.statistics.then(|| &*Box::leak(Box::new(Page::new(time::frequency())))),
            facilities: UnsafeCell::default(),
            #[cfg(feature = "ablation")]
            saved: UnsafeCell::default(),
            thread,
        }
    }

    /// Returns what it has of facilities.
    ///
    /// # Safety
    /// Only on the physical CPU that last ran the vCPU, and only in functions of [`facility`], which do not keep it.
    #[inline(always)] // An address computation.
    #[allow(clippy::mut_from_ref, reason = "the contract makes the reference unique")]
    pub unsafe fn facilities(&self) -> &mut facility::State {
        // SAFETY: unique by the contract.
        unsafe { &mut *self.facilities.get() }
    }

    /// Uses what belongs to the CPU where the vCPU is resident: in an exit handler of that CPU, which nothing interrupts.
    /// `f` does not give the CPU away, and does not get here again.
    #[inline(always)] // An address computation on the light path.
    pub fn owned<R>(&self, f: impl FnOnce(&mut Owned) -> R) -> R {
        // SAFETY: unique by the contract: only the CPU where the vCPU is resident gets here, once at a time.
        f(unsafe { &mut *self.owned.get() })
    }

    /// Does what a post to this vCPU's attention word demands. A kick is spared where the vCPU is resident on the
    /// calling CPU, which looks before it enters a guest anyway.
    #[inline] // On the path of every cross-CPU interrupt.
    pub fn notify(&self, posted: Posted) {
        match posted {
            Posted::Kick(token) if token != cpu::this().kick_token() => cpu::ring(token),
            Posted::Kick(_) | Posted::Seen => {}
            Posted::Wake => sched::wake::<Power>(self),
        }
    }

    /// Sets reasons to look, and makes the vCPU do so.
    pub fn post(&self, reasons: Reasons) {
        self.notify(self.attention.post(reasons));
    }
}

#[cfg(feature = "ablation")]
impl Vcpu {
    /// Returns where its state goes on an exit that does without techniques.
    ///
    /// # Safety
    /// Only on the physical CPU where the vCPU is resident, and only once at a time.
    #[inline(always)] // An address computation.
    #[allow(clippy::mut_from_ref, reason = "the contract makes the reference unique")]
    pub unsafe fn saved(&self) -> &mut crate::naive::Saved {
        // SAFETY: unique by the contract.
        unsafe { &mut *self.saved.get() }
    }
}
