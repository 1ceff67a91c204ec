// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The objects: a virtual machine and its vCPUs. What others may touch is atomic; the rest belongs to the physical CPU where the
//! vCPU is resident.

use alloc::boxed::Box;
use alloc::string::String;
use core::cell::UnsafeCell;
use core::ops::Deref;
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use turnstile_arch_common::demand::Touch;
use turnstile_arch_common::vm::ForLife;
use turnstile_exitstat::Page;
use turnstile_papr::process_table::RADIX;
use turnstile_papr::processors::Processors;
use turnstile_papr::vpa::Areas;
use turnstile_vm::attention::Attention;
use turnstile_vm::lifecycle::OnCrash;

use super::thread::Thread;
use crate::cpu::PerCpu;
use crate::cpu::regs::lpcr;
use crate::irq;
use crate::memory::GuestRam;
use crate::service::Services;
use crate::state::State;
#[cfg(feature = "ablation")]
use crate::state::saved::Saved;
use crate::time;

/// LPCR of every guest, but for what it sets itself: radix translation by tables of its own, TLBIE and TLBSYNC for its own
/// translations, its own interrupts to itself, the hypervisor's to the hypervisor. All of them end STOP, which is why HEIC is
/// off: an external interrupt of the guest's would not end the hypervisor's. MSR.EE, which is 0, keeps it from being taken.
pub const GUEST_LPCR: u64 =
    lpcr::VPM1 | lpcr::UPRT | lpcr::HR | lpcr::GTSE | lpcr::LPES0 | lpcr::HVICE | lpcr::HDICE | lpcr::PECE;

/// A virtual machine. It exists from boot on; what changes from life to life is its memory and its state.
pub struct Vm {
    /// What every VM has.
    common: turnstile_arch_common::vm::Vm<Vcpu>,
    /// Its interrupt controller.
    pub board: irq::Board,
    /// How its vCPUs start and stop.
    pub processors: Processors,
    /// How many of them are the threads of a core: a power of two.
    pub threads: usize,
    /// The process table that its guest has registered, as the partition table has it.
    pub(super) process_table: AtomicU64,
    /// How its vCPUs run: LPCR.
    pub(super) lpcr: AtomicU64,
    /// The key of the hashes by which its privileged state guards return addresses: HASHPKEYR.
    pub(super) hash_key: AtomicU64,
    /// What it has for this life, from `Vm::prepare` on.
    pub(super) life: ForLife<Life>,
    /// What services are to it; null if it has none. A pointer and no `Once`: each access would pay for the order of its loads.
    services: AtomicPtr<Services>,
}

/// What a VM has for one life.
#[derive(Debug, Default)]
pub struct Life {
    /// The partition-scoped tables, as the partition table has them.
    pub tables: u64,
    /// What its first vCPU begins with.
    pub boot: BootState,
    /// Where its RAM is.
    pub ram: GuestRam,
}

/// What a VM is made from.
pub struct VmParts {
    /// Its number in the bundle.
    pub id: u8,
    /// Its name.
    pub name: String,
    /// What to do when the guest crashes.
    pub on_crash: OnCrash,
    /// Whether its vCPUs keep statistics of their exits.
    pub statistics: bool,
    /// Its interrupt controller.
    pub board: irq::Board,
    /// How many vCPUs it has.
    pub vcpus: usize,
    /// See [`Vm::threads`].
    pub threads: usize,
}

/// What the first vCPU begins with; all other registers are zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BootState {
    /// Where it begins.
    pub pc: u64,
    /// R3: the device tree's address.
    pub r3: u64,
    /// The byte order in which it begins, and in which vCPUs take interrupts until they say otherwise.
    pub little_endian: bool,
}

impl Vm {
    /// Makes a VM that has never run.
    pub fn new(parts: VmParts) -> Self {
        Self {
            common: turnstile_arch_common::vm::Vm::new(
                parts.id,
                parts.name,
                parts.on_crash,
                parts.statistics,
                parts.vcpus,
            ),
            board: parts.board,
            processors: Processors::new(parts.vcpus),
            threads: parts.threads,
            process_table: AtomicU64::new(RADIX),
            lpcr: AtomicU64::new(GUEST_LPCR),
            hash_key: AtomicU64::new(0),
            life: ForLife::default(),
            services: AtomicPtr::new(ptr::null_mut()),
        }
    }

