// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The machine `pseries`: a partition as LoPAPR describes it, where everything is in its real address space, the device tree
//! that says so, and how a kernel is placed and entered.
//!
//! RAM begins at address zero and is one piece. Devices are reached by hypervisor calls; what of them is memory lies from
//! 1 TiB on.

pub mod boot;
pub mod fdt;

use crate::map::{MAX_VCPUS, MEMORY_UNIT, MIN_MEMORY, MapError, Region};

/// The most memory in bytes: it ends where devices begin.
pub const MAX_MEMORY: u64 = 1 << 40;
/// A 16550 with byte-wide registers one byte apart, on the VM's console. Not in the device tree: an access to it is what
/// a device in memory costs.
pub const SERIAL: Region = Region { base: 1 << 40, size: 0x1000 };
/// Bytes of a page of the interrupt controller's.
pub const INTERRUPT_PAGE: u64 = 0x1_0000;
/// The interrupt management area of XIVE: four pages, of which a guest has the third (the operating system's).
pub const TIMA: Region = Region { base: (1 << 40) + (1 << 32), size: 4 * INTERRUPT_PAGE };
/// Which page of [`TIMA`] is the operating system's.
pub const TIMA_OS_PAGE: u64 = 2;
/// Which page of [`TIMA`] is the user's.
pub const TIMA_USER_PAGE: u64 = 3;
/// The event state buffers of XIVE's sources: two pages each, see [`esb`].
pub const ESB: Region = Region { base: (1 << 40) + (2 << 32), size: 2 * INTERRUPT_PAGE * (SOURCES as u64) };

/// The first interrupt source that is an IPI: one for each vCPU. With XICS they are no sources.
pub const FIRST_IPI: u32 = 0;
/// The interrupt source of the terminal, of either controller: an edge.
pub const TERMINAL_SOURCE: u32 = 0x1000;
/// Interrupt sources have numbers below this.
pub const SOURCES: u32 = TERMINAL_SOURCE + 1;
/// The most favoured priority that is the hypervisor's own: a guest uses those below, which come first.
pub const RESERVED_PRIORITY: u8 = 7;

/// The unit address of the terminal, by which calls name it.
pub const TERMINAL: u32 = 0x7100_0000;
/// The hypervisor call to which the firmware's entry leads, with the address of the arguments in R4.
pub const RTAS_CALL: u32 = 0xf000;
/// Bytes that are kept for the firmware's entry.
pub const RTAS_SIZE: u64 = 0x1_0000;

/// Returns the address of the event state buffer of a source: the page of management, then the page of triggers.
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

/// Checks that a machine of `vcpus` vCPUs and `memory` bytes of RAM can be had.
///
/// # Errors
///
/// Says which bound does not hold.
pub const fn check(vcpus: usize, memory: u64) -> Result<(), MapError> {
    if vcpus == 0 {
        return Err(MapError::NoVcpus);
    }
    if vcpus > MAX_VCPUS {
        return Err(MapError::TooManyVcpus(vcpus));
    }
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
