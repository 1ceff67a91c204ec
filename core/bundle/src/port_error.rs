// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What can be wrong with the description of a port of a network.

use core::fmt;

use turnstile_service::image;
use turnstile_service::port::MAX_PAIRS;

use crate::{MAX_FUNCTIONS, MAX_MEMBERS};

/// What is wrong with the description of one port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PortError {
    /// It is of a service that does not exist.
    NoService(usize),
    /// It is of this service, which is no network.
    NotNetwork(usize),
    /// It is of a VM that does not exist.
    NoVm(usize),
    /// Its address is all zeros.
    ZeroMac,
    /// Its address is that of a group.
    GroupMac,
    /// It may send this many bits per second.
    Rate(u64),
    /// Its device has this many pairs of queues.
    Queues(u16),
    /// The program of its network is none for its VM.
    Program(image::Error),
    /// An earlier port is of a later service.
    Order,
    /// The port of this index is of the same VM and the same network.
    SameVm(usize),
    /// The port of this index has the same address on the same network.
    SameMac(usize),
    /// Its network has [`MAX_MEMBERS`] ports before it.
    TooManyMembers,
    /// Its VM has [`MAX_FUNCTIONS`] PCI functions beside it.
    TooManyFunctions,
}

impl fmt::Display for PortError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoService(service) => write!(f, "it is of service {service}, which does not exist"),
            Self::NotNetwork(service) => {
                write!(f, "it is of service {service}, which is no network; its device must be `network`")
            }
            Self::NoVm(vm) => write!(f, "it is of VM {vm}, which does not exist"),
            Self::ZeroMac => f.write_str("its address is zero; give another one"),
            Self::GroupMac => {
                f.write_str("its address is that of a group; give one whose first byte is even")
            }
            Self::Rate(rate) => {
                write!(f, "it may send {rate} bits per second; give 64 kbit/s to 1 Tbit/s, or no rate")
            }
            Self::Queues(queues) => {
                write!(f, "it has {queues} pairs of queues; give it 1 to {MAX_PAIRS}")
            }
            Self::Program(error) => write!(f, "its network's program cannot be used for its VM: {error}"),
            Self::Order => f.write_str("it follows a port of a later service; order them by their services"),
            Self::SameVm(other) => {
                write!(f, "port {other} is of the same VM and the same network; take one out")
            }
            Self::SameMac(other) => {
                write!(f, "port {other} has the same address on the same network; change one")
            }
            Self::TooManyMembers => {
                write!(f, "its network has too many ports; give it at most {MAX_MEMBERS}")
            }
            Self::TooManyFunctions => {
                write!(f, "its VM has too many PCI functions; give it at most {MAX_FUNCTIONS}")
            }
        }
    }
}

impl core::error::Error for PortError {}
