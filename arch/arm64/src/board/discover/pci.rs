// SPDX-License-Identifier: Apache-2.0 OR MIT
//! PCI host bridges in the device tree: Linux binding `pci-host-ecam-generic`, with addresses and interrupts as the PCI bus
//! binding to IEEE 1275 has them.

use alloc::vec::Vec;

use dtoolkit::Node;
use dtoolkit::fdt::{Fdt, FdtNode};
use dtoolkit::standard::NodeStandard;
use turnstile_firmware::Range;
use turnstile_firmware::tree::{cells, number, usable};

use super::gic::is_gic;
use super::interrupt::{self, Spi};
use super::iommu::Streams;
use super::place::Place;

/// Bytes of configuration space that a bus has: 4 KiB for each function (PCI Express Base Specification, ECAM).
const BUS: u64 = 1 << 20;
/// The first cell of a bus address: which space it is in.
const SPACE: u32 = 3 << 24;
/// Memory with 32-bit addresses.
const MEMORY32: u32 = 2 << 24;
/// Memory with 64-bit addresses.
const MEMORY64: u32 = 3 << 24;
/// The first cell of a bus address: the memory is prefetchable.
const PREFETCHABLE: u32 = 1 << 30;

/// A PCI host bridge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PciNode {
    /// Its configuration space: a MiB for each bus.
    pub configuration: Range,
    /// The first and the last bus.
    pub buses: (u8, u8),
    /// Where the CPUs reach memory on its bus.
    memory: Vec<Window>,
    /// Where its functions reach the machine's memory, coherently.
    dma: Vec<Window>,
    pins: Vec<Pin>,
    /// What of a function's address chooses among [`Self::pins`].
    unit_mask: u32,
    /// What its functions are to IOMMUs.
    streams: Streams,
}

/// Addresses on the bus, and what they are to the CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Window {
    /// The first cell of the bus address.
    space: u32,
    bus: u64,
    physical: u64,
    size: u64,
}

/// A line of `interrupt-map`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Pin {
    /// The function's address, masked.
    unit: u32,
    /// 1 is INTA.
    pin: u32,
    spi: Spi,
}

/// Finds the host bridges, in the order of the device tree.
pub fn bridges(fdt: Fdt<'_>) -> Vec<PciNode> {
    let mut found = Vec::new();
    Place::visit(fdt, &mut |place| {
        if usable(&place.node) && place.node.is_compatible("pci-host-ecam-generic") {
            found.extend(describe(fdt, place));
        }
    });
    found
}

/// Reads a host bridge; `None` if no CPU reaches its configuration space.
fn describe(fdt: Fdt<'_>, place: &Place<'_>) -> Option<PciNode> {
    let node = &place.node;
    let configuration = place.registers().next()?;
    let (first, last) = match cells(node, "bus-range").collect::<Vec<u32>>().as_slice() {
        [first, last] => (u8::try_from(*first).ok()?, u8::try_from(*last).ok()?),
        _ => (0, u8::MAX),
    };
    // It begins with the first bus.
    let there = (configuration.size / BUS).min(u64::from(last.checked_sub(first)?) + 1);
    let last = first + u8::try_from(there.checked_sub(1)?).ok()?;
    let configuration = Range { size: there * BUS, ..configuration };
    let mask: Vec<u32> = cells(node, "interrupt-map-mask").collect();
    let (unit_mask, pin_mask) = match mask.as_slice() {
        [unit, _, _, pin] => (*unit, *pin),
        _ => (!0, !0),
    };
    Some(PciNode {
        configuration,
        buses: (first, last),
        memory: memory(fdt, place),
        dma: dma(fdt, place),
        pins: pins(fdt, place, pin_mask),
        unit_mask,
        streams: Streams::read(node),
    })
}

/// Returns an integer of one or two cells.
fn integer(cells: &[u32]) -> u64 {
    cells.iter().fold(0, |value, cell| value << 32 | u64::from(*cell))
}

/// Reads the windows in `ranges` or `dma-ranges`, as they are on the bus that the bridge is on.
fn windows(fdt: Fdt<'_>, place: &Place<'_>, name: &str) -> Vec<Window> {
    let node = &place.node;
    let above = place.buses().last().copied().unwrap_or(fdt.root());
    let (parent, size) = (above.address_space().address_cells, node.address_space().size_cells);
    if !(1..=2).contains(&parent) || !(1..=2).contains(&size) {
        return Vec::new();
    }
    let (parent, size) = (parent as usize, size as usize);
    let cells: Vec<u32> = cells(node, name).collect();
    let window = |window: &[u32]| {
        let [space, high, low, rest @ ..] = window else { return None };
        let (physical, length) = rest.split_at_checked(parent)?;
        let (bus, size) = (integer(&[*high, *low]), integer(length));
        Some(Window { space: *space, bus, physical: integer(physical), size })
    };
    cells.chunks_exact(3 + parent + size).filter_map(window).collect()
}

/// Returns where the CPUs reach memory on the bridge's bus.
fn memory(fdt: Fdt<'_>, place: &Place<'_>) -> Vec<Window> {
    let mut windows = windows(fdt, place, "ranges");
    windows.retain_mut(|window| {
        let there = place.translate(Range { base: window.physical, size: window.size });
        window.physical = there.map_or(0, |range| range.base);
        there.is_some() && matches!(window.space & SPACE, MEMORY32 | MEMORY64)
    });
    windows
}