    /// Says what services are to it; once, before it runs.
    pub fn set_services(&self, services: Services) {
        let services = Box::leak(Box::new(services));
        // Release: what they are comes before where they are.
        let _ =
            self.services.compare_exchange(ptr::null_mut(), services, Ordering::Release, Ordering::Relaxed);
    }

    /// Returns what services are to it; `None` if it has none.
    #[inline(always)] // A load and a comparison.
    pub fn services(&self) -> Option<&'static Services> {
        // SAFETY: null, or what is there for ever and nobody writes. Relaxed: who runs a guest has found the system built, which is
        // ordered behind saying it; and the address that is loaded from was loaded.
        unsafe { self.services.load(Ordering::Relaxed).as_ref() }
    }

    /// The number of its partition: LPID 0 is the hypervisor's.
    #[inline(always)] // An addition.
    pub fn lpid(&self) -> u32 {
        u32::from(self.id) + 1
    }

    /// HASHPKEYR of its vCPUs, in this life.
    #[inline(always)] // One load.
    pub fn hash_key(&self) -> u64 {
        self.hash_key.load(Ordering::Relaxed)
    }

    /// LPCR of its vCPUs.
    #[inline(always)] // One load.
    pub fn lpcr(&self) -> u64 {
        self.lpcr.load(Ordering::Relaxed)
    }

    /// Changes what the guest may of that.
    pub fn set_lpcr(&self, mask: u64, value: u64) {
        // Another vCPU may change something else at the same time.
        let change = |before: u64| Some(before & !mask | value & mask);
        let _ = self.lpcr.fetch_update(Ordering::Relaxed, Ordering::Relaxed, change);
    }

    /// What it has for this life. For its vCPUs, from the start of one to its stop.
    #[inline(always)] // An address computation.
    pub fn life(&self) -> &Life {
        self.life.get()
    }

    /// Clears and maps the block that a service of the VM has touched, as at a touch of its own; returns where it is. From [`Vm::prepare`]
    /// until its memory is given back.
    ///
    /// # Errors
    /// What has become of the touch, if it is not mapped yet.
    pub fn reach(&self, address: u64) -> Result<u64, Touch> {
        self.life().ram.reach(address)
    }

    /// What translates the guest's processes.
    pub fn process_table(&self) -> u64 {
        self.process_table.load(Ordering::Relaxed)
    }
}

impl Deref for Vm {
    type Target = turnstile_arch_common::vm::Vm<Vcpu>;

    #[inline(always)] // The same address, but for an offset.
    fn deref(&self) -> &Self::Target {
        &self.common
    }
}

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
    facilities: UnsafeCell<State>,
    /// Where its state goes on an exit that does without techniques.
    #[cfg(feature = "ablation")]
    saved: UnsafeCell<Saved>,
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
    /// Only on the physical CPU that last ran the vCPU, and only in functions of `vcpu/facility.rs`, which do not keep it.
    #[inline(always)] // An address computation.
    #[allow(clippy::mut_from_ref, reason = "the contract makes the reference unique")]
    pub unsafe fn facilities(&self) -> &mut State {
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

    /// Its number in its core.
    #[inline] // A mask.
    pub fn thread_number(&self) -> usize {
        self.index & (self.vm.threads - 1)
    }

    /// The vCPUs of its core, by their numbers there.
    pub fn core(&self) -> &'static [&'static Vcpu] {
        let first = self.index - self.thread_number();
        self.vm.vcpus().get(first..).map_or(&[], |rest| &rest[..rest.len().min(self.vm.threads)])
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
    pub unsafe fn saved(&self) -> &mut Saved {
        // SAFETY: unique by the contract.
        unsafe { &mut *self.saved.get() }
    }
}
