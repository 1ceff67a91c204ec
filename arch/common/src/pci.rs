// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The PCI functions of the machine, for services that drive them: which there are, and what becomes of one when a service gets it.
//!
//! The hypervisor itself drives none. A program sees its function's registers and a copy of its configuration space; what decides about other
//! programs stays here: the command register, the base addresses, the interrupt's message.

use alloc::vec::Vec;
use core::fmt;

use pci_types::capability::{MsixCapability, PciCapability};
use pci_types::device_type::DeviceType;
use pci_types::{Bar, CommandRegister, ConfigRegionAccess, EndpointHeader, HeaderType, PciHeader};

pub use pci_types::PciAddress;

use crate::memory::PAGE;

/// Base address registers of a function (PCI Local Bus Specification 3.0, section 6.2.5).
pub const BARS: u8 = 6;
/// Bytes of a configuration space that a program sees: all that is not PCI Express's alone.
pub const CONFIGURATION: usize = 256;
/// Bytes of an entry of the table of MSI-X (section 6.8.2).
const ENTRY: u64 = 16;

/// How a function interrupts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wiring {
    /// By its pin: 1 is INTA.
    Pin(u8),
    /// By messages: the physical address of its table of MSI-X. All its vectors are masked, and it is enabled after
    /// [`HostBridge::connect`].
    Messages {
        /// The table.
        table: u64,
        /// Its entries.
        vectors: u16,
    },
}

/// The host bridge, as an architecture reaches it: one segment, and what is behind it. Configuration space is accessed by the boot CPU until VMs run,
/// and then by who is inside the service that has the function.
pub trait HostBridge: ConfigRegionAccess + Sync {
    /// The buses that there are, the first and the last.
    fn buses(&self) -> (u8, u8);
    /// The bus addresses at which BARs of memory may be placed that firmware has not placed: the first, and how many bytes. `None` where firmware has
    /// placed all.
    fn room(&self) -> Option<(u64, u64)>;
    /// Returns the physical address of a bus address of memory. `None` if no CPU reaches it.
    fn physical(&self, bus: u64) -> Option<u64>;
    /// Lets a function reach all memory, where that has to be said, and returns the address under which it reaches a physical one.
    fn reach(&self, function: PciAddress, physical: u64) -> Option<u64>;
    /// Says whether functions can be connected by messages.
    fn takes_messages(&self) -> bool;
    /// Has a function interrupt a CPU, by its index. Returns the number by which [`interrupt`](crate::monitor::CommonMonitor::interrupt) is told of
    /// it. It is masked.
    fn connect(&self, function: PciAddress, wiring: Wiring, cpu: usize) -> Option<u32>;
    /// Masks or unmasks a connected interrupt. One that has come while it was masked comes when it is unmasked. An interrupt is masked when the
    /// hypervisor is told of it, so by that CPU, and unmasked by any.
    fn mask(&self, number: u32, masked: bool);
}