/// Returns where functions reach the machine's memory. Nowhere, if they do not see what is in caches, or a bus above the bridge says
/// something else about it.
fn dma(fdt: Fdt<'_>, place: &Place<'_>) -> Vec<Window> {
    let above = || place.buses().iter().copied().chain([fdt.root()]);
    let is_coherent = |node: &FdtNode<'_>| node.property("dma-coherent").is_some();
    let translates = |node: &FdtNode<'_>| cells(node, "dma-ranges").next().is_some();
    let coherent = is_coherent(&place.node) || above().any(|node| is_coherent(&node));
    if !coherent || above().any(|node| translates(&node)) {
        return Vec::new();
    }
    if translates(&place.node) {
        return windows(fdt, place, "dma-ranges");
    }
    Vec::from([Window { space: MEMORY64, bus: 0, physical: 0, size: u64::MAX }])
}

/// An interrupt controller that `interrupt-map` names: the cells of its own in a line, those of an address first.
struct Parent {
    phandle: u32,
    address: usize,
    specifier: usize,
    is_gic: bool,
}

impl Parent {
    fn find(fdt: Fdt<'_>, phandle: u32) -> Option<Self> {
        let found = Place::find(fdt, &|node| number(node, "phandle") == Some(phandle.into()))?;
        let count = |name| number(&found.node, name).and_then(|count| usize::try_from(count).ok());
        Some(Self {
            phandle,
            address: count("#address-cells").unwrap_or(0),
            specifier: count("#interrupt-cells")?,
            is_gic: is_gic(&found.node),
        })
    }
}

/// Reads `interrupt-map` as far as it leads to GICs.
fn pins(fdt: Fdt<'_>, place: &Place<'_>, pin_mask: u32) -> Vec<Pin> {
    let cells: Vec<u32> = cells(&place.node, "interrupt-map").collect();
    let mut rest = cells.as_slice();
    let (mut pins, mut last) = (Vec::new(), None);
    // The function's address, its pin, and the controller, which says how many cells are its own.
    while let [unit, _, _, pin, phandle, line @ ..] = rest {
        // Most lines lead to the same one.
        let known = last.take().filter(|last: &Parent| last.phandle == *phandle);
        let Some(parent) = known.or_else(|| Parent::find(fdt, *phandle)) else { break };
        let Some((_, line)) = line.split_at_checked(parent.address) else { break };
        let Some((specifier, next)) = line.split_at_checked(parent.specifier) else { break };
        if let Some(spi) = interrupt::spi(specifier).filter(|_| parent.is_gic) {
            pins.push(Pin { unit: *unit, pin: pin & pin_mask, spi });
        }
        (rest, last) = (next, Some(parent));
    }
    pins
}

/// Translates an address by a window of `size` bytes at `from`, which is at `to` on the other side.
fn translate(address: u64, from: u64, to: u64, size: u64) -> Option<u64> {
    let offset = address.checked_sub(from).filter(|offset| *offset < size)?;
    to.checked_add(offset)
}

impl PciNode {
    /// Returns where a function's configuration space is; `None` if there is no such bus.
    pub fn function(&self, bus: u8, device: u8, function: u8) -> Option<u64> {
        let (first, last) = self.buses;
        let bus = (first..=last).contains(&bus).then(|| u64::from(bus - first))?;
        Some(bus << 20 | u64::from(device & 0x1f) << 15 | u64::from(function & 7) << 12)
    }

    /// Returns the bus addresses at which memory may be placed: those of 32 bits, which every function takes, if there are any.
    pub fn room(&self) -> Option<(u64, u64)> {
        let of = |space, prefetchable| {
            let kind = move |window: &&Window| window.space & (SPACE | PREFETCHABLE) == space | prefetchable;
            self.memory.iter().find(kind)
        };
        let kinds = [(MEMORY32, 0), (MEMORY32, PREFETCHABLE), (MEMORY64, 0), (MEMORY64, PREFETCHABLE)];
        let window = kinds.into_iter().find_map(|(space, prefetchable)| of(space, prefetchable))?;
        Some((window.bus, window.size))
    }

    /// Returns the physical address of a bus address of memory.
    pub fn physical(&self, bus: u64) -> Option<u64> {
        self.memory.iter().find_map(|window| translate(bus, window.bus, window.physical, window.size))
    }

    /// Returns the bus address at which functions reach a physical address.
    pub fn reach(&self, physical: u64) -> Option<u64> {
        self.dma.iter().find_map(|window| translate(physical, window.physical, window.bus, window.size))
    }

    /// The same for all of a range, which lies together there, too.
    pub fn reach_all(&self, Range { base, size }: Range) -> Option<u64> {
        let last = size.checked_sub(1)?;
        let bus = self.reach(base)?;
        (self.reach(base.checked_add(last)?)? == bus.checked_add(last)?).then_some(bus)
    }

    /// Returns the IOMMU that a function is behind, by its phandle, and which stream it is there.
    pub fn stream(&self, bus: u8, device: u8, function: u8) -> Option<(u32, u32)> {
        self.streams.of(u16::from_be_bytes([bus, device << 3 | function & 7]))
    }

    /// Returns a number above those of all streams that its functions are to an IOMMU.
    pub fn streams(&self, phandle: u32) -> u64 {
        self.streams.end(phandle)
    }

    /// Returns the interrupt that a pin of a function on the first bus raises: 1 is INTA.
    pub fn interrupt(&self, device: u8, function: u8, pin: u8) -> Option<Spi> {
        let unit = u32::from(self.buses.0) << 16 | u32::from(device) << 11 | u32::from(function) << 8;
        let is_it = |line: &&Pin| (line.unit, line.pin) == (unit & self.unit_mask, pin.into());
        self.pins.iter().find(is_it).map(|line| line.spi)
    }
}

#[cfg(test)]
pub(crate) mod tests;
