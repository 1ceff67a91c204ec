// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From the descriptions of VMs and services in the bundle to these: once, at boot.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;

use turnstile_bundle::{
    Bundle, Class, DiskSpec, DriveKind, PortSpec, Schedule, ServiceDevice, ServiceSpec, Uplink, VmSpec,
    ports_of,
};
use turnstile_machine::{FunctionKind, Functions};
use turnstile_service::drive::{Drive, Drives};
use turnstile_service::port::Port;

use crate::arch::boot::{Bridge, Host};
use crate::arch::cpu::PerCpu;
use crate::arch::pci::{Claims, Kind};
use crate::arch::sched::Tenant;
use crate::arch::service::{Device, Storage};
use crate::arch::vm::Vcpu;
use crate::arch::vm::Vm;
use crate::disk;
use crate::driven::{self, Driven, Wanted};
use crate::guest::Guest;
use crate::machine::{self, Machine};
use crate::service::{self, Hosted, Member};

/// Why a VM cannot be built.
#[derive(Debug)]
pub enum Error {
    /// It wants a physical CPU that does not run.
    NoCpu(u16),
    /// This machine cannot give it what it needs.
    Machine(machine::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoCpu(cpu) => write!(f, "physical CPU {cpu} is not there: give the machine more CPUs"),
            Self::Machine(error) => write!(f, "{error}"),
        }
    }
}

impl From<machine::Error> for Error {
    fn from(error: machine::Error) -> Self {
        Self::Machine(error)
    }
}

/// Finds the physical CPUs of a VM: at least one.
fn areas(spec: &VmSpec<'_>, host: &Host, running: usize) -> Result<Vec<&'static PerCpu>, Error> {
    spec.cpus.iter().map(|cpu| area(cpu, host, running).ok_or(Error::NoCpu(cpu))).collect()
}

/// Returns a physical CPU, if it runs.
fn area(cpu: u16, host: &Host, running: usize) -> Option<&'static PerCpu> {
    host.cpus.get(usize::from(cpu)).copied().filter(|area| area.index < running)
}

fn share(class: Class) -> turnstile_sched::Class {
    match class {
        Class::Fair { weight } => turnstile_sched::Class::Fair { weight },
        Class::RealTime { priority } => turnstile_sched::Class::RealTime { priority },
    }
}

/// Builds the VM with index `id`, its vCPUs pinned to the physical CPUs its description names, or added to the
/// `tenants` that share CPUs. Some services of the `bundle` may be its PCI functions.
///
/// # Errors
/// When a physical CPU is missing, or the machine lacks what the description asks for.
#[inline(never)] // As for services: what it needs of the stack is given back.
pub fn build(
    id: u8,
    spec: &VmSpec<'static>,
    bundle: &Bundle<'static>,
    (host, running): (&Host, usize),
    tenants: &mut Vec<Tenant>,
) -> Result<Guest, Error> {
    let (machine, parts) =
        Machine::new(id, spec, functions(id.into(), bundle.services(), bundle.ports()), host)?;
    let vm: &'static Vm = Box::leak(Box::new(Vm::new(parts)));
    let areas = areas(spec, host, running)?;
    let mut vcpus = Vec::new();
    for index in 0..spec.vcpus {
        let thread = machine.thread(tenants.len() as u32, index)?;
        let vcpu = &*Box::leak(Box::new(Vcpu::new(vm, index, areas[index % areas.len()], thread)));
        if let Schedule::Shared(class) = spec.schedule {
            let cpus = (0..areas.len()).map(|n| areas[(index + n) % areas.len()].index as u32).collect();
            tenants.push(Tenant { vcpu, class: share(class), cpus });
        }
        vcpus.push(vcpu);
    }
    vm.set_vcpus(vcpus);
    Ok(Guest::new(vm, machine))
}

