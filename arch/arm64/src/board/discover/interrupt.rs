// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Interrupts of devices in the device tree.

use arrayvec::ArrayVec;
use dtoolkit::fdt::FdtNode;
use dtoolkit::{Node, Property};

/// An SPI of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spi {
    /// Its INTID.
    pub intid: u32,
    /// Whether it comes with a rising edge; otherwise as long as its line is high.
    pub edge: bool,
}

/// The flag of a rising edge.
const RISING: u32 = 1;

/// Reads the specifier of a GIC's interrupt, (0 = SPI | 1 = PPI, number, flags), of an SPI that a device can raise.
pub(super) fn spi(cells: &[u32]) -> Option<Spi> {
    match cells {
        // The other edge and the low level need an inverter in front of the GIC.
        [0, n, flags, ..] if *n < 988 => Some(Spi { intid: 32 + n, edge: flags & 0xf == RISING }),
        _ => None,
    }
}

/// INTID of the first interrupt of a node whose parent is a GIC: (0 = SPI | 1 = PPI, number, flags).
pub(super) fn intid(node: &FdtNode<'_>) -> Option<u32> {
    let property = node.property("interrupts")?;
    let cells: ArrayVec<u32, 3> = property
        .value()
        .chunks_exact(4)
        .take(3)
        .filter_map(|c| Some(u32::from_be_bytes(c.try_into().ok()?)))
        .collect();
    match cells.as_slice() {
        [0, n, _] if *n < 988 => Some(32 + n),
        [1, n, _] if *n < 16 => Some(16 + n),
        _ => None,
    }
}
