// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What machine this is, from the device tree that skiboot passes (Devicetree Specification 0.4, skiboot's
//! `doc/device-tree`).

use arrayvec::ArrayVec;
use core::fmt;
use dtoolkit::fdt::{Fdt, FdtNode};
use dtoolkit::{Node, Property};

#[cfg(test)]
mod tests;

/// The most physical CPUs (threads of cores) that are used.
pub const MAX_CPUS: usize = 512;

/// The most reserved ranges that are remembered.
const MAX_RESERVED: usize = 64;

/// A range of physical addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// First address.
    pub base: u64,
    /// Bytes.
    pub size: u64,
}

impl Range {
    /// Says whether all of `other` lies in this range.
    pub fn contains(&self, other: Self) -> bool {
        let end = |range: &Self| range.base.checked_add(range.size);
        self.base <= other.base && end(&other).is_some_and(|last| end(self).is_none_or(|own| last <= own))
    }
}

/// The machine.
#[derive(Debug)]
pub struct Machine<'a> {
    /// RAM.
    pub memory: ArrayVec<Range, 32>,
    /// Parts of RAM that belong to somebody else.
    pub reserved: ArrayVec<Range, MAX_RESERVED>,
    /// CPUs that may be used, by their PIR, in the order of the device tree.
    pub cpus: ArrayVec<u32, MAX_CPUS>,
    /// Ticks of the time base in a second.
    pub timebase: Option<u64>,
    /// Whether its CPUs translate by radix trees.
    pub radix: bool,
    /// The firmware's services: their data, and their entry.
    pub opal: Option<(u64, u64)>,
    /// What the boot loader loaded beside the image: the bundle.
    pub initrd: Option<Range>,
    /// The hypervisor's command line.
    pub bootargs: &'a str,
    /// `model` of the root node.
    pub model: &'a str,
}

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
        f.write_str(match self {
            Self::Damaged => "the device tree is damaged",
            Self::NoMemory => "the device tree names no memory",
            Self::TooManyReserved => "the device tree reserves more than 64 ranges of memory",
        })
    }
}

/// Returns the blocks of a node's `reg`.
fn ranges(node: FdtNode<'_>) -> impl Iterator<Item = Range> {
    node.reg()
        .ok()
        .flatten()
        .into_iter()
        .flatten()
        .filter_map(|reg| Some(Range { base: reg.address::<u64>().ok()?, size: reg.size::<u64>().ok()? }))
}

fn usable(node: &FdtNode<'_>) -> bool {
    node.property("status").is_none_or(|p| p.value_as::<&str>().is_ok_and(|s| s == "okay" || s == "ok"))
}

/// Returns the 32-bit cells of a property; none if there is no such property.
fn cells<'a>(node: &FdtNode<'a>, name: &str) -> impl Iterator<Item = u32> + use<'a> {
    let property = node.properties().find(|p| p.name() == name);
    let bytes = property.and_then(|p| p.value_as::<&'a [u8]>().ok()).unwrap_or(&[]);
    bytes.as_chunks::<4>().0.iter().map(|cell| u32::from_be_bytes(*cell))
}

/// Reads an integer property of one or two cells.
fn number(node: &FdtNode<'_>, name: &str) -> Option<u64> {
    let mut cells = cells(node, name);
    let first = u64::from(cells.next()?);
    Some(cells.next().map_or(first, |second| first << 32 | u64::from(second)))
}

fn string<'a>(node: FdtNode<'a>, name: &str) -> Option<&'a str> {
    node.properties().find(|p| p.name() == name)?.value_as::<&'a str>().ok()
}

