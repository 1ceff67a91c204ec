// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Builds the virtual machine: memory with the guest in it, vCPUs, GICv3, PMU
//! (Linux, Documentation/virt/kvm: api.rst, devices/arm-vgic-v3.rst, devices/vcpu.rst).

use std::fs;
use std::mem::offset_of;
use std::sync::Arc;

use anyhow::{Context, Result};
use kvm_bindings::{
    KVM_ARM_IRQ_TYPE_SHIFT, KVM_ARM_IRQ_TYPE_SPI, KVM_ARM_VCPU_PMU_V3, KVM_ARM_VCPU_PMU_V3_CTRL,
    KVM_ARM_VCPU_PMU_V3_INIT, KVM_ARM_VCPU_PMU_V3_IRQ, KVM_ARM_VCPU_POWER_OFF, KVM_ARM_VCPU_PSCI_0_2,
    KVM_DEV_ARM_VGIC_CTRL_INIT, KVM_DEV_ARM_VGIC_GRP_ADDR, KVM_DEV_ARM_VGIC_GRP_CTRL,
    KVM_DEV_ARM_VGIC_GRP_NR_IRQS, KVM_REG_ARM_CORE, KVM_REG_ARM64, KVM_REG_SIZE_U64,
    KVM_VGIC_V3_ADDR_TYPE_DIST, KVM_VGIC_V3_ADDR_TYPE_REDIST_REGION, kvm_create_device, kvm_device_attr,
    kvm_device_type_KVM_DEV_TYPE_ARM_VGIC_V3, kvm_regs, kvm_userspace_memory_region, kvm_vcpu_init,
};
use kvm_ioctls::{DeviceFd, Kvm, VcpuFd, VmFd};
use turnstile_machine::gic::GICR_STRIDE;
use turnstile_machine::{GicVersion, Layout, Platform, fdt, image, layout, map};
use vm_memory::{Bytes, GuestAddress, GuestMemoryBackend, GuestMemoryMmap};

use super::MACHINE;
use super::bus::Bus;
use crate::doorbell::{self, Doorbell};
use crate::options::Options;

/// EL1 on its own stack, all interrupts masked.
const PSTATE_AT_ENTRY: u64 = 0x3c5;

/// A virtual machine, ready to run. The vCPUs come first: they must be closed before the rest.
pub struct Machine {
    /// Its vCPUs.
    pub vcpus: Vec<VcpuFd>,
    _gic: DeviceFd,
    vm: Arc<VmFd>,
    /// Whether the UART interrupts the guest.
    interrupts: bool,
    doorbell: Option<Doorbell>,
    _memory: GuestMemoryMmap,
}

/// Makes the machine that the options describe, with `guest` in its memory.
///
/// # Errors
/// Says what KVM, or the guest's image, does not allow.
pub fn build(options: &Options, guest: &[u8]) -> Result<Machine> {
    let kvm = Kvm::new().context("cannot open /dev/kvm")?;
    let vm = kvm.create_vm().context("cannot create a virtual machine")?;
    let size = options.board.memory << 20;
    let memory = add_memory(&vm, size)?;
    let layout = load(&memory, options, guest)?;
    let mut vcpus = Vec::new();
    for index in 0..options.vcpus {
        let vcpu = vm.create_vcpu(index as u64).with_context(|| format!("cannot create vCPU {index}"))?;
        initialise(&vm, &vcpu, index, options.pmu)?;
        vcpus.push(vcpu);
    }
    let gic = add_gic(&vm, options.vcpus, size).context("cannot create a GICv3")?;
    if options.pmu {
        vcpus.iter().try_for_each(add_pmu).context("cannot create a PMU")?;
    }
    if let Some(first) = vcpus.first() {
        let core = |offset: usize, value: u64| {
            // KVM numbers them in words of 32 bits.
            let id = KVM_REG_ARM64 | KVM_REG_SIZE_U64 | u64::from(KVM_REG_ARM_CORE) | (offset / 4) as u64;
            first.set_one_reg(id, &value.to_le_bytes()).context("cannot set a register")
        };
        core(offset_of!(kvm_regs, regs.regs), layout.dtb.start)?;
        core(offset_of!(kvm_regs, regs.pc), layout.entry)?;
        core(offset_of!(kvm_regs, regs.pstate), PSTATE_AT_ENTRY)?;
    }
    let doorbell = doorbell::connect(&vm, options)?;
    Ok(Machine {
        vcpus,
        _gic: gic,
        vm: Arc::new(vm),
        interrupts: options.board.initrd.is_some(),
        doorbell,
        _memory: memory,
    })
}

/// The devices that the monitor emulates, with the UART's interrupt line.
pub struct Devices {
    bus: Bus,
    vm: Arc<VmFd>,
    /// Whether the line is connected.
    pub interrupts: bool,
    raised: bool,
}

/// Makes the devices of a machine in their reset state.
pub fn devices(machine: &mut Machine) -> Devices {
    let bus = Bus::new(MACHINE.map(), machine.doorbell.take());
    Devices { bus, vm: Arc::clone(&machine.vm), interrupts: machine.interrupts, raised: false }
}

impl Devices {
    /// Reads into `data`; zero where there is no device.
    pub fn read(&mut self, address: u64, data: &mut [u8]) {
        self.bus.read(address, data);
    }

    /// Writes `data`, nowhere if there is no device; returns the byte that went out on the serial line.
    pub fn write(&mut self, address: u64, data: &[u8]) -> Option<u8> {
        self.bus.write(address, data)
    }

