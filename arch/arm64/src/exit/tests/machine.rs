// SPDX-License-Identifier: Apache-2.0 OR MIT
//! VMs and CPUs for tests.

use std::sync::atomic::Ordering;

use turnstile_arch_common::mmio::Registers;
use turnstile_machine::GuestMachine;
use turnstile_vgic::{Context, Host, Model, RemoteOp, VcpuGic, Vgic, VgicConfig, VirtualInterface};
use turnstile_vm::lifecycle::OnCrash;
use turnstile_vm::psci::Start;

use super::*;
use crate::boot::area::Area;
use crate::cpu::PerCpu;
use crate::irq::Gic;
use crate::irq::gicv3::kick_token;
use crate::state::pmu::Kind;
use crate::vm::{Vm, VmParts};

/// Does at once what is asked of another vCPU: there is no other CPU that would.
struct AtOnce(&'static Vm);

impl Host for AtOnce {
    fn post(&self, _: usize, _: u32) {}

    fn is_resident(&self, _: usize) -> bool {
        true
    }

    fn remote<V: VirtualInterface>(&self, _: &mut VcpuGic, vif: &mut V, vcpu: usize, op: RemoteOp) -> u64 {
        // SAFETY: the test has one thread, and the caller holds another vCPU.
        let owned = unsafe { self.0.vcpus()[vcpu].owned() };
        owned.gic.apply(&mut Context { vgic: &self.0.vgic, vif, host: self }, op)
    }
}

/// A VM of `vcpus` vCPUs, each on a CPU of its own; the test's thread is the CPU of vCPU 0.
pub(crate) fn machine(vcpus: usize, pmu: bool) -> (&'static Vm, Frame) {
    machine_with(vcpus, pmu, false)
}

pub(super) fn machine_with(vcpus: usize, pmu: bool, statistics: bool) -> (&'static Vm, Frame) {
    machine_of::<Gicv3>(Model::Gicv3, vcpus, pmu, statistics)
}

pub(super) fn machine_of<G: Gic>(
    model: Model,
    vcpus: usize,
    pmu: bool,
    statistics: bool,
) -> (&'static Vm, Frame) {
    fakes::reset();
    fakes::set("ICH_VTR_EL2", 4 << 29 | 4 << 26 | 3);
    fakes::set("ICH_ELRSR_EL2", 0xf);
    fakes::set("ID_AA64ISAR0_EL1", 0x1234_0000);
    let vm = vm_of(model, vcpus, if pmu { Kind::Trapped } else { Kind::Off }, false, statistics);
    fakes::set("TPIDR_EL2", core::ptr::from_ref(vm.vcpus()[0].cpu) as u64);
    run::<G>(vm);
    (vm, Frame::new(vm.vcpus()[0], light::aborts(vm.vcpus()[0])))
}

/// The area of a CPU.
pub(crate) fn cpu_area(index: usize) -> &'static PerCpu {
    let affinity = index as u64;
    // SAFETY: memory of the size of a redistributor, for ever.
    let redistributor = unsafe { Registers::new(vec![0u64; 0x4000].leak().as_ptr() as u64) };
    let cpu = Area::new(index, affinity, [0; 2], redistributor).settle();
    cpu.set_kick_token(kick_token(affinity));
    cpu.online.store(true, Ordering::Relaxed);
    cpu
}

/// Makes a VM of `vcpus` vCPUs, each on a CPU of its own.
pub(crate) fn vm_of(model: Model, vcpus: usize, pmu: Kind, sve: bool, statistics: bool) -> &'static Vm {
    numbered_vm_of(0, model, vcpus, pmu, sve, statistics)
}

/// [`vm_of`] with a number of its own.
pub(crate) fn numbered_vm_of(
    id: u8,
    model: Model,
    vcpus: usize,
    pmu: Kind,
    sve: bool,
    statistics: bool,
) -> &'static Vm {
    vm_with(parts_of(id, model, vcpus, pmu, sve, statistics))
}

pub(super) fn parts_of(
    id: u8,
    model: Model,
    vcpus: usize,
    pmu: Kind,
    sve: bool,
    statistics: bool,
) -> VmParts {
    let mpidrs: Vec<u64> = (0..vcpus as u64).collect();
    let config = VgicConfig { model, mpidrs: &mpidrs, spis: 96, priority_bits: 5, group1_at_reset: true };
    VmParts {
        id,
        name: "test".into(),
        machine: GuestMachine::Virt,
        on_crash: OnCrash::Stop,
        pmu,
        sve,
        statistics,
        vgic: Vgic::new(&config).expect("a valid configuration"),
        memory: 64 << 20,
        flash: 4 << 20,
        virtio: 0,
        stolen_time: None,
    }
}

pub(super) fn vm_with(parts: VmParts) -> &'static Vm {
    let vm: &'static Vm = Box::leak(Box::new(Vm::new(parts)));
    let all = (0..vm.vgic.vcpus()).map(|n| &*Box::leak(Box::new(Vcpu::new(vm, n, cpu_area(n), None))));
    vm.set_vcpus(all.collect());
    vm
}

/// Brings a VM into the state in which its guest sends SGIs.
fn run<G: Gic>(vm: &'static Vm) {
    vm.psci.reset(Start { entry: 0x4000_0000, context: 0 });
    vm.lifecycle.start();
    for vcpu in vm.vcpus() {
        vcpu.attention.load(vcpu.cpu.kick_token());
        // SAFETY: nobody else uses the vCPU.
        let owned = unsafe { vcpu.owned() };
        let mut cx = Context { vgic: &vm.vgic, vif: &mut G::interface(), host: &AtOnce(vm) };
        owned.gic.load(&mut cx);
        // Groups on, SGIs enabled: what a guest does first.
        owned.gic.dist_write(&mut cx, 0, 4, 3);
        if vm.vgic.model() == Model::Gicv3 {
            owned.gic.redist_write(&mut cx, vcpu.index, 0x1_0100, 4, !0);
        } else {
            owned.gic.dist_write(&mut cx, 0x100, 4, !0);
        }
        vcpu.attention.take();
        vcpu.inbox.clear();
    }
    fakes::set("ELR_EL2", 0x4000_0000);
    fakes::take_log();
}
