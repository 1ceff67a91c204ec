// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Properties of a device tree's nodes (Devicetree Specification 0.4, section 2.2.4).

use dtoolkit::fdt::FdtNode;
use dtoolkit::{Node, Property};

use crate::memory::Region;

const MAX_COMMAND_LINE: usize = 2048;

/// Calls `f` with the value of a property, if the node has it.
pub fn with_value<R>(node: &FdtNode<'_>, name: &str, f: impl FnOnce(&[u8]) -> R) -> Option<R> {
    node.property(name).map(|property| f(property.value()))
}

fn be32(bytes: &[u8], index: usize) -> Option<u32> {
    let bytes = bytes.get(index * 4..index * 4 + 4)?;
    Some(u32::from_be_bytes(bytes.try_into().ok()?))
}

/// Returns a number of so many cells.
pub fn cells(bytes: &[u8], first: usize, count: usize) -> Option<u64> {
    (first..first + count).try_fold(0, |value: u64, index| Some(value << 32 | u64::from(be32(bytes, index)?)))
}

/// Returns one cell of a property.
pub fn cell(node: &FdtNode<'_>, name: &str, index: usize) -> Option<u32> {
    with_value(node, name, |bytes| be32(bytes, index)).flatten()
}

/// Returns two cells of a property as one number.
pub fn wide(node: &FdtNode<'_>, name: &str, index: usize) -> Option<u64> {
    with_value(node, name, |bytes| cells(bytes, index, 2)).flatten()
}

/// Returns a number of one or two cells, whichever the property has.
pub fn integer(node: &FdtNode<'_>, name: &str) -> Option<u64> {
    with_value(node, name, |bytes| cells(bytes, 0, bytes.len() / 4)).flatten()
}

/// Says whether the node's property `compatible` has this name.
pub fn is_compatible(node: &FdtNode<'_>, name: &str) -> bool {
    let has = |bytes: &[u8]| bytes.split(|byte| *byte == 0).any(|entry| entry == name.as_bytes());
    with_value(node, "compatible", has).unwrap_or(false)
}

/// Returns where `/chosen` says that the initial RAM disk is.
pub fn initrd(chosen: &FdtNode<'_>) -> Option<Region> {
    Some(Region::between(integer(chosen, "linux,initrd-start")?, integer(chosen, "linux,initrd-end")?))
}

/// A command line.
pub struct CommandLine {
    bytes: [u8; MAX_COMMAND_LINE],
    len: usize,
}

impl CommandLine {
    /// An empty one.
    pub const NONE: CommandLine = CommandLine { bytes: [0; MAX_COMMAND_LINE], len: 0 };

    /// Takes it from `/chosen`, if that has one; what does not fit is cut off.
    pub fn read(&mut self, chosen: &FdtNode<'_>) {
        with_value(chosen, "bootargs", |bytes| self.set(bytes));
    }

    fn set(&mut self, bytes: &[u8]) {
        self.len = 0;
        for (slot, byte) in self.bytes.iter_mut().zip(bytes.iter().take_while(|byte| **byte != 0)) {
            *slot = *byte;
            self.len += 1;
        }
    }

    /// Returns it.
    pub fn as_str(&self) -> &str {
        self.bytes.get(..self.len).and_then(|bytes| core::str::from_utf8(bytes).ok()).unwrap_or("")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_big_endian() {
        let bytes = [0, 0, 0, 1, 0x80, 0, 0, 2, 0, 0];
        assert_eq!(cells(&bytes, 0, 1), Some(1));
        assert_eq!(cells(&bytes, 0, 2), Some(0x1_8000_0002));
        assert_eq!(cells(&bytes, 1, 2), None);
    }

    #[test]
    fn a_command_line_ends_with_its_zero() {
        let mut line = CommandLine::NONE;
        line.set(b"bare seed=1\0more");
        assert_eq!(line.as_str(), "bare seed=1");
        line.set(&[b'a'; MAX_COMMAND_LINE + 1]);
        assert_eq!(line.as_str().len(), MAX_COMMAND_LINE);
    }
}