    /// Tells KVM if the level of the UART's interrupt line has changed.
    ///
    /// # Errors
    /// KVM's.
    pub fn tell_interrupt(&mut self) -> Result<()> {
        let level = self.bus.interrupt();
        if std::mem::replace(&mut self.raised, level) != level {
            let line = KVM_ARM_IRQ_TYPE_SPI << KVM_ARM_IRQ_TYPE_SHIFT | MACHINE.map().uart.intid;
            self.vm.set_irq_line(line, level).context("cannot set the UART's interrupt line")?;
        }
        Ok(())
    }
}

fn add_memory(vm: &VmFd, size: u64) -> Result<GuestMemoryMmap> {
    let base = GuestAddress(MACHINE.map().ram_base);
    let memory = GuestMemoryMmap::from_ranges(&[(base, size as usize)]).context("cannot map the memory")?;
    let region = kvm_userspace_memory_region {
        slot: 0,
        flags: 0,
        guest_phys_addr: base.0,
        memory_size: size,
        userspace_addr: memory.get_host_address(base).context("the memory is not there")? as u64,
    };
    // SAFETY: the mapping is as large as the region says and outlives the virtual machine, see `Machine`.
    unsafe { vm.set_user_memory_region(region) }.context("cannot give the machine its memory")?;
    Ok(memory)
}

/// Puts the guest and its device tree into the memory.
fn load(memory: &GuestMemoryMmap, options: &Options, guest: &[u8]) -> Result<Layout> {
    let header = image::parse(guest).map_err(|error| anyhow::anyhow!("the guest: {error}"))?;
    let size = options.board.memory << 20;
    let initrd = options.board.initrd.as_ref();
    let initrd =
        initrd.map(|path| fs::read(path).with_context(|| format!("cannot read {path:?}"))).transpose()?;
    let length = initrd.as_ref().map(|initrd| initrd.len() as u64);
    let layout = layout::layout(MACHINE.map(), size, &header, guest.len() as u64, length)
        .map_err(|error| anyhow::anyhow!("the guest: {error}"))?;
    let platform = Platform {
        machine: MACHINE,
        gic: GicVersion::V3,
        vcpus: options.vcpus,
        memory: size,
        bootargs: &options.cmdline,
        initrd: layout.initrd.clone(),
        pmu: options.pmu,
        flash: 0,
        service: false,
        pci: false,
        virtio: 0,
    };
    let tree = fdt::build(&platform).map_err(|error| anyhow::anyhow!("the device tree: {error}"))?;
    memory.write_slice(guest, GuestAddress(layout.kernel.start)).context("cannot load the guest")?;
    memory.write_slice(&tree, GuestAddress(layout.dtb.start)).context("cannot load the device tree")?;
    if let Some((place, initrd)) = layout.initrd.as_ref().zip(initrd) {
        memory.write_slice(&initrd, GuestAddress(place.start)).context("cannot load the initial RAM disk")?;
    }
    Ok(layout)
}

/// Resets a vCPU; all but the first wait for PSCI CPU_ON.
fn initialise(vm: &VmFd, vcpu: &VcpuFd, index: usize, pmu: bool) -> Result<()> {
    let mut init = kvm_vcpu_init::default();
    vm.get_preferred_target(&mut init).context("KVM names no kind of vCPU")?;
    let mut features = 1 << KVM_ARM_VCPU_PSCI_0_2;
    if index > 0 {
        features |= 1 << KVM_ARM_VCPU_POWER_OFF;
    }
    if pmu {
        features |= 1 << KVM_ARM_VCPU_PMU_V3;
    }
    init.features[0] |= features;
    vcpu.vcpu_init(&init).with_context(|| format!("cannot initialise vCPU {index} (PMU: {pmu})"))
}

fn add_gic(vm: &VmFd, vcpus: usize, size: u64) -> Result<DeviceFd> {
    let mut device = kvm_create_device { type_: kvm_device_type_KVM_DEV_TYPE_ARM_VGIC_V3, fd: 0, flags: 0 };
    let gic = vm.create_device(&mut device)?;
    let set = |group: u32, attribute: u32, value: Option<&u64>| {
        let addr = value.map_or(0, |value| &raw const *value as u64);
        gic.set_device_attr(&kvm_device_attr { flags: 0, group, attr: u64::from(attribute), addr })
    };
    let machine = MACHINE.map();
    set(KVM_DEV_ARM_VGIC_GRP_ADDR, KVM_VGIC_V3_ADDR_TYPE_DIST, Some(&machine.gicd.base))?;
    for (index, region) in machine.gicr(vcpus, size).regions().enumerate() {
        // How many redistributors in bits 63 to 52, the address in bits 51 to 16, the region's number below.
        let value = (region.size / GICR_STRIDE) << 52 | region.base | index as u64;
        set(KVM_DEV_ARM_VGIC_GRP_ADDR, KVM_VGIC_V3_ADDR_TYPE_REDIST_REGION, Some(&value))?;
    }
    // KVM reads 32 bits of it.
    set(KVM_DEV_ARM_VGIC_GRP_NR_IRQS, 0, Some(&u64::from(map::INTID_COUNT)))?;
    set(KVM_DEV_ARM_VGIC_GRP_CTRL, KVM_DEV_ARM_VGIC_CTRL_INIT, None)?;
    Ok(gic)
}

fn add_pmu(vcpu: &VcpuFd) -> Result<(), kvm_ioctls::Error> {
    let intid = map::PMU_INTID;
    let attribute = |attr: u32, addr: u64| kvm_device_attr {
        flags: 0,
        group: KVM_ARM_VCPU_PMU_V3_CTRL,
        attr: u64::from(attr),
        addr,
    };
    vcpu.set_device_attr(&attribute(KVM_ARM_VCPU_PMU_V3_IRQ, &raw const intid as u64))?;
    vcpu.set_device_attr(&attribute(KVM_ARM_VCPU_PMU_V3_INIT, 0))
}
