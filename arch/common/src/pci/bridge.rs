// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A host bridge of the machine, as architectures reach it, and what is behind it as it tells of it.

use core::fmt;

use alloc::vec::Vec;

use pci_types::{ConfigRegionAccess, PciAddress};
use turnstile_firmware::Range;

/// Bytes of a configuration space that a program sees: all that is not PCI Express's alone.
pub const CONFIGURATION: usize = 256;

/// How a function interrupts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wiring {
    /// By its pin: 1 is INTA.
    Pin(u8),
    /// By messages: the physical address of its table of MSI-X. It is enabled, and the function masks all vectors while
    /// [`HostBridge::connect`] sets them up.
    Messages {
        /// The table.
        table: u64,
        /// Its entries.
        vectors: u16,
    },
}

/// How a function reaches memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reach {
    /// The bus address of the memory's first byte.
    pub bus: u64,
    /// Whether an IOMMU keeps the function from all other memory. Its addresses are the physical ones then: a function that the machine's
    /// owner has left out of the translation reaches the right bytes, too.
    pub guarded: bool,
}

/// Why a function is lent no memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unlent {
    /// No IOMMU keeps it to what it has, or there is no room for tables: it reaches what it has reached before.
    NoTables,
    /// The IOMMU does not answer: it is not known what the function reaches. It may be nothing, and it may be what was to be lent.
    NoAnswer,
}

/// A function has reached for memory that is not its own, and was refused it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Who, as the IOMMU knows it: it may be a bridge in front of the function.
    pub function: PciAddress,
    /// The bus address, if the IOMMU tells it.
    pub address: Option<u64>,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { function, address } = self;
        let (bus, device, number) = (function.bus(), function.device(), function.function());
        write!(f, "PCI function {bus:02x}:{device:02x}.{number} reached for ")?;
        match address {
            Some(address) => write!(f, "{address:#x}, which is not its own"),
            None => f.write_str("what is not its own"),
        }
    }
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
    /// Reads a register of 32 bits of a function, at this physical address. `None` if it cannot be mapped.
    ///
    /// # Safety
    /// The address is a multiple of four, in a BAR that a function decodes, and reading the register does no harm.
    unsafe fn load(&self, address: u64) -> Option<u32>;
    /// Writes one, behind which it is read. `None` as with [`load`](Self::load).
    ///
    /// # Safety
    /// As with `load`, for writing this value.
    unsafe fn store(&self, address: u64, value: u32) -> Option<()>;
    /// Lets a function reach this memory, of whole pages: behind an IOMMU this alone, else all memory. A function for which this has not been
    /// called reaches nothing behind an IOMMU. If it is `trusted`, it may reach all memory even so, by its physical addresses. `None` if it cannot
    /// reach that.
    fn reach(&self, function: PciAddress, memory: Range, trusted: bool) -> Option<Reach>;
    /// Lets a function that has memory reach these pieces of whole pages, too, until [`take_back`](Self::take_back). It may not master the bus meanwhile. Returns
    /// the bus address of each.
    ///
    /// # Errors
    /// See [`Unlent`].
    fn lend(&self, _function: PciAddress, _pieces: &[Range]) -> Result<Vec<u64>, Unlent> {
        Err(Unlent::NoTables)
    }
    /// Takes back what a function was lent, if it was: it does not reach that any more when this returns, by nothing that an IOMMU has cached. False if
    /// the IOMMU does not say so.
    #[must_use = "nobody else may be given memory that it still reaches"]
    fn take_back(&self, _function: PciAddress) -> bool {
        true
    }
    /// Has an IOMMU in front of its functions interrupt a CPU, by its index, when it has refused something. Returns the number by which
    /// [`interrupt`](crate::monitor::CommonMonitor::interrupt) is told of it. `None` if it has none, or interrupts nobody.
    fn watch(&self, _cpu: usize) -> Option<u32> {
        None
    }
    /// Hands over what an IOMMU has refused since the last time: a bounded number of faults, of each function its first one alone. It records no
    /// other ones of that function, so nobody keeps a CPU busy with faults. Without an IOMMU there are none.
    fn faults(&self, _take: &mut dyn FnMut(Fault)) {}
    /// Says whether functions can be connected by messages.
    fn takes_messages(&self) -> bool;
    /// Has a function interrupt a CPU, by its index. Returns the number by which [`interrupt`](crate::monitor::CommonMonitor::interrupt) is told of
    /// it. It is masked.
    fn connect(&self, function: PciAddress, wiring: Wiring, cpu: usize) -> Option<u32>;
    /// Masks or unmasks a connected interrupt. One that has come while it was masked comes when it is unmasked. An interrupt is masked by the CPU
    /// that is told of it, and unmasked by any: by who has handled it, or by a service that begins anew.
    fn mask(&self, number: u32, masked: bool);
}
