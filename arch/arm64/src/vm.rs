// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A virtual machine and its vCPUs, as exits see them.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::marker::PhantomData;
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use spin::Once;
use turnstile_exitstat::Page;
use turnstile_machine::map::Region;
use turnstile_machine::{Gicr, GuestMachine};
use turnstile_vgic::{Context, Host, MAX_VCPUS, Model, RemoteOp, VcpuGic, Vgic, VirtualInterface};
use turnstile_vm::attention::{Posted, Reasons};
use turnstile_vm::lifecycle::{Lifecycle, OnCrash, Stop};
use turnstile_vm::psci::Psci;

use crate::cpu;
use crate::demand::Demand;
use crate::facility::{common, pmu};
use crate::idregs::{self, IdRegisters, Offer};
use crate::irq::{Gic, in_gic};
use crate::sched::{self, On};
use crate::switch::Residence;
use crate::vcpu::{Vcpu, serve_remote};

/// The vCPUs of a VM by number.
type VcpuTable = [Option<&'static Vcpu>; MAX_VCPUS];

/// The table of a VM that has no vCPUs yet.
static NOBODY: VcpuTable = [None; MAX_VCPUS];

/// A virtual machine. It exists from boot on; what changes from life to life is its memory and its state.
pub struct Vm {
    /// Its number in the bundle; its VMID is one more.
    pub id: u8,
    /// Its name.
    pub name: String,
    /// Which board it looks like.
    pub machine: GuestMachine,
    /// What to do when the guest crashes.
    pub on_crash: OnCrash,
    /// Whether its PMU is a trapped one. Beside `offer`, which says so too: light exits want one load and one branch.
    pub pmu: bool,
    /// What it has besides what all CPUs have.
    pub offer: Offer,
    /// Whether its vCPUs keep statistics of their exits.
    pub statistics: bool,
    /// The ID registers it sees.
    pub id_registers: IdRegisters,
    /// The emulated distributor.
    pub vgic: Vgic,
    /// Power states of its vCPUs.
    pub psci: Psci,
    /// Start, stop and restart.
    pub lifecycle: Lifecycle,
    /// Guest physical addresses of the distributor.
    pub gicd: Region,
    /// Guest physical addresses of all redistributors; none with a GICv2.
    pub gicr: Gicr,
    /// The second page of a GICv2's CPU interface, which is not the hardware's: it has `GICV_DIR` alone, and the
    /// model has to know of that. None with a GICv3.
    pub gicv_dir: Region,
    /// Its RAM, if that is mapped on demand.
    pub demand: Demand,
    vcpus: Once<Vec<&'static Vcpu>>,
    /// The same by number, for SGIs: one load without a check of bounds.
    table: AtomicPtr<VcpuTable>,
    vtcr: AtomicU64,
    vttbr: AtomicU64,
    cntvoff: AtomicU64,
}

/// Offset of `GICV_DIR` in a GICv2's CPU interface, and the size of its page.
const GICV_DIR: u64 = 0x1000;

/// What a VM is made from.
pub struct VmParts {
    /// See [`Vm::id`].
    pub id: u8,
    /// See [`Vm::name`].
    pub name: String,
    /// See [`Vm::machine`].
    pub machine: GuestMachine,
    /// See [`Vm::on_crash`].
    pub on_crash: OnCrash,
    /// Its PMU.
    pub pmu: pmu::Kind,
    /// Whether it has SVE, if all CPUs have it.
    pub sve: bool,
    /// See [`Vm::statistics`].
    pub statistics: bool,
    /// See [`Vm::vgic`].
    pub vgic: Vgic,
    /// Bytes of memory.
    pub memory: u64,
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
        let affinities = (0..vcpus).filter_map(|n| parts.vgic.mpidr(n)).collect::<Vec<_>>();
        let psci = Psci::new(affinities, ram.base..ram.end()).with_workarounds(crate::mitigation::answers());
        Self {
            id: parts.id,
            name: parts.name,
            machine: parts.machine,
            on_crash: parts.on_crash,
            pmu: parts.pmu == pmu::Kind::Trapped,
            offer,
            statistics: parts.statistics,
            id_registers: idregs::compose_all(offer),
            vgic: parts.vgic,
            psci: match parts.stolen_time {
                Some(base) => psci.with_stolen_time(base),
                None => psci,
            },
            lifecycle: Lifecycle::new(vcpus as u32),
            gicd: map.gicd,
            gicr: map.gicr(if gicv2 { 0 } else { vcpus }, parts.memory),
            gicv_dir: Region { base: map.gicc.base + GICV_DIR, size: if gicv2 { GICV_DIR } else { 0 } },
            demand: Demand::new(ram),
            vcpus: Once::new(),
            table: AtomicPtr::new((&raw const NOBODY).cast_mut()),
            vtcr: AtomicU64::new(0),
            vttbr: AtomicU64::new(0),
            cntvoff: AtomicU64::new(0),
        }
    }

    /// Gives the VM its vCPUs, once.
    pub fn set_vcpus(&self, vcpus: Vec<&'static Vcpu>) {
        let mut table = Box::new([None; MAX_VCPUS]);
        table.iter_mut().zip(&vcpus).for_each(|(place, vcpu)| *place = Some(*vcpu));
        // Release: who finds the table finds it filled.
        self.table.store(Box::leak(table), Ordering::Release);
        self.vcpus.call_once(|| vcpus);
    }

    /// Returns the vCPUs.
    pub fn vcpus(&self) -> &[&'static Vcpu] {
        self.vcpus.get().map_or(&[], Vec::as_slice)
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

    /// Sets the stage 2 tables of the VM's next life: VTCR_EL2, VTTBR_EL2 without the VMID, and where its RAM is if that is
    /// mapped on demand. Its virtual counter starts from zero.
    pub fn prepare(&self, vtcr: u64, tables: u64, on_demand: Option<u64>) {
        let vmid = u64::from(self.id) + 1;
        self.demand.prepare(tables, on_demand);
        self.vtcr.store(vtcr, Ordering::Relaxed);
        self.vttbr.store(tables | vmid << 48, Ordering::Relaxed);
        self.cntvoff.store(crate::regs::CNTPCT_EL0.read(), Ordering::Relaxed);
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

    /// Raises `reasons` with every vCPU, kicking those that may be in the guest.
    pub fn raise_all(&self, reasons: Reasons) {
        for vcpu in self.vcpus() {
            vcpu.post(reasons);
        }
    }

    /// Runs `f` with what operations on its vCPUs' interrupts need.
    #[inline(always)] // Three addresses.
    pub fn with_gic<G: Gic, R>(
        &self,
        f: impl FnOnce(&mut Context<'_, G::Interface, Peers<'_, G>>) -> R,
    ) -> R {
        f(&mut Context { vgic: &self.vgic, vif: &mut G::interface(), host: &Peers::new(self) })
    }

    /// Sets the level of the input line of an SPI.
    pub fn set_spi_line(&self, intid: u32, high: bool) {
        fn set<G: Gic>(vm: &Vm, intid: u32, high: bool) {
            vm.vgic.set_spi_line(&Peers::<G>::new(vm), intid, high);
        }
        in_gic!(set(self, intid, high));
    }

    /// Forgets every interrupt, for a new life. Only while no vCPU runs.
    pub fn reset_interrupts(&self) {
        for vcpu in self.vcpus() {
            vcpu.inbox.clear();
            vcpu.attention.take_only(Reasons::SGIS);
        }
        self.vgic.reset();
    }

    /// Forgets what its exits cost, for a new life. Only while no vCPU runs: [`Reasons::START`] lets them write again.
    pub fn reset_statistics(&self) {
        self.vcpus().iter().filter_map(|vcpu| vcpu.statistics).for_each(Page::clear);
    }

    /// Begins to stop the VM, if it runs.
    pub fn stop(&self, reason: Stop) {
        if self.lifecycle.begin_stop(reason) {
            self.raise_all(Reasons::STOP);
        }
    }
}

/// The way from one vCPU, or from the hypervisor itself, to the vCPUs of a VM.
pub struct Peers<'a, G> {
    vm: &'a Vm,
    gic: PhantomData<G>,
}

impl<'a, G: Gic> Peers<'a, G> {
    /// Makes the way to the vCPUs of `vm`.
    #[inline(always)] // Nothing.
    pub fn new(vm: &'a Vm) -> Self {
        Self { vm, gic: PhantomData }
    }
}

impl<G: Gic> Host for Peers<'_, G> {
    #[inline] // On the light exit of an SGI.
    fn post(&self, vcpu: usize, intid: u32) {
        let Some(target) = self.vm.vcpu(vcpu) else { return };
        let posted = match intid {
            0..16 => target.attention.post(Reasons::sgi(intid)),
            _ => target.inbox.post(&target.attention, intid),
        };
        target.notify::<G>(posted);
    }

    fn remote<V: VirtualInterface>(&self, me: &mut VcpuGic, vif: &mut V, vcpu: usize, op: RemoteOp) -> u64 {
        let (Some(target), Some(own)) = (self.vm.vcpu(vcpu), self.vm.vcpu(me.index())) else { return 0 };
        if let Some(result) = sched::operate::<G>(target, op) {
            return result;
        }
        target.remote.call(
            &target.attention,
            Wire(op),
            |posted| target.notify::<G>(posted),
            || {
                serve_remote::<G>(own, me, vif);
                sched::serve_absent::<G>(target);
                cpu::relax();
            },
        )
    }
}

