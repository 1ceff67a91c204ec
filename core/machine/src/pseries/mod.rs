// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The machine `pseries`: a partition as LoPAPR describes it, where everything is in its real address space, the device tree
//! that says so, and how a kernel is placed and entered.
//!
//! RAM begins at address zero and is one piece. Guests reach devices by hypervisor calls; devices in memory lie from 1 TiB on.

pub mod boot;
pub mod fdt;
mod long_name;
mod pci;

use crate::map::{MEMORY_UNIT, MIN_MEMORY, MapError, Region};

/// The most vCPUs of a machine.
pub const MAX_VCPUS: usize = crate::map::MAX_VCPUS;
/// How many threads a core can have.
pub const THREADS: [usize; 4] = [1, 2, 4, 8];
/// The most memory in bytes: it ends where devices begin.
pub const MAX_MEMORY: u64 = 1 << 40;
/// A 16550 with byte-wide registers one byte apart, on the VM's console. Not in the device tree: an access to it is what
/// a device in memory costs.
pub const SERIAL: Region = Region { base: 1 << 40, size: 0x1000 };
/// The registers of a service that a VM has beside its devices. Not in the device tree, and without an interrupt.
pub const SERVICE: Region = Region { base: (1 << 40) + 0x1_0000, size: 0x1000 };
/// Bytes of a page of the interrupt controller's.
pub const INTERRUPT_PAGE: u64 = 0x1_0000;
/// The interrupt management area of XIVE: four pages, of which a guest has the operating system's.
pub const TIMA: Region = Region { base: (1 << 40) + (1 << 32), size: 4 * INTERRUPT_PAGE };
/// Which page of [`TIMA`] is the operating system's.
pub const TIMA_OS_PAGE: u64 = 2;
/// Which page of [`TIMA`] is the user's.
pub const TIMA_USER_PAGE: u64 = 3;
/// The event state buffers of XIVE's sources: two pages each, see [`esb`].
pub const ESB: Region = Region {
    base: (1 << 40) + (2 << 32),
    size: 2 * INTERRUPT_PAGE * pci_source(MAX_FUNCTIONS + 1, 0) as u64,
};

/// The interrupt source of the terminal, of either controller: an edge.
pub const TERMINAL_SOURCE: u32 = 0x1000;
/// The most PCI functions of a guest; the slots of their bus from 1 on.
pub const MAX_FUNCTIONS: u64 = 31;
/// How many interrupt sources each of them has.
pub const PCI_SOURCES: u32 = 16;
/// Where the BARs of PCI functions can be: registers of 32 bits have the lower half of the address.
pub const PCI: Region = Region { base: (1 << 40) + (4 << 32) + (2 << 30), size: 64 << 20 };
/// How many bytes of that firmware gives to each function: larger pages of guests have registers of one function only.
const PCI_PIECE: u64 = 0x1_0000;

/// Returns the source of a vector of the PCI function in a slot.
#[must_use]
pub const fn pci_source(slot: u64, vector: u32) -> u32 {
    TERMINAL_SOURCE + 1 + (slot as u32 - 1) * PCI_SOURCES + vector
}

/// Returns where firmware places the BARs of the PCI function in a slot, as these registers have it.
#[must_use]
pub const fn pci_bars(slot: u64) -> u64 {
    (PCI.base & 0xffff_ffff) + slot * PCI_PIECE
}

/// The first priority of XIVE that is the hypervisor's own; those before it, which are better, are the guest's.
pub const RESERVED_PRIORITY: u32 = 7;

/// Returns how many sources of XIVE are for the guest's IPIs, from number zero on.
#[must_use]
pub const fn ipi_sources(vcpus: usize) -> u32 {
    if vcpus <= 4 { 8 } else { 2 * vcpus as u32 }
}

/// Returns the address of a source's event state buffer: the page of triggers, then the page of management.
#[must_use]
pub const fn esb(source: u32) -> u64 {
    ESB.base + source as u64 * 2 * INTERRUPT_PAGE
}

/// The interrupt controller of a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interrupts {
    /// XIVE, which the guest drives itself ("exploitation mode").
    Xive,
    /// XICS, by calls.
    Xics,
}

/// Checks that a machine can have `memory` bytes of RAM.
///
/// # Errors
///
/// Says which bound does not hold.
pub const fn check_memory(memory: u64) -> Result<(), MapError> {
    if memory < MIN_MEMORY {
        Err(MapError::TooSmall(memory))
    } else if !memory.is_multiple_of(MEMORY_UNIT) {
        Err(MapError::Unaligned(memory))
    } else if memory > MAX_MEMORY {
        Err(MapError::TooLarge { memory, most: MAX_MEMORY })
    } else {
        Ok(())
    }
}
