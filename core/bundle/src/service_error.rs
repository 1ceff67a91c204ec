// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What can be wrong with the description of a service.

use core::fmt;

use turnstile_service::image;

use crate::spec_error::{SpecError, VmLabel};
use crate::{MAX_FUNCTIONS, MAX_MEMBERS, MAX_NAME, MAX_NAMED_PORTS, MAX_PHYSICAL_CPUS, MAX_PORT_NAME};

/// What is wrong with the description of one service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServiceError {
    /// Its name.
    Name(SpecError),
    /// It says no VM that it serves, and is no network.
    VmMissing,
    /// It serves a VM that does not exist.
    NoVm(usize),
    /// It may take this many nanoseconds for an event.
    Limit(u64),
    /// Its program.
    Program(image::Error),
    /// The service of this index has the same name.
    SameName(usize),
    /// The service of this index is the same device of the same VM.
    SameDevice(usize),
    /// It has a disk that does not exist.
    NoDisk(usize),
    /// It has a disk and is no PCI function.
    DiskDevice,
    /// It has a disk and does not reach its VM's memory.
    DiskMemory,
    /// The service of this index has the same disk, which is written.
    SameDisk(usize),
    /// The service of this index drives the controller of its disk, and it does not join that.
    SameDrive(usize),
    /// It joins the service of this index, which is not the first one that drives the controller of its disk.
    NoDrive(usize),
    /// It joins the service of this index, and is another program, or runs in another way.
    Differs(usize),
    /// It joins a service that has [`MAX_MEMBERS`] functions before it.
    TooManyMembers,
    /// Its VM has [`MAX_FUNCTIONS`] PCI functions before it.
    TooManyFunctions,
    /// Its device has this name, is a PCI function that reaches its VM's memory, and does not.
    FunctionMemory(&'static str),
    /// Its disk is behind a controller of the machine, and its VM's memory comes from a pool.
    PooledDrive,
    /// It is a balloon, and its VM's memory comes from no pool.
    NoPool,
    /// It is a network and serves one VM.
    NetworkVm,
    /// It is a network and does not reach its VMs' memory.
    NetworkMemory,
    /// It is a network without ports.
    NoPorts,
    /// It has an uplink and is no network.
    UplinkDevice,
    /// Its uplink is a card with this number, and numbers are below the second one.
    NoCard(usize, usize),
    /// The service of this index has the same uplink.
    SameCard(usize),
    /// It has named ports, and its device is not `ports`; or the other way round.
    Ports,
    /// It has so many named ports.
    TooManyPorts(usize),
    /// Its port of this index, from 0, has a name that cannot be.
    PortName(usize),
    /// Its port of the second index has the name of that of the first.
    SamePort(usize, usize),
    /// It runs on a physical CPU with this number, which no machine has.
    NoCpu(u16),
    /// It runs on this physical CPU, which the VM of this index has.
    CpuOfVm(u16, usize),
}

impl fmt::Display for ServiceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(error) => error.fmt(f),
            Self::VmMissing => f.write_str("it serves no VM; name one, or make its device `network`"),
            Self::NoVm(vm) => write!(f, "it serves VM {vm}, which does not exist"),
            Self::Limit(limit) => {
                write!(f, "it may take {limit} ns for an event; give 100 microseconds to 1 second")
            }
            Self::Program(error) => write!(f, "its program cannot be used: {error}"),
            Self::SameName(other) => write!(f, "service {other} has the same name; rename one"),
            Self::SameDevice(other) => {
                write!(f, "service {other} is the same device of the same VM; take one out")
            }
            Self::NoDisk(disk) => write!(f, "it has disk {disk}, which does not exist"),
            Self::DiskDevice => f.write_str("it has a disk, so its device must be `pci`"),
            Self::DiskMemory => f.write_str("it has a disk, so it must reach its VM's memory"),
            Self::SameDisk(other) => {
                write!(f, "service {other} has the same disk; give each its own, or make the disk read-only")
            }
            Self::SameDrive(other) => {
                write!(f, "service {other} drives the controller of its disk; have it join that")
            }
            Self::NoDrive(other) => {
                write!(
                    f,
                    "it joins service {other}; name the first one with a disk behind the same controller"
                )
            }
            Self::Differs(other) => {
                write!(f, "it joins service {other}; give both the same program, time limit and CPU")
            }
            Self::TooManyMembers => {
                write!(f, "its controller has too many disks; give it at most {MAX_MEMBERS}")
            }
            Self::TooManyFunctions => {
                write!(f, "its VM has too many PCI functions; give it at most {MAX_FUNCTIONS}")
            }
            Self::FunctionMemory(device) => {
                write!(f, "its device is `{device}`, so it must reach its VM's memory")
            }
            Self::PooledDrive => f.write_str("its disk is behind a controller of the machine, and its VM's memory comes from a pool; give that VM memory of its own (mapping \"on-demand\")"),
            Self::NoPool => f.write_str("it is a balloon, so the memory of its VM must come from a pool (mapping \"from-pool\")"),
            Self::NetworkVm => f.write_str("it is a network, whose VMs its ports name; name none of its own"),
            Self::NetworkMemory => f.write_str("it is a network, so it must reach its VMs' memory"),
            Self::UplinkDevice => f.write_str("it has an uplink, so its device must be `network`"),
            Self::NoCard(card, most) => {
                write!(f, "there is no network card {card}; numbers are below {most}")
            }
            Self::SameCard(other) => {
                write!(f, "service {other} has the same network card; give each its own")
            }
            Self::Ports => f.write_str("a service has named ports if its device is `ports`, and only then"),
            Self::TooManyPorts(count) => {
                write!(f, "it has {count} ports; give it at most {MAX_NAMED_PORTS}")
            }
            Self::PortName(port) => {
                write!(
                    f,
                    "port {port} has no name that can be: 1 to {MAX_PORT_NAME} of a-z, 0-9, `.`, `-`, `_`"
                )
            }
            Self::SamePort(other, port) => {
                write!(f, "ports {other} and {port} have the same name; rename one")
            }
            Self::NoCpu(cpu) => {
                write!(f, "it runs on CPU {cpu}; numbers are below {MAX_PHYSICAL_CPUS}")
            }
            Self::CpuOfVm(cpu, vm) => {
                write!(f, "it runs on CPU {cpu}, which VM {vm} has; name one that no VM has")
            }
            Self::NoPorts => f.write_str("it is a network without ports; give it one, or take it out"),
        }
    }
}

impl core::error::Error for ServiceError {}

/// Which service an error is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServiceLabel(VmLabel);

impl ServiceLabel {
    /// Names the service at `index`.
    #[must_use]
    pub fn new(index: usize, name: &str) -> Self {
        Self(VmLabel::new(index, if name.len() > MAX_NAME { "" } else { name }))
    }
}

impl fmt::Display for ServiceLabel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let VmLabel { index, name } = &self.0;
        if name.is_empty() { write!(f, "service {index}") } else { write!(f, "service `{name}`") }
    }
}
