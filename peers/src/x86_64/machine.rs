// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Builds the virtual machine: memory with the guest in it, interrupt controllers, vCPUs
//! (Linux, Documentation/virt/kvm/api.rst).

use std::sync::Arc;

use anyhow::{Context, Result};
use kvm_bindings::{
    CpuId, KVM_MAX_CPUID_ENTRIES, KVM_PIT_SPEAKER_DUMMY, kvm_pit_config, kvm_segment,
    kvm_userspace_memory_region,
};
use kvm_ioctls::{Kvm, VcpuFd, VmFd};
use turnstile_machine::pc::COM1_IRQ;
use turnstile_machine::pc::boot::{Mode, Start};
use vm_memory::{GuestAddress, GuestMemoryBackend, GuestMemoryMmap};

use super::ports::Ports;
use super::{cpuid, load};
use crate::doorbell::{self, Doorbell};
use crate::options::Options;

/// Three pages below the top of the 32-bit space that Intel's VT-x needs, and one more; no guest has memory there.
const TASK_STATE: usize = 0xfffb_d000;
const IDENTITY_MAP: u64 = 0xfffb_c000;
/// How long KVM polls before a halted vCPU gives its CPU away.
const HALT_POLL: &str = "/sys/module/kvm/parameters/halt_poll_ns";

/// CR0: protected mode, paging.
const CR0_PE: u64 = 1;
const CR0_PG: u64 = 1 << 31;
/// CR4: tables of 64-bit entries.
const CR4_PAE: u64 = 1 << 5;
/// EFER: long mode, enabled and active.
const EFER_LME: u64 = 1 << 8;
const EFER_LMA: u64 = 1 << 10;
/// RFLAGS with the bit that is always set.
const RFLAGS: u64 = 2;

/// A virtual machine, ready to run. The vCPUs come first: they must be closed before the rest.
pub struct Machine {
    /// Its vCPUs.
    pub vcpus: Vec<VcpuFd>,
    vm: Arc<VmFd>,
    size: u64,
    doorbell: Option<Doorbell>,
    _memory: GuestMemoryMmap,
}

/// Makes the machine that the options describe, with `guest` in its memory.
///
/// # Errors
/// Says what KVM, or the guest's image, does not allow.
pub fn build(options: &Options, guest: &[u8]) -> Result<Machine> {
    if options.pc.no_halt_poll {
        std::fs::write(HALT_POLL, "0").with_context(|| format!("cannot write {HALT_POLL}"))?;
    }
    let kvm = Kvm::new().context("cannot open /dev/kvm")?;
    let vm = kvm.create_vm().context("cannot create a virtual machine")?;
    vm.set_tss_address(TASK_STATE).context("cannot place the task state")?;
    vm.set_identity_map_address(IDENTITY_MAP).context("cannot place the identity map")?;
    vm.create_irq_chip().context("cannot create the interrupt controllers")?;
    let pit = kvm_pit_config { flags: KVM_PIT_SPEAKER_DUMMY, ..Default::default() };
    vm.create_pit2(pit).context("cannot create the 8254")?;
    let size = options.pc.memory << 20;
    let memory = add_memory(&vm, size)?;
    let start = load::load(&memory, options, guest)?;
    let supported =
        kvm.get_supported_cpuid(KVM_MAX_CPUID_ENTRIES).context("KVM does not say what CPUID may tell")?;
    let mut vcpus = Vec::new();
    for index in 0..options.vcpus {
        let vcpu = vm.create_vcpu(index as u64).with_context(|| format!("cannot create vCPU {index}"))?;
        let tables: CpuId = cpuid::adapt(&supported, &options.pc, index as u32);
        vcpu.set_cpuid2(&tables).with_context(|| format!("cannot set CPUID of vCPU {index}"))?;
        vcpus.push(vcpu);
    }
    if let Some(first) = vcpus.first() {
        set_registers(first, &start).context("cannot set the registers")?;
    }
    let doorbell = doorbell::connect(&vm, options)?;
    Ok(Machine { vcpus, vm: Arc::new(vm), size, doorbell, _memory: memory })
}

/// The devices that the monitor emulates, with COM1's interrupt line.
pub struct Devices {
    ports: Ports,
    /// The doorbell, if there is one.
    pub doorbell: Option<Doorbell>,
    vm: Arc<VmFd>,
    raised: bool,
}

/// Makes the devices of a machine in their reset state.
pub fn devices(machine: &mut Machine) -> Devices {
    let ports = Ports::new(machine.size, machine.vcpus.len() as u16);
    Devices { ports, doorbell: machine.doorbell.take(), vm: Arc::clone(&machine.vm), raised: false }
}

impl Devices {
    /// Does something with the devices, and tells KVM if that changed COM1's interrupt line.
    ///
    /// # Errors
    /// KVM's.
    pub fn with<T>(&mut self, access: impl FnOnce(&mut Ports) -> T) -> Result<T> {
        let result = access(&mut self.ports);
        let level = self.ports.interrupt();
        if std::mem::replace(&mut self.raised, level) != level {
            self.vm.set_irq_line(COM1_IRQ.into(), level).context("cannot set COM1's interrupt line")?;
        }
        Ok(result)
    }
}

fn add_memory(vm: &VmFd, size: u64) -> Result<GuestMemoryMmap> {
    let memory =
        GuestMemoryMmap::from_ranges(&[(GuestAddress(0), size as usize)]).context("cannot map the memory")?;
    let region = kvm_userspace_memory_region {
        slot: 0,
        flags: 0,
        guest_phys_addr: 0,
        memory_size: size,
        userspace_addr: memory.get_host_address(GuestAddress(0)).context("the memory is not there")? as u64,
    };
    // SAFETY: the mapping is as large as the region says and outlives the virtual machine, see `Machine`.
    unsafe { vm.set_user_memory_region(region) }.context("cannot give the machine its memory")?;
    Ok(memory)
}

/// The first vCPU starts as the image's boot protocol demands; the others wait for INIT and SIPI.
fn set_registers(vcpu: &VcpuFd, start: &Start) -> Result<()> {
    let mut system = vcpu.get_sregs()?;
    let long = matches!(start.mode, Mode::Long { .. });
    // Flat segments of 4 GiB: accessed code that can be read, and accessed data that can be written.
    let flat = |selector: u16, code: bool| kvm_segment {
        base: 0,
        limit: 0xffff_ffff,
        selector,
        type_: if code { 0xb } else { 0x3 },
        present: 1,
        s: 1,
        db: u8::from(!(code && long)),
        l: u8::from(code && long),
        g: 1,
        ..Default::default()
    };
    let [code, data] = start.selectors;
    system.cs = flat(code, true);
    for segment in [&mut system.ds, &mut system.es, &mut system.fs, &mut system.gs, &mut system.ss] {
        *segment = flat(data, false);
    }
    system.cr0 |= CR0_PE;
    if let Mode::Long { root } = start.mode {
        system.cr3 = root;
        system.cr4 |= CR4_PAE;
        system.cr0 |= CR0_PG;
        system.efer |= EFER_LME | EFER_LMA;
    }
    vcpu.set_sregs(&system)?;
    let mut registers = vcpu.get_regs()?;
    (registers.rip, registers.rflags) = (start.rip, RFLAGS);
    (registers.rax, registers.rbx, registers.rsi) = (start.rax, start.rbx, start.rsi);
    vcpu.set_regs(&registers)?;
    Ok(())
}