/// A [`RemoteOp`] on its way through a [`turnstile_vm::remote::RemoteCell`].
pub struct Wire(pub RemoteOp);

impl From<Wire> for [u64; 4] {
    fn from(wire: Wire) -> Self {
        match wire.0 {
            RemoteOp::RedistRead { offset, size } => [0, offset.into(), size.into(), 0],
            RemoteOp::RedistWrite { offset, size, value } => [1, offset.into(), size.into(), value],
            RemoteOp::State { block } => [2, block.into(), 0, 0],
            RemoteOp::Recall { intid } => [3, intid.into(), 0, 0],
            RemoteOp::ClearPending { intid } => [4, intid.into(), 0, 0],
            RemoteOp::Activate { intid } => [5, intid.into(), 0, 0],
            RemoteOp::Deactivate { intid } => [6, intid.into(), 0, 0],
            RemoteOp::GroupsChanged => [7, 0, 0, 0],
        }
    }
}

impl From<[u64; 4]> for Wire {
    fn from([kind, a, b, c]: [u64; 4]) -> Self {
        let intid = a as u32;
        Wire(match kind {
            0 => RemoteOp::RedistRead { offset: a as u32, size: b as u8 },
            1 => RemoteOp::RedistWrite { offset: a as u32, size: b as u8, value: c },
            2 => RemoteOp::State { block: a as u32 },
            3 => RemoteOp::Recall { intid },
            4 => RemoteOp::ClearPending { intid },
            5 => RemoteOp::Activate { intid },
            6 => RemoteOp::Deactivate { intid },
            _ => RemoteOp::GroupsChanged,
        })
    }
}

impl Vcpu {
    /// Does what a post to this vCPU's attention word demands. A kick is spared where the vCPU is resident on the
    /// calling CPU, which looks before it enters a guest anyway.
    #[inline] // On the path of every cross-CPU interrupt.
    pub fn notify<G: Gic>(&self, posted: Posted) {
        match posted {
            Posted::Kick(token) if token != cpu::this().kick_token() => G::kick(token),
            Posted::Kick(_) | Posted::Seen => {}
            Posted::Wake => sched::wake::<On<G>>(self),
        }
    }

    /// The same for a poster that is another vCPU in an exit: this one is not resident on the calling CPU.
    #[inline(always)] // Once per target of an SGI.
    pub fn notify_other<G: Gic>(&self, posted: Posted) {
        match posted {
            Posted::Seen => {}
            Posted::Kick(token) => G::kick(token),
            Posted::Wake => sched::wake::<On<G>>(self),
        }
    }

    /// Sets reasons to look, and makes the vCPU do so.
    pub fn post(&self, reasons: Reasons) {
        fn post<G: Gic>(vcpu: &Vcpu, reasons: Reasons) {
            vcpu.notify::<G>(vcpu.attention.post(reasons));
        }
        in_gic!(post(self, reasons));
    }
}
