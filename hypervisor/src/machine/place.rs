// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where devices are that a service can be.

use core::ops::Range;

/// How a guest reaches a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(dead_code, reason = "no architecture has all of them")]
pub enum Reach {
    /// By addresses.
    Memory,
    /// By ports.
    Ports,
    /// By calls of the hypervisor.
    Calls,
}

/// Where a device is that a service can be.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// How it is reached.
    pub reach: Reach,
    /// The first address or port.
    pub base: u64,
    /// How many there are.
    pub size: u64,
    /// Its interrupt line, as [`set_line`] knows it.
    pub line: u32,
}

/// Where a PCI function is that a service is.
#[derive(Clone, Debug)]
pub struct Function {
    /// The page of addresses at which its configuration space is, if there is one.
    pub configuration: Option<u64>,
    /// At which address firmware places its BARs; 0: nowhere.
    pub bars: u64,
    /// What its BARs can decode, as guest physical addresses. Where they are beyond 4 GiB, BARs have the lower halves of them.
    pub window: Range<u64>,
}

impl Function {
    /// Returns the guest physical address of one in a BAR.
    pub const fn address(&self, bar: u64) -> u64 {
        const HALF: u64 = 0xffff_ffff;
        if bar <= HALF { self.window.start & !HALF | bar } else { bar }
    }
}

/// Where a service is among its VM's devices.
#[derive(Clone, Debug)]
pub enum Site {
    /// A device at a place.
    Device(Place),
    /// A PCI function.
    Function(Function),
    /// A virtio device behind MMIO. A message to the address of its registers is an edge of its line.
    #[cfg_attr(not(target_arch = "aarch64"), allow(dead_code, reason = "other machines have PCI alone"))]
    Mmio(Place),
}
