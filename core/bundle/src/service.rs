// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The description of a service, and what it must satisfy.

use core::ops::RangeInclusive;

use turnstile_service::image::{self, Image};

use crate::check::check_name;
use crate::choices::choices;
use crate::disk::DiskSpec;
use crate::error::BundleError;
use crate::machine::Machine;
use crate::service_error::{ServiceError, ServiceLabel};
use crate::spec::{Mapping, VmSpec};
use crate::{MAX_FUNCTIONS, MAX_MEMBERS, MAX_NAMED_PORTS, MAX_PHYSICAL_CPUS, MAX_PORT_NAME, MAX_SERVICES};

choices! {
    /// Which device of its VM a service is.
    ServiceDevice {
        /// The serial port; on POWER, the terminal.
        #[default]
        Uart = "uart",
        /// A page of registers that the VM has beside the devices of its machine.
        Extra = "extra",
        /// A PCI function, of which a VM may have several: their order is that of their slots.
        Pci = "pci",
        /// A network: a PCI function of each VM that has a port of it.
        Network = "network",
        /// A source of random numbers: a PCI function, of which a VM has one.
        Entropy = "entropy",
        /// A virtio console, which is its VM's console: a PCI function, of which a VM has one.
        Console = "console",
        /// Named ports of a virtio console, which is no terminal: a PCI function, of which a VM has one.
        Ports = "ports",
        /// A memory balloon, by which free memory goes back to the pool: a PCI function, of which a VM has one.
        Balloon = "balloon",
    }
}

impl ServiceDevice {
    /// Says whether it is a PCI function of its one VM.
    #[must_use]
    pub const fn is_function(self) -> bool {
        matches!(self, Self::Pci | Self::Entropy | Self::Console | Self::Ports | Self::Balloon)
    }
}

/// A service: a program that is a device of a VM, or of several.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServiceSpec<'a> {
    /// Its name, as a VM's, unique among the services.
    pub name: &'a str,
    /// Its program, as `turnstile_service::image` describes it.
    pub program: &'a [u8],
    /// The index of the VM that it serves; none of a network, whose VMs its ports name.
    pub vm: Option<usize>,
    /// Which device of its VM it is.
    pub device: ServiceDevice,
    /// How long it may take for an event, in nanoseconds.
    pub limit: u64,
    /// Whether it reads and writes the RAM of its VM, or of all its VMs.
    pub memory: bool,
    /// The index of its disk: it has the disk's memory, or drives the controller behind which the disk is.
    pub disk: Option<usize>,
    /// The index of the earlier service that drives the controller of its disk, and serves its VM, too: this one is a function of that.
    pub joins: Option<usize>,
    /// The physical CPU that alone runs it, and that no VM has. Without it the CPUs of its VMs do.
    pub cpu: Option<u16>,
    /// The network card of the machine by which a network is connected to others.
    pub uplink: Option<Uplink>,
    /// The names of its ports, with a space between them. The first has number 1.
    pub ports: &'a str,
}

/// A network card of the machine, which a service drives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Uplink {
    /// Its number among the machine's Ethernet controllers, in the order of their PCI addresses: below [`Uplink::CARDS`].
    pub card: usize,
    /// Whether the service is trusted with all memory of the machine: it tells the card where to write, and without an IOMMU nothing is in
    /// between.
    pub trusted: bool,
}

impl Uplink {
    /// How many cards have a number.
    pub const CARDS: usize = 16;
}

impl<'a> ServiceSpec<'a> {
    /// Returns the names of its ports, in the order of their numbers.
    pub fn port_names(&self) -> impl Iterator<Item = &'a str> + Clone + use<'a> {
        self.ports.split(' ').filter({
            let is_empty = self.ports.is_empty();
            move |_| !is_empty
        })
    }
}

/// Says whether a port can have this name.
#[must_use]
pub fn is_port_name(name: &str) -> bool {
    let allowed = |byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'.' | b'-' | b'_');
    // The guest and the tool have files of that name.
    let is_file = name != "." && name != "..";
    (1..=MAX_PORT_NAME).contains(&name.len()) && name.bytes().all(allowed) && is_file
}

