// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The objects: a virtual machine and its vCPUs. What others may touch is atomic; the rest belongs to the physical CPU where the vCPU is
//! resident.

use alloc::boxed::Box;
use alloc::string::String;
use core::cell::UnsafeCell;
use core::ops::{Deref, Range};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};

use spin::Once;
use turnstile_arch_common::demand::Touch;
use turnstile_arch_common::time::Uptime;
use turnstile_arch_common::vm::ForLife;
use turnstile_exitstat::Page;
use turnstile_vapic::Mailbox;
use turnstile_vm::attention::{Attention, Reasons};
use turnstile_vm::lifecycle::{OnCrash, Phase};
use turnstile_vm::startup::Startup;
use turnstile_x86policy::features::kvm as feature;
use turnstile_x86policy::{CpuidTable, Processor};

use crate::board::mitigation;
use crate::cpu::svm::Vmcb;
use crate::cpu::{self, PerCpu};
use crate::irq::board::Board;
use crate::irq::lapic;
use crate::memory::{GuestRam, user};
use crate::service::{Service, Services};
use crate::state::facility::State;
use crate::state::owned::Owned;
#[cfg(feature = "ablation")]
use crate::state::saved::Saved;
use crate::state::start::BootState;
use crate::time;
use crate::vm::bell::Bell;
use crate::vm::ports::Ports;
use crate::vm::thread::Thread;

/// A virtual machine. It exists from boot on; what changes from life to life is its memory and its state.
pub struct Vm {
    /// What every VM has.
    common: turnstile_arch_common::vm::Vm<Vcpu>,
    /// Whether its local APICs can be x2APICs.
    pub x2apic: bool,
    /// KVM's features that it is offered.
    pub kvm: Option<u32>,
    /// The ports where the hypervisor has devices for it.
    pub ports: &'static Ports,
    /// Its interrupt controllers.
    pub board: Board,
    /// How its vCPUs start.
    pub startup: Startup,
    /// What it has for this life, from [`Vm::prepare`] on.
    life: ForLife<Life>,
    /// What services are to it.
    services: Once<Services>,
}

/// What a VM has for one life.
#[derive(Debug, Default)]
pub struct Life {
    /// The root of the nested page tables.
    pub nested_root: u64,
    /// See [`Life::tsc_offset`].
    tsc_offset: AtomicU64,
    /// What its first vCPU begins with.
    pub boot: BootState,
    /// Where its RAM is.
    pub ram: GuestRam,
}

impl Life {
    /// What is added to the time-stamp counter, which starts from zero, and stands still while the VM is paused.
    #[inline(always)] // One load.
    pub fn tsc_offset(&self) -> u64 {
        // Relaxed: changed while all vCPUs are out of their guests, and read by those that go on since.
        self.tsc_offset.load(Ordering::Relaxed)
    }
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
    /// See [`Vm::x2apic`].
    pub x2apic: bool,
    /// See [`Vm::kvm`].
    pub kvm: Option<u32>,
    /// See [`Vm::ports`].
    pub ports: &'static Ports,
    /// How many vCPUs it has.
    pub vcpus: usize,
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
            x2apic: parts.x2apic,
            kvm: parts.kvm,
            ports: parts.ports,
            board: Board::new(parts.vcpus),
            startup: Startup::new(parts.vcpus),
            life: ForLife::default(),
            services: Once::new(),
        }
    }

    /// Says what services are to it; once, before it runs.
    pub fn set_services(&self, services: Services) {
        self.services.call_once(|| services);
    }

    /// Returns what services are to it; `None` if it has none.
    pub fn services(&self) -> Option<&Services> {
        self.services.get()
    }

    /// What a vCPU of the VM is.
    pub fn processor(&self, index: usize) -> Processor {
        let count = self.startup.vcpus() as u32;
        let speculation = mitigation::offer();
        Processor { id: index as u32, count, x2apic: self.x2apic, kvm: self.kvm, speculation }
    }

    /// Prepares the VM's next life: the root of its nested page tables, its RAM, and what its first vCPU begins with. Nothing if the
    /// VM runs.
    pub fn prepare(&self, nested_root: u64, ram: GuestRam, boot: BootState) {
        if matches!(self.lifecycle.phase(), Phase::Running | Phase::Stopping(_)) {
            return;
        }
        let tsc_offset = AtomicU64::new(time::ticks().wrapping_neg());
        // SAFETY: no vCPU runs; the CPU of the first vCPU alone gets here, and starts the VM afterwards.
        unsafe { self.life.begin(Life { nested_root, tsc_offset, boot, ram }) };
        self.board.reset();
        self.startup.reset();
    }

    /// The VM was paused for so many ticks, of which its clocks show nothing. Only while all its vCPUs are out of their guests.
    pub fn stood_still(&self, ticks: u64) {
        self.life().tsc_offset.fetch_sub(ticks, Ordering::Relaxed);
        self.board.stood_still(ticks);
    }

    /// Nanoseconds by the clock of its devices, from which its pauses are missing.
    pub fn nanoseconds(&self) -> u64 {
        Uptime { ticks: self.pause.clock(time::ticks()), frequency: time::frequency() }.nanoseconds()
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
    #[allow(
        clippy::redundant_closure,
        reason = "one of its own, so that the guest's touches have theirs inlined"
    )]
    pub fn reach(&self, address: u64) -> Result<u64, Touch> {
        self.life().ram.reach(address, || lapic::is_pending())
    }

    /// Says whether its memory comes from a pool. From [`Vm::prepare`] until it is given back.
    pub fn is_pooled(&self) -> bool {
        self.life().ram.pooled().is_some()
    }

    /// Says whether `address` is in a block of a pool that it has. As [`Vm::is_pooled`].
    pub fn has_block(&self, address: u64) -> bool {
        self.life().ram.has(address)
    }

    /// Gives the whole blocks of these parts of its memory back to the pool that they came from, but those that the hypervisor keeps addresses of; returns how
    /// many. For who came out last in a pause, while all vCPUs are out, when no service reaches these blocks any more.
    pub fn give_back(&self, parts: &[Range<u64>]) -> u64 {
        // No vCPU enters its guest before it has another ASID: so it uses no translation that its CPU still has.
        // SAFETY: the caller's promise; and what is kept of addresses beyond an exit is pinned, or forgotten with the ASID.
        unsafe { self.life().ram.give_back(parts, || self.raise_all(Reasons::FLUSH)) }
    }

    /// Says whether its guest is offered a feature of KVM's interface.
    #[inline]
    pub fn offers(&self, feature: u32) -> bool {
        self.kvm.is_some_and(|features| features & feature != 0)
    }

    /// Reads a word of its RAM; `None` outside. For exits of its vCPUs.
    pub fn read_word(&self, address: u64) -> Option<u16> {
        let mut bytes = [0; 2];
        let host = self.life().ram.host(address, bytes.len() as u64)?;
        // SAFETY: RAM of this VM, which runs.
        unsafe { user::copy_from(host, &mut bytes) };
        Some(u16::from_le_bytes(bytes))
    }
}

