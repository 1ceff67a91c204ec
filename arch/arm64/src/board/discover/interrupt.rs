// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Interrupts of devices in the device tree.

use arrayvec::ArrayVec;
use dtoolkit::fdt::FdtNode;
use dtoolkit::{Node, Property};

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