/// Checks that the blob at `data` is a whole device tree, and returns that.
///
/// What is in it is taken as skiboot has written it: its nodes have longer names than the specification allows (2.2.1), which
/// the parser's own check refuses.
///
/// # Errors
/// [`Error::Damaged`] when it is none.
pub fn parse(data: &[u8]) -> Result<Fdt<'_>, Error> {
    const MAGIC: u32 = 0xd00d_feed;
    /// The version of the format that is read, and written (5.2).
    const VERSION: u32 = 17;
    let word = |index: usize| data.as_chunks::<4>().0.get(index).map(|word| u32::from_be_bytes(*word));
    let whole = word(1).is_some_and(|size| size as usize == data.len());
    let readable = word(5) >= Some(VERSION) && word(6) <= Some(VERSION);
    if word(0) != Some(MAGIC) || !whole || !readable {
        return Err(Error::Damaged);
    }
    Ok(Fdt::new_unchecked(data))
}

/// Takes the cores: each lists its threads' numbers.
fn cpus(fdt: Fdt<'_>, machine: &mut Machine<'_>) {
    let Some(cpus) = fdt.find_node("/cpus") else { return };
    machine.radix = fdt.find_node("/cpus/ibm,powerpc-cpu-features/mmu-radix").is_some();
    for node in cpus.children() {
        if string(node, "device_type") != Some("cpu") || !usable(&node) {
            continue;
        }
        machine.timebase = machine.timebase.or(number(&node, "timebase-frequency"));
        for pir in cells(&node, "ibm,ppc-interrupt-server#s") {
            if machine.cpus.try_push(pir).is_err() {
                return;
            }
        }
    }
}

fn reserved(fdt: Fdt<'_>, out: &mut ArrayVec<Range, MAX_RESERVED>) -> Result<(), Error> {
    let entries = fdt.memory_reservations().map(|entry| Range { base: entry.address(), size: entry.size() });
    let children = fdt.find_node("/reserved-memory").into_iter().flat_map(|node| node.children());
    // skiboot has them here, too: pairs of an address and a size, of two cells each.
    let all: ArrayVec<u32, { 4 * MAX_RESERVED }> =
        cells(&fdt.root(), "reserved-ranges").take(4 * MAX_RESERVED).collect();
    let wide = |high: u32, low: u32| u64::from(high) << 32 | u64::from(low);
    let listed =
        all.as_chunks::<4>().0.iter().map(|[a, b, c, d]| Range { base: wide(*a, *b), size: wide(*c, *d) });
    for range in entries.chain(children.flat_map(ranges)).chain(listed) {
        if range.size > 0 && !out.contains(&range) {
            out.try_push(range).map_err(|_| Error::TooManyReserved)?;
        }
    }
    Ok(())
}

/// Reads the whole machine.
///
/// # Errors
/// [`Error::NoMemory`] when there is none, [`Error::TooManyReserved`].
pub fn machine(fdt: Fdt<'_>) -> Result<Machine<'_>, Error> {
    let mut machine = Machine {
        memory: ArrayVec::new(),
        reserved: ArrayVec::new(),
        cpus: ArrayVec::new(),
        timebase: None,
        radix: false,
        opal: None,
        initrd: None,
        bootargs: "",
        model: string(fdt.root(), "model").unwrap_or("unknown machine"),
    };
    for node in fdt.root().children() {
        if string(node, "device_type") == Some("memory") && usable(&node) {
            for range in ranges(node).filter(|range| range.size > 0) {
                let _ = machine.memory.try_push(range);
            }
        }
    }
    if machine.memory.is_empty() {
        return Err(Error::NoMemory);
    }
    reserved(fdt, &mut machine.reserved)?;
    cpus(fdt, &mut machine);
    if let Some(node) = fdt.find_node("/ibm,opal") {
        machine.opal = number(&node, "opal-base-address").zip(number(&node, "opal-entry-address"));
    }
    if let Some(chosen) = fdt.find_node("/chosen") {
        machine.bootargs = string(chosen, "bootargs").unwrap_or("");
        let start = number(&chosen, "linux,initrd-start");
        let end = number(&chosen, "linux,initrd-end");
        if let (Some(start), Some(end)) = (start, end)
            && end > start
        {
            machine.initrd = Some(Range { base: start, size: end - start });
        }
    }
    Ok(machine)
}