/// Returns the PCI functions of the VM with index `vm` that some services are, the first ones of the bundle: their order is that of their
/// slots.
fn functions(vm: usize, services: &[ServiceSpec<'_>], ports: &[PortSpec]) -> Functions {
    let mut functions = Functions::default();
    for (number, service) in services.iter().enumerate() {
        match service.device {
            ServiceDevice::Pci if service.vm == Some(vm) => functions.push(FunctionKind::Disk),
            ServiceDevice::Entropy if service.vm == Some(vm) => functions.push(FunctionKind::Entropy),
            ServiceDevice::Balloon if service.vm == Some(vm) => functions.push(FunctionKind::Balloon),
            ServiceDevice::Console | ServiceDevice::Ports if service.vm == Some(vm) => {
                functions.push(FunctionKind::Console);
            }
            ServiceDevice::Network if ports_of(ports, number).iter().any(|port| port.vm == vm) => {
                functions.push(FunctionKind::Network);
            }
            _ => {}
        }
    }
    functions
}

/// Builds the services of a bundle, with these disks, and connects them with the VMs that they serve. `running` CPUs of the machine run. If devices are to
/// `stray`, they are told addresses that are not theirs.
///
/// # Errors
/// Says which cannot be built, and why.
pub fn build_services(
    bundle: &Bundle<'static>,
    disks: &[Option<Storage>],
    stray: bool,
    (host, running): (&'static Host, usize),
    guests: &mut [Guest],
) -> Result<Vec<&'static Hosted>, (&'static str, service::Error)> {
    let wants_card = bundle.services().iter().any(|service| service.uplink.is_some());
    let wants_function = wants_card || bundle.disks().iter().any(|disk| disk.drive.is_some());
    let bridges = if wants_function { host.bridges() } else { &[] };
    // The boot CPU, as for the console.
    driven::watch(bridges, 0);
    let (mut all, mut claims) = (Vec::new(), Claims::new(bridges));
    let own = bundle.services().iter().enumerate().filter(|(_, spec)| spec.joins.is_none());
    for (number, spec) in own {
        let storage = spec.disk.and_then(|disk| disks.get(disk).copied()).flatten();
        let hosted = members(number, spec, bundle, guests).and_then(|members| {
            let own = |cpu| area(cpu, host, running).ok_or(service::Error::NoCpu(cpu));
            let cpu = spec.cpu.map(own).transpose()?;
            let wanted = wanted(number, bundle);
            let driven =
                wanted.map(|wanted| claim(&mut claims, (wanted, stray), &members, cpu)).transpose()?;
            Hosted::build(all.len(), spec, members, storage, driven, cpu)
        });
        all.push(hosted.map_err(|error| (spec.name, error))?);
    }
    for guest in guests {
        let own: Vec<_> = all.iter().copied().filter(|hosted| hosted.serves(guest.vm)).collect();
        if !own.is_empty() {
            guest.set_services(own);
        }
    }
    Ok(all)
}

/// Returns the disk of a service that the machine has, if it has one.
fn disk_of<'a>(spec: &ServiceSpec<'_>, disks: &'a [DiskSpec<'a>]) -> Option<&'a DiskSpec<'a>> {
    spec.disk.and_then(|disk| disks.get(disk)).filter(|disk| disk.drive.is_some())
}

/// Returns the services of this index and those that join it, in their order, which is that of members, each with its own index.
fn joined<'a>(
    number: usize,
    bundle: &'a Bundle<'static>,
) -> impl Iterator<Item = (usize, &'a ServiceSpec<'static>)> {
    let is_part =
        move |(index, spec): &(usize, &ServiceSpec<'_>)| *index == number || spec.joins == Some(number);
    bundle.services().iter().enumerate().filter(is_part)
}

/// Returns which PCI function of the machine a service is to have: the card of a network, or the controller of disks.
fn wanted(number: usize, bundle: &Bundle<'static>) -> Option<Wanted> {
    let (disks, spec) = (bundle.disks(), bundle.services().get(number)?);
    if let Some(uplink) = spec.uplink {
        let Uplink { card, trusted } = uplink;
        return Some(Wanted { kind: Kind::Ethernet, number: card, trusted, settings: [0; 2] });
    }
    let &DiskSpec { drive: Some(drive), .. } = disk_of(spec, disks)? else { return None };
    let kind = match drive.kind {
        DriveKind::Nvme => Kind::Nvme,
        DriveKind::Virtio => Kind::VirtioBlock,
    };
    let part = |disk: &DiskSpec<'_>| Drive {
        partition: disk.drive.and_then(|drive| drive.partition).and_then(|number| number.try_into().ok()),
        read_only: disk.read_only,
    };
    let parts = joined(number, bundle).filter_map(|(_, spec)| disk_of(spec, disks)).map(part);
    let settings = Drives::new(parts).words();
    Some(Wanted { kind, number: drive.number, trusted: drive.trusted, settings })
}

/// Gives a service its function, which interrupts the service's own CPU, or that of the first vCPU of its first VM.
fn claim(
    claims: &mut Claims<Bridge>,
    (wanted, stray): (Wanted, bool),
    members: &[Member],
    cpu: Option<&PerCpu>,
) -> Result<(Driven, Device), service::Error> {
    let vcpu = members.first().and_then(|member| member.vm.vcpu(0)).ok_or(service::Error::Vm)?;
    driven::claim(claims, (wanted, stray), cpu.unwrap_or(vcpu.cpu).index).map_err(service::Error::Driven)
}

/// Finds the VMs that a service serves.
fn members(
    number: usize,
    spec: &ServiceSpec<'static>,
    bundle: &Bundle<'static>,
    guests: &[Guest],
) -> Result<Vec<Member>, service::Error> {
    let member = |index: usize, vm: usize, settings| {
        let guest = guests.get(vm).ok_or(service::Error::Vm)?;
        let earlier = bundle.services().get(..index).unwrap_or_default();
        // Slot 0 is the host bridge's.
        let slot = 1 + functions(vm, earlier, bundle.ports()).count as u64;
        Ok(Member { vm: guest.vm, slot, site: guest.machine.site(spec.device, slot), settings })
    };
    let ports = ports_of(bundle.ports(), number).iter().map(|port| {
        let &PortSpec { vm, mac, guard, isolated, rate, queues, .. } = port;
        member(number, vm, Port { mac, guard, isolated, rate, pairs: queues }.words())
    });
    let own = joined(number, bundle).filter_map(|(index, spec)| {
        // The program of a disk in memory knows the name from that memory.
        let name = disk_of(spec, bundle.disks()).map_or([0; 2], |disk| disk::words(disk.name));
        spec.vm.map(|vm| member(index, vm, name))
    });
    own.chain(ports).collect()
}
