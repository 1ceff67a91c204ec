// SPDX-License-Identifier: Apache-2.0 OR MIT
//! IOMMUs in the device tree: Linux binding `arm,smmu-v3`, and what of them PCI host bridges are behind, by `iommu-map`.

use alloc::vec::Vec;

use dtoolkit::fdt::{Fdt, FdtNode};
use dtoolkit::standard::NodeStandard;
use dtoolkit::{Node, Property};
use turnstile_firmware::Range;
use turnstile_firmware::tree::{cells, number, usable};

use super::interrupt::{self, Spi};
use super::place::Place;

/// Bytes of an SMMU's two pages of registers (Arm IHI 0070, section 6.1).
const REGISTERS: u64 = 0x2_0000;

/// An SMMUv3.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SmmuNode {
    /// What other nodes call it.
    pub phandle: u32,
    /// Its registers.
    pub registers: Range,
    /// The interrupt of its event queue, if it is wired.
    pub events: Option<Spi>,
}

/// Finds the SMMUs, in the order of the device tree.
pub fn smmus(fdt: Fdt<'_>) -> Vec<SmmuNode> {
    let mut found = Vec::new();
    Place::visit(fdt, &mut |place| {
        if usable(&place.node) && place.node.is_compatible("arm,smmu-v3") {
            found.extend(describe(place));
        }
    });
    found
}

fn describe(place: &Place<'_>) -> Option<SmmuNode> {
    let phandle = number(&place.node, "phandle").and_then(|phandle| u32::try_from(phandle).ok())?;
    let registers = place.registers().next().filter(|registers| registers.size >= REGISTERS)?;
    Some(SmmuNode { phandle, registers, events: events(&place.node) })
}

/// Reads the interrupt with the name `eventq`, which a GIC's three cells describe.
fn events(node: &FdtNode<'_>) -> Option<Spi> {
    let names = node.property("interrupt-names")?;
    let at = names.value().split(|byte| *byte == 0).position(|name| name == b"eventq")?;
    let cells: Vec<u32> = cells(node, "interrupts").collect();
    interrupt::spi(cells.get(3 * at..3 * at + 3)?)
}

/// A line of `iommu-map`: functions, and the streams that they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Line {
    requester: u32,
    phandle: u32,
    stream: u32,
    length: u32,
}

/// Which streams the functions behind a host bridge are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Streams {
    lines: Vec<Line>,
    /// What of a requester's number counts.
    mask: u32,
}

impl Streams {
    /// Reads those of a bridge; none if nothing is said.
    pub(super) fn read(node: &FdtNode<'_>) -> Self {
        let map: Vec<u32> = cells(node, "iommu-map").collect();
        let line =
            |&[requester, phandle, stream, length]: &[u32; 4]| Line { requester, phandle, stream, length };
        let lines = map.as_chunks().0.iter().map(line).collect();
        let mask = cells(node, "iommu-map-mask").next().unwrap_or(!0);
        Self { lines, mask }
    }

    /// Returns the IOMMU that a requester is behind, by its phandle, and which stream it is there.
    pub(super) fn of(&self, requester: u16) -> Option<(u32, u32)> {
        let requester = u32::from(requester) & self.mask;
        self.lines.iter().find_map(|line| {
            let offset = requester.checked_sub(line.requester).filter(|offset| *offset < line.length)?;
            Some((line.phandle, line.stream.checked_add(offset)?))
        })
    }

    /// Returns a number above those of all streams of an IOMMU.
    pub(super) fn end(&self, phandle: u32) -> u64 {
        let own = self.lines.iter().filter(|line| line.phandle == phandle);
        own.map(|line| u64::from(line.stream) + u64::from(line.length)).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests;
