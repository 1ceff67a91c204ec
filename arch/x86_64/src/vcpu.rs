// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A vCPU: what others may touch (atomics), and what belongs to the physical CPU where it is resident.

use alloc::boxed::Box;
use core::cell::UnsafeCell;

use turnstile_exitstat::Page;
use turnstile_vapic::{Lapic, Mailbox};
use turnstile_vm::asid::Tag;
use turnstile_vm::attention::{Attention, Posted, Reasons};
use turnstile_x86insn::cache::Cache;
use turnstile_x86policy::CpuidTable;
use turnstile_x86policy::msr::Bank;

use crate::cpu::{self, PerCpu};
use crate::exit::event::Nmi;
use crate::facility;
use crate::kvm;
use crate::lapic;
use crate::sched::{self, Svm, Thread};
use crate::svm::Vmcb;
use crate::time;
use crate::vm::Vm;

/// A vCPU.
#[repr(C)]
pub struct Vcpu {
    /// Why it must look before it enters its guest. First: the light path loads it on every exit.
    pub attention: Attention,
    /// Its VM.
    pub vm: &'static Vm,
    /// Its number in the VM, and its APIC ID.
    pub index: usize,
    /// The physical CPU it is pinned to, or where it begins.
    pub cpu: &'static PerCpu,
    /// Interrupts posted by others.
    pub mailbox: Mailbox,
    owned: UnsafeCell<Owned>,
    /// What CPUID answers to it.
    pub cpuid: CpuidTable,
    /// What its exits cost, if its VM keeps statistics: its CPU adds, anybody reads.
    pub statistics: Option<&'static Page>,
    vmcb: *mut Vmcb,
    /// Where its state goes on an exit that does without techniques.
    #[cfg(feature = "ablation")]
    saved: UnsafeCell<crate::naive::Saved>,
    facilities: UnsafeCell<facility::State>,
    /// What it has if it shares CPUs with others; `None` if it is pinned.
    pub thread: Option<Thread>,
}

/// The part of a vCPU that only its physical CPU touches.
pub struct Owned {
    /// Its local APIC. First: of all this, light exits use it most.
    pub lapic: Lapic,
    /// NMIs for it.
    pub nmi: Nmi,
    /// It is to leave HLT without an interrupt.
    pub unhalted: bool,
    /// What its guest says of polling while it halts.
    pub polling: kvm::Polling,
    /// What it has asked for of KVM's interface.
    pub kvm: kvm::State,
    /// MSRs that only keep what is written to them.
    pub registers: Bank,
    /// Instructions that have reached a device.
    pub decoded: Cache,
    /// By which its CPU's TLB tells it from others.
    pub asid: Tag,
}

impl Owned {
    /// Forgets everything but the local APIC, which [`crate::irq::reset`] resets: for a new life, or an INIT.
    pub fn reset(&mut self) {
        (self.nmi, self.unhalted) = (Nmi::default(), false);
        self.polling.reset();
        self.kvm = kvm::State::default();
        self.registers = Bank::new();
    }
}

// SAFETY: everything shared is atomic; `owned` and the control block are reached only on the CPU where the vCPU is
// resident, as the contracts of their functions say.
unsafe impl Sync for Vcpu {}
// SAFETY: both may be handed to the CPU that runs the vCPU.
unsafe impl Send for Vcpu {}

/// Makes the page of a vCPU's statistics.
#[inline(never)] // Half of the stack, for a moment.
fn new_page() -> &'static Page {
    Box::leak(Box::new(Page::new(time::frequency())))
}

impl Vcpu {
    /// Makes vCPU `index` of `vm`, pinned to `cpu`; or a thread that begins there.
    #[inline(never)] // It is larger than a page: one place on the stack is enough.
    pub fn new(vm: &'static Vm, index: usize, cpu: &'static PerCpu, thread: Option<Thread>) -> Self {
        Self {
            attention: Attention::new(),
            vm,
            index,
            cpu,
            mailbox: Mailbox::new(),
            owned: UnsafeCell::new(Owned {
                lapic: Lapic::new(index, vm.x2apic),
                nmi: Nmi::default(),
                unhalted: false,
                polling: kvm::polling(vm),
                kvm: kvm::State::default(),
                registers: Bank::new(),
                decoded: Cache::new(),
                asid: Tag::default(),
            }),
            cpuid: CpuidTable::compose(&cpu::cpuid, &vm.processor(index)),
            statistics: vm.statistics.then(new_page),
            #[cfg(feature = "ablation")]
            saved: Default::default(),
            vmcb: Box::leak(Vmcb::boxed()),
            facilities: UnsafeCell::default(),
            thread,
        }
    }

    /// Returns the control block: for the CPU where the vCPU is resident.
    #[inline(always)] // One load.
    pub fn vmcb(&self) -> *mut Vmcb {
        self.vmcb
    }

    /// Uses the control block, under the same contract as [`Vcpu::owned`]; in the full tier, where nothing may refer to it
    /// while the vCPU gives its CPU away.
    #[inline(always)] // One load.
    pub fn with_vmcb<R>(&self, f: impl FnOnce(&mut Vmcb) -> R) -> R {
        // SAFETY: unique by the contract.
        f(unsafe { &mut *self.vmcb })
    }

    /// Returns what it has of facilities. Apart from [`Vcpu::owned`], because the next vCPU on its CPU stores into it.
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
            Posted::Kick(token) if token != cpu::this().kick_token() => lapic::kick(token),
            Posted::Kick(_) | Posted::Seen => {}
            Posted::Wake => sched::wake::<Svm>(self),
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
