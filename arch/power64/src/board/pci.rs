// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The machine's PCI host bridges (PHB4 of POWER9, PHB5 of POWER10), as the firmware describes and drives them (skiboot's
//! `doc/device-tree/pci.rst` and `doc/opal-api`). It has numbered the buses, opened the root ports, and placed no BAR.
//!
//! A bridge knows partitionable endpoints: functions that fail, and are kept away, together. Here all functions of a bridge that
//! services drive are one, number 0: the firmware leaves the window of memory to that.

use alloc::vec::Vec;

use dtoolkit::fdt::{Fdt, FdtNode};
use dtoolkit::{Node, Property};
use pci_types::{ConfigRegionAccess, PciAddress};
use turnstile_firmware::tree::{cells, number, usable};

use super::opal::{self, Token};

#[cfg(test)]
mod tests;

/// A host bridge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Phb {
    /// What the firmware calls it.
    id: u64,
    /// Its buses, the first and the last.
    pub buses: (u8, u8),
    /// Where memory with bus addresses of 32 bits is, if it has such.
    pub window: Option<Window>,
    /// The number of the first interrupt source that messages trigger, and how many there are.
    messages: (u32, u32),
}

/// Memory behind a host bridge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// The bus address.
    pub bus: u64,
    /// The physical address.
    pub host: u64,
    /// Bytes.
    pub size: u64,
}

/// A message of a function's: what it writes where, and the interrupt source that this triggers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// The bus address.
    pub address: u64,
    /// What is written.
    pub data: u32,
    /// The source.
    pub source: u32,
}

/// The partitionable endpoint of all functions.
const PE: u64 = 0;
/// Functions reach physical addresses below this: all RAM is there, and no device.
const REACHED: u64 = 1 << 49;
/// The bit of a bus address that selects the second of a partitionable endpoint's two windows on memory.
const SECOND: u64 = 1 << 59;
/// The end of bus addresses of 32 bits: the highest of them are BARs, or messages.
const LOW: u64 = 1 << 32;
/// Where messages of 32 bits begin.
const MESSAGES: u64 = 0xffff_0000;

/// Finds the host bridges that may be used, in the order of the device tree.
pub fn bridges(fdt: Fdt<'_>) -> Vec<Phb> {
    fdt.root().children().filter_map(bridge).collect()
}

fn bridge(node: FdtNode<'_>) -> Option<Phb> {
    let compatible = node.property("compatible")?;
    let mut names = compatible.value().split(|byte| *byte == 0);
    if !names.any(|name| name == b"ibm,ioda3-phb") || !usable(&node) {
        return None;
    }
    let mut buses = cells(&node, "bus-range").map(|bus| bus.min(u8::MAX.into()) as u8);
    let mut messages = cells(&node, "ibm,opal-msi-ranges");
    Some(Phb {
        id: number(&node, "ibm,opal-phbid")?,
        buses: (buses.next().unwrap_or(0), buses.next().unwrap_or(u8::MAX)),
        window: window(&node),
        messages: (messages.next().unwrap_or(0), messages.next().unwrap_or(0)),
    })
}

/// Reads the window of memory with bus addresses of 32 bits: `ranges` has three cells of a bus address, of which the first says what is
/// there, two of a physical one, and two of a size.
fn window(node: &FdtNode<'_>) -> Option<Window> {
    const SPACE: u32 = 0x0300_0000;
    const MEMORY_32: u32 = 0x0200_0000;
    let all: Vec<u32> = cells(node, "ranges").collect();
    let wide = |high: u32, low: u32| u64::from(high) << 32 | u64::from(low);
    all.as_chunks::<7>().0.iter().find_map(|range| {
        let [space, bus, bus_low, host, host_low, size, size_low] = *range;
        let window =
            Window { bus: wide(bus, bus_low), host: wide(host, host_low), size: wide(size, size_low) };
        (space & SPACE == MEMORY_32 && window.size != 0).then_some(window)
    })
}

