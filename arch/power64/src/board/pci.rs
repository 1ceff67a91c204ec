// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The machine's PCI host bridges (PHB4 of POWER9, PHB5 of POWER10), as the firmware describes and drives them (skiboot's
//! `doc/device-tree/pci.rst` and `doc/opal-api`). It has numbered the buses, opened the root ports, and placed no BAR.
//!
//! A bridge knows partitionable endpoints: functions that fail, and are kept away, together. Each function that a service drives is one, for what it
//! reaches and for its messages. Its registers are in the window of memory that the firmware leaves to number 0.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::alloc::Layout;
use core::ptr::NonNull;

use dtoolkit::fdt::{Fdt, FdtNode};
use dtoolkit::{Node, Property};
use pci_types::{ConfigRegionAccess, PciAddress};
use turnstile_firmware::Range;
use turnstile_firmware::tree::{cells, number, usable};

use super::opal::{self, Token};

#[cfg(test)]
pub(crate) mod tests;

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
    /// How many partitionable endpoints it has.
    pub endpoints: u64,
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

/// Bytes of a page that a table leads to.
const PAGE: u64 = 4096;
/// Entries of a table: twice as many as lead somewhere. QEMU takes addresses modulo what a table covers, and what is behind a function's memory is to
/// lead nowhere there, too.
const ENTRIES: usize = 1024;
/// Of them lead somewhere at most, from the first one on.
const MOST: usize = ENTRIES / 2;
/// The first page of bus addresses that leads somewhere: address 0 is nobody's.
const FIRST: u64 = 1;
/// What may be done to a page (PHB4 specification, translation control entries): it is read, and written.
const READ_WRITE: u64 = 3;
/// Bytes of a page of memory that an endpoint is lent, whose addresses have [`SECOND`].
const LARGE: u64 = 2 << 20;
/// Bytes of the smallest table.
const SMALLEST: u64 = 4096;
/// What OPAL is to forget of what a bridge has cached of tables: all of an endpoint.
const KILL_ENDPOINT: u64 = 1;
/// What OPAL says of an endpoint whose DMA is stopped.
const FROZEN: u8 = 2;

/// A table of translation control entries, as the bridge reads it: big-endian, aligned to its size.
#[repr(C, align(8192))]
struct Table([u64; ENTRIES]);

impl Table {
    /// Leads to this memory, of whole pages. `None` if that is too much.
    fn new(memory: Range) -> Option<Self> {
        let mut table = Self([0; ENTRIES]);
        let mut entries = table.0.iter_mut().take(MOST).skip(FIRST as usize);
        for page in 0..memory.size.div_ceil(PAGE) {
            *entries.next()? = (memory.base.checked_add(page * PAGE)? | READ_WRITE).to_be();
        }
        Some(table)
    }
}

/// A table of memory that an endpoint is lent: on the heap, aligned to its size, a power of two.
#[derive(Debug)]
pub struct LentTable {
    entries: NonNull<u64>,
    layout: Layout,
}

// SAFETY: it is the owner's alone, and the bridge's, which reads it.
unsafe impl Send for LentTable {}

impl LentTable {
    /// Makes one for these pieces, which leads nowhere. `None` if they are not of whole large pages, or there is no memory.
    pub fn new(pieces: &[Range]) -> Option<Self> {
        if pieces.iter().any(|piece| (piece.base | piece.size) & (LARGE - 1) != 0) {
            return None;
        }
        let pages: u64 = pieces.iter().map(|piece| piece.size / LARGE).sum();
        let bytes = (pages * 8).next_power_of_two().max(SMALLEST) as usize;
        let layout = Layout::from_size_align(bytes, bytes).ok()?;
        // SAFETY: it has a size.
        let entries = NonNull::new(unsafe { alloc::alloc::alloc_zeroed(layout) })?.cast();
        Some(Self { entries, layout })
    }

    /// Sets an entry, if there is one with this number.
    fn set(&self, number: u64, entry: u64) -> Option<()> {
        let number = usize::try_from(number).ok().filter(|number| *number < self.layout.size() / 8)?;
        // SAFETY: within the table. The bridge may read it meanwhile, so it is one store.
        unsafe { self.entries.add(number).write_volatile(entry.to_be()) };
        Some(())
    }

    fn address(&self) -> u64 {
        self.entries.as_ptr().expose_provenance() as u64
    }

    const fn bytes(&self) -> u64 {
        self.layout.size() as u64
    }
}

