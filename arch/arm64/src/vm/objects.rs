// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A virtual machine and its vCPUs. A vCPU has what others may touch (atomics), and what belongs to the physical CPU where it
//! is resident.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::cell::UnsafeCell;
use core::ops::{Deref, Range};
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use spin::Once;
use turnstile_arch_common::demand::Touch;
use turnstile_exitstat::Page;
use turnstile_machine::map::Region;
use turnstile_machine::{Gicr, GuestMachine};
use turnstile_vgic::{MAX_VCPUS, Model, Neighbors, SgiRegister, VcpuGic, Vgic};
use turnstile_vm::attention::{Attention, Reasons};
use turnstile_vm::inbox::Inbox;
use turnstile_vm::lifecycle::{OnCrash, Phase};
use turnstile_vm::psci::Psci;
use turnstile_vm::remote::RemoteCell;

use super::thread::Thread;
use crate::board::mitigation;
use crate::cpu::{PerCpu, regs};
use crate::irq::{self, VectorsKind};
use crate::memory::demand::{Demand, Later};
use crate::memory::flash::Flash;
use crate::service::Services;
use crate::state::facilities::State;
use crate::state::idregs::{self, IdRegisters, Offer};
#[cfg(feature = "ablation")]
use crate::state::naive::Saved;
use crate::state::{common, pmu};

