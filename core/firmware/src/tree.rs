// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The device tree that firmware passes on machines other than PCs (Devicetree Specification 0.4): what all of them say about
//! memory, CPUs and the boot. What is specific to a machine is read elsewhere.

use core::fmt;

use arrayvec::ArrayVec;
use dtoolkit::fdt::{Fdt, FdtNode};
use dtoolkit::{Node, Property};

use crate::Range;

/// The most reserved ranges that are remembered.
pub const MAX_RESERVED: usize = 64;

/// Why a device tree cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// Not a device tree, or damaged.
    Damaged,
    /// No memory node.
    NoMemory,
    /// More reserved ranges than there is room for: what is not remembered would be given to guests.
    TooManyReserved,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Damaged => f.write_str("the device tree is damaged"),
            Self::NoMemory => f.write_str("the device tree names no memory"),
            Self::TooManyReserved => {
                write!(f, "the device tree reserves more than {MAX_RESERVED} ranges of memory")
            }
        }
    }
}

/// Returns the blocks of a node's `reg`, as they are on its bus.
pub fn ranges(node: FdtNode<'_>) -> impl Iterator<Item = Range> {
    node.reg()
        .ok()
        .flatten()
        .into_iter()
        .flatten()
        .filter_map(|reg| Some(Range { base: reg.address::<u64>().ok()?, size: reg.size::<u64>().ok()? }))
}

/// Says whether a node's `status` lets it be used.
pub fn usable(node: &FdtNode<'_>) -> bool {
    node.property("status").is_none_or(|p| p.value_as::<&str>().is_ok_and(|s| s == "okay" || s == "ok"))
}

/// Reads an integer property of one or two cells.
pub fn number(node: &FdtNode<'_>, name: &str) -> Option<u64> {
    let property = node.property(name)?;
    match property.value() {
        bytes if bytes.len() == 4 => Some(u32::from_be_bytes(bytes.try_into().ok()?).into()),
        bytes if bytes.len() == 8 => Some(u64::from_be_bytes(bytes.try_into().ok()?)),
        _ => None,
    }
}

/// Returns the 32-bit cells of a property; none if there is no such property.
pub fn cells<'a>(node: &FdtNode<'a>, name: &str) -> impl Iterator<Item = u32> + use<'a> {
    let property = node.properties().find(|p| p.name() == name);
    let bytes = property.and_then(|p| p.value_as::<&'a [u8]>().ok()).unwrap_or(&[]);
    bytes.as_chunks::<4>().0.iter().map(|cell| u32::from_be_bytes(*cell))
}

/// Reads a property that is text.
pub fn string<'a>(node: FdtNode<'a>, name: &str) -> Option<&'a str> {
    node.properties().find(|p| p.name() == name)?.value_as::<&'a str>().ok()
}

/// Returns the nodes of the CPUs that may be used.
pub fn cpus(fdt: Fdt<'_>) -> impl Iterator<Item = FdtNode<'_>> {
    let nodes = fdt.find_node("/cpus").into_iter().flat_map(|cpus| cpus.children());
    nodes.filter(|node| string(*node, "device_type") == Some("cpu") && usable(node))
}

/// Returns the RAM: of more than `N` ranges the first ones.
///
/// # Errors
/// [`Error::NoMemory`] when there is none.
pub fn memory<const N: usize>(fdt: Fdt<'_>) -> Result<ArrayVec<Range, N>, Error> {
    let is_memory = |node: &FdtNode<'_>| string(*node, "device_type") == Some("memory") && usable(node);
    // A node that the firmware was to fill in may be empty.
    let found = fdt.root().children().filter(is_memory).flat_map(ranges).filter(|range| range.size > 0);
    let memory: ArrayVec<Range, N> = found.take(N).collect();
    if memory.is_empty() { Err(Error::NoMemory) } else { Ok(memory) }
}

/// Returns the parts of RAM that belong to somebody else; `more` are those that only this machine's firmware lists.
///
/// # Errors
/// [`Error::TooManyReserved`].
pub fn reserved(
    fdt: Fdt<'_>,
    more: impl Iterator<Item = Range>,
) -> Result<ArrayVec<Range, MAX_RESERVED>, Error> {
    let entries = fdt.memory_reservations().map(|entry| Range { base: entry.address(), size: entry.size() });
    let children = fdt.find_node("/reserved-memory").into_iter().flat_map(|node| node.children());
    let mut reserved = ArrayVec::new();
    for range in entries.chain(children.flat_map(ranges)).chain(more) {
        if range.size > 0 && !reserved.contains(&range) {
            reserved.try_push(range).map_err(|_| Error::TooManyReserved)?;
        }
    }
    Ok(reserved)
}

/// Returns what the boot loader loaded beside the image.
pub fn initrd(fdt: Fdt<'_>) -> Option<Range> {
    let chosen = fdt.find_node("/chosen")?;
    let base = number(&chosen, "linux,initrd-start")?;
    let size = number(&chosen, "linux,initrd-end")?.checked_sub(base)?;
    (size > 0).then_some(Range { base, size })
}

/// Returns the command line.
pub fn bootargs(fdt: Fdt<'_>) -> &str {
    fdt.find_node("/chosen").and_then(|chosen| string(chosen, "bootargs")).unwrap_or("")
}

/// Returns the `model` of the machine.
pub fn model(fdt: Fdt<'_>) -> &str {
    string(fdt.root(), "model").unwrap_or("unknown machine")
}