impl Drop for LentTable {
    fn drop(&mut self) {
        // SAFETY: made by `new` with this layout.
        unsafe { alloc::alloc::dealloc(self.entries.cast().as_ptr(), self.layout) };
    }
}

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
        endpoints: number(&node, "ibm,opal-num-pes").unwrap_or(1),
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

    /// Makes a function this partitionable endpoint. Whatever stopped that before is forgotten.
    ///
    /// # Errors
    /// When the firmware refuses.
    pub fn separate(&self, function: PciAddress, endpoint: u64) -> Result<(), opal::Error> {
        /// All bits of the number of a bus, of a device and of a function are compared.
        const BUS: u64 = 7;
        const DEVICE: u64 = 1;
        const FUNCTION: u64 = 1;
        const MAP: u64 = 1;
        const MEMORY_AND_DMA: u64 = 3;
        let belongs = [self.id, endpoint, requester(function), BUS, DEVICE, FUNCTION, MAP];
        // SAFETY: the function may do nothing yet.
        unsafe { opal::call(Token::PciSetPe, &belongs) }?;
        // SAFETY: nobody else is this endpoint.
        unsafe { opal::call(Token::PciEehFreezeClear, &[self.id, endpoint, MEMORY_AND_DMA]) }?;
        Ok(())
    }

    /// Lets an endpoint reach all RAM; returns the bus address of a physical one.
    ///
    /// It is the same, because an emulated function may know of no translation (VIRTIO_F_ACCESS_PLATFORM), but where the bridge itself
    /// has something: that is reached by the second window.
    pub fn reach_all(&self, endpoint: u64, physical: u64) -> Option<u64> {
        if physical >= REACHED {
            return None;
        }
        for (window, start) in [(2 * endpoint, 0), (2 * endpoint + 1, SECOND)] {
            // SAFETY: it may do so: what drives its function is trusted.
            unsafe { opal::call(Token::PciMapPeDmaWindowReal, &[self.id, endpoint, window, start, REACHED]) }
                .ok()?;
        }
        let own = self.window.map_or(MESSAGES, |window| window.bus)..LOW;
        Some(if own.contains(&physical) { physical | SECOND } else { physical })
    }

    /// Lets an endpoint reach this memory, of whole pages, and nothing else: by a table that is made for it and stays. Returns the bus address of the
    /// first byte. What the table does not cover, and the second window, lead nowhere.
    pub fn reach_only(&self, endpoint: u64, memory: Range) -> Option<u64> {
        const LEVELS: u64 = 1;
        let table: &'static Table = Box::leak(Box::new(Table::new(memory)?));
        let at = (&raw const table.0).expose_provenance() as u64;
        let bytes = size_of::<Table>() as u64;
        // SAFETY: the table is there for ever, and leads to what the function's program may let it reach. The bridge reads it behind the stores of the firmware
        // to its registers, before which that orders all others.
        unsafe {
            opal::call(Token::PciMapPeDmaWindow, &[self.id, endpoint, 2 * endpoint, LEVELS, at, bytes, PAGE])
        }
        .ok()?;
        Some(FIRST * PAGE)
    }

    /// Lets an endpoint reach these pieces of memory, of whole large pages, too, by its second window: one behind the other, from its first address on. They
    /// are in `table`, which [`Self::take_back`] leaves. Returns the bus address of each piece. `None` if the firmware refuses.
    pub fn lend(&self, endpoint: u64, pieces: &[Range], table: &LentTable) -> Option<Vec<u64>> {
        const LEVELS: u64 = 1;
        let mut next = 0;
        let mut buses = Vec::new();
        for piece in pieces {
            buses.push(SECOND | (next * LARGE));
            for page in 0..piece.size / LARGE {
                table.set(next, (piece.base + page * LARGE) | READ_WRITE)?;
                next += 1;
            }
        }
        let (at, bytes) = (table.address(), table.bytes());
        // SAFETY: the table is there until it is taken back, and leads to memory that the function's program may let it reach. It is read behind all stores
        // before, as `reach_only` says.
        unsafe {
            opal::call(
                Token::PciMapPeDmaWindow,
                &[self.id, endpoint, 2 * endpoint + 1, LEVELS, at, bytes, LARGE],
            )
        }
        .ok()?;
        Some(buses)
    }

    /// Has an endpoint's second window lead nowhere, waits until the bridge has forgotten what it had cached of its tables, and until what was on its way
    /// has arrived.
    ///
    /// # Errors
    /// When the firmware refuses, or does not come to an end: then the endpoint may still reach what it was lent.
    pub fn take_back(&self, endpoint: u64) -> Result<(), opal::Error> {
        // SAFETY: a window without a table leads nowhere, and what is forgotten is read anew.
        unsafe {
            opal::call(Token::PciMapPeDmaWindow, &[self.id, endpoint, 2 * endpoint + 1, 0, 0, 0, LARGE])?;
            opal::call(Token::PciTceKill, &[self.id, KILL_ENDPOINT, endpoint, LARGE, 0, 0])?;
        }
        Ok(())
    }

    /// Says whether an endpoint has been stopped, because it has done what it may not.
    pub fn is_frozen(&self, endpoint: u64) -> bool {
        let (mut state, mut kind, mut status) = (0u8, 0u16, 0u64);
        let results = [&raw mut state as u64, &raw mut kind as u64, &raw mut status as u64];
        let [state_at, kind_at, status_at] = results;
        // SAFETY: it writes its three results.
        let asked = unsafe {
            opal::call(Token::PciEehFreezeStatus, &[self.id, endpoint, state_at, kind_at, status_at])
        };
        asked.is_ok() && state & FROZEN != 0
    }

    /// Returns the message with this number, which an endpoint may send from now on; `None` if there are not so many.
    pub fn message(&self, endpoint: u64, number: u32) -> Option<Message> {
        /// Messages are given one by one.
        const ONE: u64 = 1;
        let (first, count) = self.messages;
        if number >= count {
            return None;
        }
        let (mut address, mut data) = (0u64, 0u32);
        let arguments =
            [self.id, endpoint, number.into(), ONE, &raw mut address as u64, &raw mut data as u64];
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