/// The vCPUs of a VM by number.
type VcpuTable = [Option<&'static Vcpu>; MAX_VCPUS];

const _: () = assert!(MAX_VCPUS.is_power_of_two());

/// The heap has room for as many vCPUs as there may be, all with statistics, and as much again for the rest.
const _: () = {
    let each = size_of::<Vcpu>().next_power_of_two() + size_of::<Page>().next_power_of_two();
    assert!(2 * (MAX_VCPUS * each) as u64 <= turnstile_arch_common::memory::HEAP);
};

/// The table of a VM that has no vCPUs yet.
static NOBODY: VcpuTable = [None; MAX_VCPUS];

/// A virtual machine. It exists from boot on; what changes from life to life is its memory and its state.
pub struct Vm {
    /// What every VM has; its VMID is one more than its number.
    common: turnstile_arch_common::vm::Vm<Vcpu>,
    /// Which board it looks like.
    pub machine: GuestMachine,
    /// What it has besides what all CPUs have.
    pub offer: Offer,
    /// The ID registers it sees.
    pub id_registers: IdRegisters,
    /// The emulated distributor.
    pub vgic: Vgic,
    /// Power states of its vCPUs.
    pub psci: Psci,
    /// Guest physical addresses of the distributor.
    pub gicd: Region,
    /// Guest physical addresses of all redistributors; none with a GICv2.
    pub gicr: Gicr,
    /// The second page of a GICv2's CPU interface, which is not the hardware's: it has `GICV_DIR` alone, and the
    /// model has to know of that. None with a GICv3.
    pub gicv_dir: Region,
    /// From this guest physical address on there is nothing: neither memory nor a device.
    pub beyond: u64,
    /// Its RAM, if that is mapped on demand.
    pub demand: Demand,
    /// Its flash.
    pub flash: Flash,
    /// How many virtio devices it has behind MMIO.
    pub virtio: usize,
    /// Its vCPUs by number, for SGIs: one load without a check of bounds.
    table: AtomicPtr<VcpuTable>,
    vtcr: AtomicU64,
    vttbr: AtomicU64,
    cntvoff: AtomicU64,
    /// What services are to it.
    services: Once<Services>,
}

/// Offset of `GICV_DIR` in a GICv2's CPU interface, and the size of its page.
const GICV_DIR: u64 = 0x1000;

/// What a VM is made from.
pub struct VmParts {
    /// Its number in the bundle.
    pub id: u8,
    /// Its name.
    pub name: String,
    /// See [`Vm::machine`].
    pub machine: GuestMachine,
    /// What to do when the guest crashes.
    pub on_crash: OnCrash,
    /// Its PMU.
    pub pmu: pmu::Kind,
    /// Whether it has SVE, if all CPUs have it.
    pub sve: bool,
    /// Whether its vCPUs keep statistics of their exits.
    pub statistics: bool,
    /// See [`Vm::vgic`].
    pub vgic: Vgic,
    /// Bytes of memory.
    pub memory: u64,
    /// Bytes of each bank of flash.
    pub flash: u64,
    /// See [`Vm::virtio`].
    pub virtio: usize,
    /// Where the records of stolen time are, if its vCPUs share CPUs.
    pub stolen_time: Option<u64>,
}

impl Vm {
    /// Makes a VM that has never run.
    pub fn new(parts: VmParts) -> Self {
        let vcpus = parts.vgic.vcpus();
        let gicv2 = parts.vgic.model() == Model::Gicv2;
        let map = parts.machine.map();
        let sve = parts.sve && common::vector_length() != 0;
        let offer = Offer { gicv3: !gicv2, pmu: parts.pmu, sve, pauth: common::has_pauth() };
        let ram = map.ram(parts.memory);
        let gicr = map.gicr(if gicv2 { 0 } else { vcpus }, parts.memory);
        // All other devices lie below the RAM.
        let beyond = gicr.regions().map(|region| region.end()).fold(ram.end(), u64::max);
        let affinities = (0..vcpus).filter_map(|n| parts.vgic.mpidr(n)).collect::<Vec<_>>();
        let psci = Psci::new(affinities, ram.base..ram.end()).with_workarounds(mitigation::answers());
        Self {
            common: turnstile_arch_common::vm::Vm::new(
                parts.id,
                parts.name,
                parts.on_crash,
                parts.statistics,
                vcpus,
            ),
            machine: parts.machine,
            offer,
            id_registers: idregs::compose_all(offer),
            vgic: parts.vgic,
            psci: match parts.stolen_time {
                Some(base) => psci.with_stolen_time(base),
                None => psci,
            },
            gicd: map.gicd,
            gicr,
            gicv_dir: Region { base: map.gicc.base + GICV_DIR, size: if gicv2 { GICV_DIR } else { 0 } },
            beyond,
            demand: Demand::new(ram),
            flash: Flash::new(parts.machine, parts.flash),
            virtio: parts.virtio,
            table: AtomicPtr::new((&raw const NOBODY).cast_mut()),
            vtcr: AtomicU64::new(0),
            vttbr: AtomicU64::new(0),
            cntvoff: AtomicU64::new(0),
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

    /// Gives the VM its vCPUs, once.
    pub fn set_vcpus(&self, vcpus: Vec<&'static Vcpu>) {
        let mut table = Box::new([None; MAX_VCPUS]);
        table.iter_mut().zip(&vcpus).for_each(|(place, vcpu)| *place = Some(*vcpu));
        // Release: who finds the table finds it filled.
        self.table.store(Box::leak(table), Ordering::Release);
        self.common.set_vcpus(vcpus);
    }

    /// Returns vCPU `index`.
    #[inline(always)] // Two loads on the path of every SGI.
    pub fn vcpu(&self, index: usize) -> Option<&'static Vcpu> {
        // Relaxed: the table is set before any vCPU can run, and what it holds is reached by data dependency.
        let table = self.table.load(Ordering::Relaxed);
        // SAFETY: a table that lives for ever: NOBODY, or the one that `set_vcpus` leaked and nobody writes again.
        let table: &VcpuTable = unsafe { &*table };
        if index < MAX_VCPUS { table[index] } else { None }
    }

    /// Returns vCPU `index` of a number that is known to be one of its: a check less.
    #[inline(always)] // As above.
    pub fn member(&self, index: usize) -> Option<&'static Vcpu> {
        self.vcpu(index & (MAX_VCPUS - 1))
    }

    /// Sets the stage 2 tables of the VM's next life: VTCR_EL2, VTTBR_EL2 without the VMID, and where its RAM is that is mapped when it
    /// is touched. Its virtual counter starts from zero. Nothing if the VM runs.
    pub fn prepare(&self, vtcr: u64, tables: u64, later: Later) {
        if matches!(self.lifecycle.phase(), Phase::Running | Phase::Stopping(_)) {
            return;
        }
        let vmid = u64::from(self.id) + 1;
        // SAFETY: no vCPU runs; the CPU of the first vCPU alone gets here, shows the memory to services and starts the VM afterwards.
        unsafe { self.demand.prepare(tables, later) };
        self.vtcr.store(vtcr, Ordering::Relaxed);
        self.vttbr.store(tables | vmid << 48, Ordering::Relaxed);
        self.cntvoff.store(regs::CNTPCT_EL0.read(), Ordering::Relaxed);
    }

    /// Returns what makes a vCPU of the VM resident.
    #[inline] // Of each switch.
    pub fn residence(&self) -> Residence {
        Residence {
            vtcr: self.vtcr.load(Ordering::Relaxed),
            vttbr: self.vttbr.load(Ordering::Relaxed),
            cntvoff: self.cntvoff(),
        }
    }

    /// Returns what is subtracted from the physical counter.
    #[inline] // Of each switch.
    pub fn cntvoff(&self) -> u64 {
        self.cntvoff.load(Ordering::Relaxed)
    }

    /// Clears and maps the block that a service of the VM has touched, as at a touch of its own; returns where it is. From [`Vm::prepare`]
    /// until its memory is given back.
    ///
    /// # Errors
    /// What has become of the touch, if it is not mapped yet.
    pub fn reach(&self, address: u64) -> Result<u64, Touch> {
        self.demand.reach(address)
    }

    /// Says whether its memory comes from a pool. From [`Vm::prepare`] until it is given back.
    pub fn is_pooled(&self) -> bool {
        self.demand.is_pooled()
    }

    /// Says whether `address` is in a block of a pool that it has. As [`Vm::is_pooled`].
    pub fn has_block(&self, address: u64) -> bool {
        self.demand.has(address)
    }

    /// Gives the whole blocks of these parts of its memory back to the pool that they came from; returns how many. For who came out last in a pause, while all
    /// vCPUs are out, when no service reaches these blocks any more.
    pub fn give_back(&self, parts: &[Range<u64>]) -> u64 {
        // SAFETY: the caller's promise. EL2 keeps no addresses of the memory of guests.
        unsafe { self.demand.give_back(parts) }
    }

    /// The VM was paused for so many ticks, of which its virtual counter shows nothing. Only while all its vCPUs are out of their
    /// guests: each loads the offset before it goes on.
    pub fn stood_still(&self, ticks: u64) {
        self.cntvoff.fetch_add(ticks, Ordering::Relaxed);
    }

    /// Forgets every interrupt, for a new life. Only while no vCPU runs.
    pub fn reset_interrupts(&self) {
        for vcpu in self.vcpus() {
            vcpu.inbox.clear();
            vcpu.attention.take_only(Reasons::SGIS);
        }
        self.vgic.reset();
    }
}

/// What the vCPUs of a VM need in EL2 registers to be resident.
#[derive(Clone, Copy, Debug)]
pub struct Residence {
    /// Stage 2 control.
    pub vtcr: u64,
    /// Stage 2 tables and VMID.
    pub vttbr: u64,
    /// Subtracted from the physical counter.
    pub cntvoff: u64,
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
    /// Why it must look before it enters its guest. First: the light path loads it on every exit.
    pub attention: Attention,
    /// Its VM.
    pub vm: &'static Vm,
    /// Its number in the VM.
    pub index: usize,
    /// What it writes to ICC_SGI1R_EL1 for an SGI to itself alone, without the INTID.
    pub own_sgi: u64,
    /// [`Vm::id_registers`].
    pub id_registers: &'static IdRegisters,
    /// Whether its PMU is a trapped one. Beside [`Vm::offer`], which says so too: light exits want one load and one branch.
    pub pmu: bool,
    /// By which vectors its exits come. Beside what leaves room for it.
    pub vectors: VectorsKind,
    /// Whom its SGIs usually name.
    pub neighbors: Neighbors<'static>,
    /// Interrupts posted by others.
    pub inbox: Inbox,
    /// Operations asked for by others.
    pub remote: RemoteCell,
    // Before what is large: light exits reach it with one instruction.
    facilities: UnsafeCell<State>,
    owned: UnsafeCell<Owned>,
    /// What its exits cost, if its VM keeps statistics: its CPU adds, anybody reads. Behind what light exits use, which
    /// lies as if there were none.
    pub statistics: Option<&'static Page>,
    /// Its MPIDR_EL1.
    pub vmpidr: u64,
    /// The physical CPU it is pinned to, or where it begins.
    pub cpu: &'static PerCpu,
    /// What it has if it shares CPUs with others; `None` if it is pinned.
    pub thread: Option<Thread>,
    /// Where its registers go on an exit that does without techniques. Last, so that nothing else moves.
    #[cfg(feature = "ablation")]
    saved: UnsafeCell<Saved>,
}

/// The part of a vCPU that only its physical CPU touches.
pub struct Owned {
    /// Its interrupts.
    pub gic: VcpuGic,
}

// SAFETY: everything shared is atomic; `owned` is reached only through `Vcpu::owned`, whose contract is that
// only the CPU where the vCPU is resident calls it, and `facilities` so by the CPU that last ran it.
unsafe impl Sync for Vcpu {}
// SAFETY: the owned part may be handed to the CPU that runs the vCPU.
unsafe impl Send for Vcpu {}

impl Vcpu {
    /// Makes vCPU `index` of `vm`, pinned to `cpu`; or a thread that begins there.
    pub fn new(vm: &'static Vm, index: usize, cpu: &'static PerCpu, thread: Option<Thread>) -> Self {
        let encode = irq::encoding(vm.vgic.model());
        let mut gic = VcpuGic::new(&vm.vgic, index, irq::list_registers(), encode);
        if !irq::backs_list_registers() {
            gic.without_hardware_backing();
        }
        Self {
            attention: Attention::new(),
            vm,
            index,
            own_sgi: SgiRegister::naming(vm.vgic.mpidr(index).unwrap_or(0)),
            neighbors: vm.vgic.neighbors(index),
            id_registers: &vm.id_registers,
            pmu: vm.offer.pmu == pmu::Kind::Trapped,
            cpu,
            inbox: Inbox::new(),
            remote: RemoteCell::new(),
            owned: UnsafeCell::new(Owned { gic }),
            statistics: vm.statistics.then(|| &*Box::leak(Box::new(Page::new(regs::CNTFRQ_EL0.read())))),
            facilities: UnsafeCell::new(State::new(&vm.offer)),
            vmpidr: vm.vgic.mpidr(index).unwrap_or(0) | 1 << 31,
            vectors: VectorsKind::new(vm.vgic.model(), vm.statistics),
            thread,
            #[cfg(feature = "ablation")]
            saved: Default::default(),
        }
    }

    /// Returns the part that belongs to this CPU.
    ///
    /// # Safety
    /// Only on the physical CPU where the vCPU is resident, and only once at a time: exit handlers take it at
    /// their top and pass it down; interrupts are masked, so no other handler runs meanwhile.
    #[inline(always)] // An address computation on the light path.
    #[allow(clippy::mut_from_ref, reason = "the contract above makes the reference unique")]
    pub unsafe fn owned(&self) -> &mut Owned {
        // SAFETY: unique by the contract.
        unsafe { &mut *self.owned.get() }
    }
}

impl Vcpu {
    /// Returns what it has of facilities. Apart from [`Vcpu::owned`], because the next vCPU on its CPU stores into it.
    ///
    /// # Safety
    /// Only on the physical CPU that last ran the vCPU, and only as long as nobody else looks: in an exit handler
    /// between two calls, or in a function of `vcpu::facility`.
    #[inline(always)] // An address computation on the light path.
    #[allow(clippy::mut_from_ref, reason = "the contract makes the reference unique")]
    pub unsafe fn facilities(&self) -> &mut State {
        // SAFETY: unique by the contract.
        unsafe { &mut *self.facilities.get() }
    }
}

#[cfg(feature = "ablation")]
impl Vcpu {
    /// Returns where its registers go on an exit that does without techniques.
    ///
    /// # Safety
    /// As for [`Vcpu::owned`].
    #[inline(always)] // An address computation.
    #[allow(clippy::mut_from_ref, reason = "the contract makes the reference unique")]
    pub unsafe fn saved(&self) -> &mut Saved {
        // SAFETY: unique by the contract.
        unsafe { &mut *self.saved.get() }
    }
}