impl ServiceSpec<'_> {
    /// How long a service may take for an event if nothing is said, in nanoseconds.
    pub const LIMIT: u64 = 2_000_000;
    /// What a bound of that can be: 100 microseconds to one second.
    pub const LIMITS: RangeInclusive<u64> = 100_000..=1_000_000_000;

    /// Checks what concerns this service alone.
    fn check(&self, vms: &[VmSpec<'_>], disks: &[DiskSpec<'_>]) -> Result<(), ServiceError> {
        check_name(self.name).map_err(ServiceError::Name)?;
        if !Self::LIMITS.contains(&self.limit) {
            return Err(ServiceError::Limit(self.limit));
        }
        if let Some(disk) = self.disk {
            disks.get(disk).ok_or(ServiceError::NoDisk(disk))?;
            if self.device != ServiceDevice::Pci {
                return Err(ServiceError::DiskDevice);
            }
            if !self.memory {
                return Err(ServiceError::DiskMemory);
            }
        }
        if let Some(uplink) = self.uplink {
            self.check_uplink(uplink)?;
        }
        if let Some(cpu) = self.cpu {
            check_cpu(cpu, vms)?;
        }
        self.check_ports()?;
        match (self.vm, self.device) {
            (None, ServiceDevice::Network) if self.memory => Ok(()),
            (None, ServiceDevice::Network) => Err(ServiceError::NetworkMemory),
            (Some(_), ServiceDevice::Network) => Err(ServiceError::NetworkVm),
            (None, _) => Err(ServiceError::VmMissing),
            (Some(_), device) if device.is_function() && device != ServiceDevice::Pci && !self.memory => {
                Err(ServiceError::FunctionMemory(device.name()))
            }
            (Some(vm), _) => self.check_with(vms.get(vm).ok_or(ServiceError::NoVm(vm))?, disks),
        }
    }

    /// Checks its named ports.
    fn check_ports(&self) -> Result<(), ServiceError> {
        if (self.device == ServiceDevice::Ports) == self.ports.is_empty() {
            return Err(ServiceError::Ports);
        }
        let count = self.port_names().count();
        if count > MAX_NAMED_PORTS {
            return Err(ServiceError::TooManyPorts(count));
        }
        for (number, name) in self.port_names().enumerate() {
            if !is_port_name(name) {
                return Err(ServiceError::PortName(number));
            }
            if let Some(other) = self.port_names().take(number).position(|other| other == name) {
                return Err(ServiceError::SamePort(other, number));
            }
        }
        Ok(())
    }

    /// Checks that it can have this network card.
    fn check_uplink(&self, uplink: Uplink) -> Result<(), ServiceError> {
        if self.device != ServiceDevice::Network {
            return Err(ServiceError::UplinkDevice);
        }
        if uplink.card >= Uplink::CARDS {
            return Err(ServiceError::NoCard(uplink.card, Uplink::CARDS));
        }
        Ok(())
    }

    /// Checks that it can serve its VM.
    fn check_with(&self, vm: &VmSpec<'_>, disks: &[DiskSpec<'_>]) -> Result<(), ServiceError> {
        let is_pooled = vm.mapping == Mapping::FromPool;
        let drives = self.disk.and_then(|disk| disks.get(disk)).is_some_and(|disk| disk.drive.is_some());
        if drives && is_pooled {
            return Err(ServiceError::PooledDrive);
        }
        if self.device == ServiceDevice::Balloon && !is_pooled {
            return Err(ServiceError::NoPool);
        }
        Image::parse(self.program, vm.machine.elf()).map(|_| ()).map_err(ServiceError::Program)
    }

    /// Says why it cannot be there beside the earlier services.
    fn check_beside(&self, earlier: &[Self], disks: &[DiskSpec<'_>]) -> Result<(), ServiceError> {
        let same = |is: &dyn Fn(&Self) -> bool| earlier.iter().position(is);
        if let Some(other) = same(&|other| other.name == self.name) {
            return Err(ServiceError::SameName(other));
        }
        let is_same_device = |other: &Self| (other.vm, other.device) == (self.vm, self.device);
        let is_single = !matches!(self.device, ServiceDevice::Network | ServiceDevice::Pci);
        if let Some(other) = same(&is_same_device).filter(|_| is_single) {
            return Err(ServiceError::SameDevice(other));
        }
        let is_function = |other: &&Self| other.vm == self.vm && other.device.is_function();
        if self.device.is_function() && earlier.iter().filter(is_function).count() >= MAX_FUNCTIONS {
            return Err(ServiceError::TooManyFunctions);
        }
        let card = |service: &Self| service.uplink.map(|uplink| uplink.card);
        if let Some(other) = self.uplink.and_then(|_| same(&|other| card(other) == card(self))) {
            return Err(ServiceError::SameCard(other));
        }
        if let Some(disk) = self.disk.and_then(|disk| disks.get(disk))
            && let Some(other) = same(&|other| other.disk == self.disk).filter(|_| !disk.read_only)
        {
            return Err(ServiceError::SameDisk(other));
        }
        self.check_drive(earlier, disks)
    }

    /// Says why it cannot drive the controller of its disk, or join the one that does.
    fn check_drive(&self, earlier: &[Self], disks: &[DiskSpec<'_>]) -> Result<(), ServiceError> {
        let drive =
            |service: &Self| service.disk.and_then(|disk| disks.get(disk)).and_then(|disk| disk.drive);
        let is_same = |other: &Self| match (drive(other), drive(self)) {
            (Some(theirs), Some(own)) => theirs.is_same_controller(&own),
            _ => false,
        };
        let first = earlier.iter().position(is_same);
        match (first, self.joins) {
            (None, None) => return Ok(()),
            (Some(other), None) => return Err(ServiceError::SameDrive(other)),
            (first, Some(joins)) if first != Some(joins) => return Err(ServiceError::NoDrive(joins)),
            _ => {}
        }
        let all = earlier.iter().filter(|other| is_same(other));
        if all.clone().count() >= MAX_MEMBERS {
            return Err(ServiceError::TooManyMembers);
        }
        let how = |service: &Self| (service.limit, service.cpu);
        match all.into_iter().find(|other| how(other) != how(self) || other.program != self.program) {
            Some(_) => Err(ServiceError::Differs(first.unwrap_or_default())),
            None => Ok(()),
        }
    }
}

/// Checks that a service can have this physical CPU.
fn check_cpu(cpu: u16, vms: &[VmSpec<'_>]) -> Result<(), ServiceError> {
    if usize::from(cpu) >= MAX_PHYSICAL_CPUS {
        return Err(ServiceError::NoCpu(cpu));
    }
    match vms.iter().position(|vm| vm.cpus.iter().any(|other| other == cpu)) {
        Some(vm) => Err(ServiceError::CpuOfVm(cpu, vm)),
        None => Ok(()),
    }
}

impl Machine {
    /// Returns how ELF files number the machine's instructions.
    #[must_use]
    pub const fn elf(&self) -> u32 {
        match self {
            Machine::Arm64(_) => image::AARCH64,
            Machine::Pc(_) => image::X86_64,
            Machine::Pseries(_) => image::PPC64,
        }
    }
}

/// Checks the services of a bundle with these VMs and disks, each alone and all together. What concerns the ports of networks is for
/// [`validate_ports`](crate::validate_ports).
///
/// # Errors
///
/// Says the first thing that is wrong, and with which service.
pub fn validate_services(
    vms: &[VmSpec<'_>],
    services: &[ServiceSpec<'_>],
    disks: &[DiskSpec<'_>],
) -> Result<(), BundleError> {
    if services.len() > MAX_SERVICES {
        return Err(BundleError::TooManyServices(services.len()));
    }
    for (index, service) in services.iter().enumerate() {
        let earlier = services.get(..index).unwrap_or(&[]);
        service.check(vms, disks).and_then(|()| service.check_beside(earlier, disks)).map_err(|problem| {
            BundleError::Service { service: ServiceLabel::new(index, service.name), problem }
        })?;
    }
    Ok(())
}