/// A function's number on its bridge.
fn requester(function: PciAddress) -> u64 {
    u64::from(function.bus()) << 8 | u64::from(function.device()) << 3 | u64::from(function.function())
}

impl Phb {
    /// Returns the physical address of a bus address of memory.
    pub fn physical(&self, bus: u64) -> Option<u64> {
        let window = self.window?;
        let offset = bus.checked_sub(window.bus).filter(|offset| *offset < window.size)?;
        window.host.checked_add(offset)
    }

    /// Lets a function reach all RAM; returns the bus address of a physical one.
    ///
    /// It is the same, because an emulated function may know of no translation (VIRTIO_F_ACCESS_PLATFORM), but where the bridge itself
    /// has something: that is reached by the second window.
    pub fn reach(&self, function: PciAddress, physical: u64) -> Option<u64> {
        /// All bits of the number of a bus, of a device and of a function are compared.
        const BUS: u64 = 7;
        const DEVICE: u64 = 1;
        const FUNCTION: u64 = 1;
        const MAP: u64 = 1;
        const MEMORY_AND_DMA: u64 = 3;
        if physical >= REACHED {
            return None;
        }
        let belongs = [self.id, PE, requester(function), BUS, DEVICE, FUNCTION, MAP];
        // SAFETY: the function may do nothing yet.
        unsafe { opal::call(Token::PciSetPe, &belongs) }.ok()?;
        // SAFETY: nobody has used the endpoint but functions of services, which are trusted.
        unsafe { opal::call(Token::PciEehFreezeClear, &[self.id, PE, MEMORY_AND_DMA]) }.ok()?;
        for (window, start) in [(2 * PE, 0), (2 * PE + 1, SECOND)] {
            // SAFETY: it may do so: what drives its function is trusted.
            unsafe { opal::call(Token::PciMapPeDmaWindowReal, &[self.id, PE, window, start, REACHED]) }
                .ok()?;
        }
        let own = self.window.map_or(MESSAGES, |window| window.bus)..LOW;
        Some(if own.contains(&physical) { physical | SECOND } else { physical })
    }

    /// Returns the message with this number, which functions may send from now on; `None` if there are not so many.
    pub fn message(&self, number: u32) -> Option<Message> {
        /// Messages are given one by one.
        const ONE: u64 = 1;
        let (first, count) = self.messages;
        if number >= count {
            return None;
        }
        let (mut address, mut data) = (0u64, 0u32);
        let arguments = [self.id, PE, number.into(), ONE, &raw mut address as u64, &raw mut data as u64];
        // SAFETY: a source that nobody uses yet; the second service writes its two results.
        unsafe {
            opal::call(Token::PciSetXivePe, &arguments[..3]).ok()?;
            opal::call(Token::GetMsi64, &arguments).ok()?;
        }
        let (address, data) = (u64::from_be(address), u32::from_be(data));
        Some(Message { address, data, source: first.checked_add(number)? })
    }
}

impl ConfigRegionAccess for Phb {
    /// Where nothing answers, all bits are ones.
    unsafe fn read(&self, address: PciAddress, offset: u16) -> u32 {
        let mut value = u32::MAX;
        let arguments = [self.id, requester(address), offset.into(), &raw mut value as u64];
        // SAFETY: it writes what it has read; that reading has no effect is the caller's promise.
        match unsafe { opal::call(Token::PciConfigReadWord, &arguments) } {
            Ok(_) => u32::from_be(value),
            Err(_) => u32::MAX,
        }
    }

    /// What nothing takes is lost.
    unsafe fn write(&self, address: PciAddress, offset: u16, value: u32) {
        let arguments = [self.id, requester(address), offset.into(), value.into()];
        // SAFETY: the caller's promise.
        let _ = unsafe { opal::call(Token::PciConfigWriteWord, &arguments) };
    }
}
