// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The description of a port of a network, and what it must satisfy.

use core::ops::RangeInclusive;

use turnstile_service::image::Image;
use turnstile_service::port::MAX_PAIRS;

use crate::error::BundleError;
use crate::port_error::PortError;
use crate::service::{ServiceDevice, ServiceSpec};
use crate::service_error::{ServiceError, ServiceLabel};
use crate::spec::VmSpec;
use crate::{MAX_FUNCTIONS, MAX_MEMBERS, MAX_PORTS};

/// A port of a network: a PCI function of one VM. Its number among the network's ports is that of the VM as a member of the service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PortSpec {
    /// The index of the service that is the network. It never falls from one port to the next.
    pub service: usize,
    /// The index of the VM.
    pub vm: usize,
    /// Its Ethernet address, unique in the network.
    pub mac: [u8; 6],
    /// Whether it may send from that address alone, and nobody else from it.
    pub guard: bool,
    /// Whether it exchanges nothing with other isolated ports.
    pub isolated: bool,
    /// How much it may send, in bits per second; as much as it can if nothing is said.
    pub rate: Option<u64>,
    /// How many pairs of queues its device has.
    pub queues: u16,
}

impl PortSpec {
    /// What a port's rate can be, in bits per second: 64 kbit/s to 1 Tbit/s.
    pub const RATES: RangeInclusive<u64> = 64_000..=1_000_000_000_000;

    /// How many pairs of queues a port's device can have.
    pub const QUEUES: RangeInclusive<u16> = 1..=MAX_PAIRS;

    /// Checks what concerns this port alone.
    fn check(&self, vms: &[VmSpec<'_>], services: &[ServiceSpec<'_>]) -> Result<(), PortError> {
        let service = services.get(self.service).ok_or(PortError::NoService(self.service))?;
        if service.device != ServiceDevice::Network {
            return Err(PortError::NotNetwork(self.service));
        }
        let vm = vms.get(self.vm).ok_or(PortError::NoVm(self.vm))?;
        if self.mac == [0; 6] {
            return Err(PortError::ZeroMac);
        }
        if self.mac[0] & 1 != 0 {
            return Err(PortError::GroupMac);
        }
        if let Some(rate) = self.rate.filter(|rate| !Self::RATES.contains(rate)) {
            return Err(PortError::Rate(rate));
        }
        if !Self::QUEUES.contains(&self.queues) {
            return Err(PortError::Queues(self.queues));
        }
        Image::parse(service.program, vm.machine.elf()).map(|_| ()).map_err(PortError::Program)
    }

    /// Says why it cannot be there beside the earlier ports.
    fn check_beside(&self, earlier: &[Self], services: &[ServiceSpec<'_>]) -> Result<(), PortError> {
        if earlier.last().is_some_and(|last| last.service > self.service) {
            return Err(PortError::Order);
        }
        let others = ports_of(earlier, self.service);
        let first = earlier.len() - others.len();
        let same = |is: &dyn Fn(&Self) -> bool| others.iter().position(is).map(|index| first + index);
        if let Some(other) = same(&|other| other.vm == self.vm) {
            return Err(PortError::SameVm(other));
        }
        if let Some(other) = same(&|other| other.mac == self.mac) {
            return Err(PortError::SameMac(other));
        }
        if others.len() >= MAX_MEMBERS {
            return Err(PortError::TooManyMembers);
        }
        let is_function =
            |service: &&ServiceSpec<'_>| service.device.is_function() && service.vm == Some(self.vm);
        let functions = services.iter().filter(is_function).count();
        let ports = earlier.iter().filter(|other| other.vm == self.vm).count();
        if functions + ports >= MAX_FUNCTIONS {
            return Err(PortError::TooManyFunctions);
        }
        Ok(())
    }
}

/// Returns the ports of the service of this index, in the order of their members, of ports in the order of a bundle.
#[must_use]
pub fn ports_of(ports: &[PortSpec], service: usize) -> &[PortSpec] {
    let start = ports.partition_point(|port| port.service < service);
    let end = ports.partition_point(|port| port.service <= service);
    ports.get(start..end).unwrap_or(&[])
}

/// Checks the ports of a bundle with these VMs and services, which were checked, each alone and all together.
///
/// # Errors
///
/// Says the first thing that is wrong, and with which port; or which network has none.
pub fn validate_ports(
    vms: &[VmSpec<'_>],
    services: &[ServiceSpec<'_>],
    ports: &[PortSpec],
) -> Result<(), BundleError> {
    if ports.len() > MAX_PORTS {
        return Err(BundleError::TooManyPorts(ports.len()));
    }
    for (index, port) in ports.iter().enumerate() {
        let earlier = ports.get(..index).unwrap_or(&[]);
        port.check(vms, services)
            .and_then(|()| port.check_beside(earlier, services))
            .map_err(|problem| BundleError::Port { port: index, problem })?;
    }
    for (index, service) in services.iter().enumerate() {
        if service.device == ServiceDevice::Network && ports_of(ports, index).is_empty() {
            let service = ServiceLabel::new(index, service.name);
            return Err(BundleError::Service { service, problem: ServiceError::NoPorts });
        }
    }
    Ok(())
}
