// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The PCI host bridges behind which services have devices.

use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, Ordering};

use dtoolkit::fdt::Fdt;
use pci_types::{ConfigRegionAccess, PciAddress};
use turnstile_arch_common::pci::{HostBridge, Reach, Wiring};
use turnstile_firmware::Range;

use super::device;
use crate::board::pci::{self, Message, Phb};
use crate::cpu::PerCpu;

/// A host bridge.
pub struct Bridge {
    phb: Phb,
    /// How many of its messages are taken.
    taken: AtomicU32,
    /// The CPUs, by their indexes.
    cpus: &'static [&'static PerCpu],
}

impl Bridge {
    /// Finds the host bridges of the machine with this device tree and these CPUs. Nothing of them is touched.
    pub fn find(fdt: Fdt<'_>, cpus: &'static [&'static PerCpu]) -> Vec<Self> {
        let bridge = |phb| Self { phb, taken: AtomicU32::new(0), cpus };
        pci::bridges(fdt).into_iter().map(bridge).collect()
    }
}

impl ConfigRegionAccess for Bridge {
    unsafe fn read(&self, address: PciAddress, offset: u16) -> u32 {
        // SAFETY: the caller's promise.
        unsafe { self.phb.read(address, offset) }
    }

    unsafe fn write(&self, address: PciAddress, offset: u16, value: u32) {
        // SAFETY: the caller's promise.
        unsafe { self.phb.write(address, offset, value) };
    }
}

impl HostBridge for Bridge {
    fn buses(&self) -> (u8, u8) {
        self.phb.buses
    }

    fn room(&self) -> Option<(u64, u64)> {
        self.phb.window.map(|window| (window.bus, window.size))
    }

    fn physical(&self, bus: u64) -> Option<u64> {
        self.phb.physical(bus)
    }

    fn reach(&self, function: PciAddress, memory: Range) -> Option<Reach> {
        Some(Reach { bus: self.phb.reach(function, memory.base)?, guarded: false })
    }

    fn takes_messages(&self) -> bool {
        true
    }

    /// By messages alone: the four pins are those of all functions behind the bridge, so one service could mask another's.
    fn connect(&self, _: PciAddress, wiring: Wiring, cpu: usize) -> Option<u32> {
        let Wiring::Messages { table, vectors } = wiring else { return None };
        let pir = self.cpus.get(cpu)?.pir;
        let message = self.phb.message(self.taken.fetch_add(1, Ordering::Relaxed))?;
        let number = device::connect(message.source, cpu, pir).ok()?;
        for vector in 0..vectors.into() {
            fill(table + vector * ENTRY, message);
        }
        Some(number)
    }

    fn mask(&self, number: u32, masked: bool) {
        device::mask(number, masked);
    }
}

/// Bytes of an entry of a table of messages (PCI Local Bus Specification 3.0, section 6.8.2).
const ENTRY: u64 = 16;

/// Writes an entry of a table of messages, not masked: whichever vector the driver chooses, it is the same message.
fn fill(entry: u64, message: Message) {
    let words = [message.address as u32, (message.address >> 32) as u32, message.data, 0];
    for (offset, word) in (0..).step_by(4).zip(words) {
        store(entry + offset, word);
    }
}

/// Stores to a register of a PCI function, which is little-endian.
fn store(address: u64, value: u32) {
    #[cfg(target_os = "none")]
    // SAFETY: in the table of messages of a function that nobody drives yet; messages of functions interrupt, and no more.
    unsafe {
        crate::cpu::inhibited::store32(address, value.swap_bytes());
    }
    #[cfg(not(target_os = "none"))]
    {
        let _ = address;
        crate::cpu::regs::fakes::write("MSIX", value.into());
    }
}
