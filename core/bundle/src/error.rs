// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What can be wrong with a bundle, in words that say what to do.

use core::fmt;

use crate::disk_error::{DiskError, DiskLabel};
use crate::port_error::PortError;
use crate::service_error::{ServiceError, ServiceLabel};
use crate::spec_error::{SpecError, VmLabel};
use crate::{MAX_DISKS, MAX_PORTS, MAX_SERVICES, MAX_VMS, VERSION};

/// A part of a bundle that is damaged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// The header or the structure: nothing in it can be told apart.
    Structure,
    /// The description of the VMs, or the digest itself.
    Description,
    /// The image of this index.
    Image(usize),
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Part::Structure => f.write_str("its structure"),
            Part::Description => f.write_str("the description of its VMs"),
            Part::Image(index) => write!(f, "image {index}"),
        }
    }
}

/// Why a bundle cannot be used, or not be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BundleError {
    /// There are no bytes: the boot loader passed nothing.
    Missing,
    /// The bytes are something else.
    NotABundle,
    /// The bundle ends early.
    Truncated {
        /// How many bytes there are.
        have: usize,
        /// How many bytes there must be.
        need: usize,
    },
    /// More follows the bundle than a boot loader pads with.
    Trailing {
        /// How many bytes there are.
        have: usize,
        /// How many bytes the bundle has.
        need: usize,
    },
    /// The bundle has this version.
    Version(u32),
    /// The digest does not match: a byte of this part was changed.
    Damaged(Part),
    /// The bundle is undamaged, but not of the form that this version writes; the text names the place.
    Malformed(&'static str),
    /// The pool has so many bytes, which are no whole blocks of 2 MiB.
    Pool(u64),
    /// There is a pool, and no VM has memory from it.
    PoolUnused,
    /// There are no VMs.
    NoVms,
    /// There are this many VMs.
    TooManyVms(usize),
    /// One VM's description is wrong.
    Vm {
        /// The VM.
        vm: VmLabel,
        /// What is wrong with it.
        problem: SpecError,
    },
    /// Two VMs have the same name.
    SameName {
        /// The later VM.
        vm: VmLabel,
        /// The earlier VM.
        other: VmLabel,
    },
    /// Two VMs are pinned to the same physical CPU.
    SharedCpu {
        /// The physical CPU's index.
        cpu: u16,
        /// The later VM.
        vm: VmLabel,
        /// The earlier VM.
        other: VmLabel,
    },
    /// A VM is pinned to a physical CPU that another one shares.
    PinnedAndShared {
        /// The physical CPU's index.
        cpu: u16,
        /// The VM that wants it for itself.
        pinned: VmLabel,
        /// The VM that shares it.
        shared: VmLabel,
    },
    /// There are this many services.
    TooManyServices(usize),
    /// One service's description is wrong.
    Service {
        /// The service.
        service: ServiceLabel,
        /// What is wrong with it.
        problem: ServiceError,
    },
    /// There are this many disks.
    TooManyDisks(usize),
    /// One disk's description is wrong.
    Disk {
        /// The disk.
        disk: DiskLabel,
        /// What is wrong with it.
        problem: DiskError,
    },
    /// There are this many ports of networks.
    TooManyPorts(usize),
    /// One port's description is wrong.
    Port {
        /// The port's index.
        port: usize,
        /// What is wrong with it.
        problem: PortError,
    },
    /// The images have this many bytes together: more than the format's 4 GiB.
    TooLarge(u64),
}

impl fmt::Display for BundleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BundleError::Missing => f.write_str("there is no bundle; pass one as the initial RAM disk"),
            BundleError::NotABundle => {
                f.write_str("this is no bundle; pass the file that `turnstile build` wrote")
            }
            BundleError::Truncated { have, need } => {
                write!(f, "the bundle is truncated: {have} of {need} bytes are there; copy it again")
            }
            BundleError::Trailing { have, need } => {
                write!(f, "{} bytes follow the bundle's {need}; pass the bundle alone", have - need)
            }
            BundleError::Version(version) => {
                write!(
                    f,
                    "the bundle has version {version}, this is version {VERSION}; build it again with the \
                     `turnstile` of the same version"
                )
            }
            BundleError::Damaged(part) => {
                write!(f, "the bundle is damaged: {part} is not what was written; copy it or build it again")
            }
            BundleError::Malformed(place) => {
                write!(f, "the bundle is malformed: {place}; build it again with `turnstile build`")
            }
            BundleError::Pool(size) => {
                write!(f, "a pool of {size} bytes is no whole number of blocks; give a multiple of 2 MiB")
            }
            BundleError::PoolUnused => f.write_str(
                "no VM has memory from the pool; leave it out, or have one take its memory from it",
            ),
            BundleError::NoVms => f.write_str("there are no VMs; describe at least one"),
            BundleError::TooManyVms(count) => {
                write!(f, "{count} VMs are too many; describe at most {MAX_VMS}")
            }
            BundleError::Vm { vm, problem } => write!(f, "{vm}: {problem}"),
            BundleError::SameName { vm, other } => {
                write!(f, "VM {} has the name of VM {}, `{}`; rename one", vm.index, other.index, vm.name)
            }
            BundleError::SharedCpu { cpu, vm, other } => {
                write!(f, "{vm} and {other} both want physical CPU {cpu}; give each its own")
            }
            BundleError::PinnedAndShared { cpu, pinned, shared } => {
                write!(
                    f,
                    "{pinned} wants physical CPU {cpu} for itself, and {shared} shares it; take it out of one \
                     of their lists, or let both share it"
                )
            }
            BundleError::TooManyServices(count) => {
                write!(f, "{count} services are too many; describe at most {MAX_SERVICES}")
            }
            BundleError::Service { service, problem } => write!(f, "{service}: {problem}"),
            BundleError::TooManyDisks(count) => {
                write!(f, "{count} disks are too many; describe at most {MAX_DISKS}")
            }
            BundleError::Disk { disk, problem } => write!(f, "{disk}: {problem}"),
            BundleError::TooManyPorts(count) => {
                write!(f, "{count} ports of networks are too many; describe at most {MAX_PORTS}")
            }
            BundleError::Port { port, problem } => write!(f, "port {port}: {problem}"),
            BundleError::TooLarge(size) => {
                write!(f, "the images have {size} bytes together; a bundle holds less than 4 GiB")
            }
        }
    }
}

impl core::error::Error for BundleError {}