impl Deref for Vm {
    type Target = turnstile_arch_common::vm::Vm<Vcpu>;

    #[inline(always)] // The same address, but for an offset.
    fn deref(&self) -> &Self::Target {
        &self.common
    }
}

/// Leads from no address that a guest can name to a place in a doorbell's area, which has a page at most.
const ASTRAY: u64 = 1 << 63;

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
    /// Whether the 8254 rings by its timer: written and read where it is resident.
    has_8254: AtomicBool,
    owned: UnsafeCell<Owned>,
    bell: UnsafeCell<Bell>,
    /// What leads from an address to a place in its area: [`ASTRAY`] if none is remembered. Others make it that when a device has moved.
    bell_way: AtomicU64,
    /// What CPUID answers to it.
    pub cpuid: CpuidTable,
    /// What its exits cost, if its VM keeps statistics: its CPU adds, anybody reads.
    pub statistics: Option<&'static Page>,
    vmcb: *mut Vmcb,
    /// Where its state goes on an exit that does without techniques.
    #[cfg(feature = "ablation")]
    saved: UnsafeCell<Saved>,
    facilities: UnsafeCell<State>,
    /// What it has if it shares CPUs with others; `None` if it is pinned.
    pub thread: Option<Thread>,
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
            has_8254: AtomicBool::new(false),
            owned: UnsafeCell::new(Owned::new(index, vm.x2apic, vm.offers(feature::POLL_CONTROL))),
            bell: UnsafeCell::new(Bell::NONE),
            bell_way: AtomicU64::new(ASTRAY),
            cpuid: CpuidTable::compose(&cpu::cpuid, &vm.processor(index)),
            statistics: vm.statistics.then(new_page),
            #[cfg(feature = "ablation")]
            saved: Default::default(),
            vmcb: Box::leak(Vmcb::boxed()),
            facilities: UnsafeCell::default(),
            thread,
        }
    }

    /// Says whether the 8254 of its VM rings by its timer: the first vCPU's, while that is on.
    #[inline(always)] // One load.
    pub fn has_8254(&self) -> bool {
        self.has_8254.load(Ordering::Relaxed)
    }

    /// The vCPU is on from now on, or off.
    pub fn set_on(&self, on: bool) {
        self.has_8254.store(on && self.index == 0, Ordering::Relaxed);
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
    /// Only on the physical CPU that last ran the vCPU, and only in functions of `vcpu::facility`, which do not keep it.
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

    /// Returns the doorbell that it has rung last, under the same contract as [`Vcpu::owned`]: it is not kept beyond
    /// [`Vcpu::set_bell`].
    #[inline(always)] // An address computation.
    pub fn bell(&self) -> &Bell {
        // SAFETY: only the CPU where the vCPU is resident gets here, and changes it in `set_bell` alone.
        unsafe { &*self.bell.get() }
    }

    /// Returns the place of a store in the area of that doorbell, and its service; under the same contract. HOT.
    #[inline(always)] // Three instructions of each access to what is no RAM.
    pub fn bell_at(&self, address: u64) -> Option<(u64, &'static Service)> {
        // Relaxed: who has made others forget it meanwhile has not told the guest that a device has moved.
        self.bell().at(address.wrapping_add(self.bell_way.load(Ordering::Relaxed)))
    }

    /// Remembers the doorbell that it has rung; under the same contract. The caller makes sure that the device is there, afterwards.
    pub fn set_bell(&self, bell: Bell) {
        let way = bell.way();
        self.bell_way.store(ASTRAY, Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { *self.bell.get() = bell };
        self.bell_way.store(way, Ordering::Relaxed);
        // Before the caller looks where the device is: either it finds that the device has moved, or who moves it, who has the same
        // order in `forget_bell`, finds what is stored here.
        fence(Ordering::SeqCst);
    }

    /// Remembers no doorbell any more: any CPU may say so, after it has moved a device.
    pub fn forget_bell(&self) {
        fence(Ordering::SeqCst);
        self.bell_way.store(ASTRAY, Ordering::Relaxed);
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
