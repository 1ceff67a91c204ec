// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What machine this is, from the device tree the firmware passed (Devicetree Specification 0.4).

use arrayvec::ArrayVec;
use core::fmt;
use dtoolkit::fdt::{Fdt, FdtNode};
use dtoolkit::standard::NodeStandard;
use dtoolkit::{Node, Property};

mod gic;
mod place;
#[cfg(test)]
mod tests;
mod uart;

pub use gic::{GicError, GicNode, TwoPages, V2Node, V3Node};
use place::Place;
pub use uart::{UartNode, uart};

/// The most physical CPUs that are used.
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

/// How a secondary CPU is started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Release {
    /// By PSCI CPU_ON.
    Psci,
    /// By writing the entry point to this address and an event (`enable-method = "spin-table"`).
    SpinTable(u64),
}

/// A physical CPU.
#[derive(Clone, Copy, Debug)]
pub struct CpuNode {
    /// Affinity fields of its MPIDR_EL1.
    pub affinity: u64,
    /// How it is started.
    pub release: Release,
}

/// The instruction that reaches the firmware's PSCI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Conduit {
    /// `smc #0`.
    Smc,
    /// `hvc #0`: something below EL2 only, so of no use here.
    Hvc,
}

/// The machine.
#[derive(Debug)]
pub struct Machine<'a> {
    /// RAM.
    pub memory: ArrayVec<Range, 16>,
    /// Parts of RAM that belong to somebody else.
    pub reserved: ArrayVec<Range, MAX_RESERVED>,
    /// CPUs that may be used, in the order of the device tree.
    pub cpus: ArrayVec<CpuNode, MAX_CPUS>,
    /// The interrupt controller, or why there is none that can be used.
    pub gic: Result<GicNode, GicError>,
    /// The way to the firmware.
    pub psci: Option<Conduit>,
    /// The real-time clock, when it is a PL031.
    pub rtc: Option<Range>,
    /// The power manager of a BCM2711, which powers it off and resets it in the place of PSCI.
    pub power: Option<Range>,
    /// What the boot loader loaded beside the image: the bundle.
    pub initrd: Option<Range>,
    /// The hypervisor's command line.
    pub bootargs: &'a str,
    /// `model` of the root node.
    pub model: &'a str,
}

/// Why a device tree cannot be used.
#[derive(Debug)]
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

/// Returns the blocks of a node's `reg`, as they are on its bus.
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

fn number(node: &FdtNode<'_>, name: &str) -> Option<u32> {
    node.property(name)?.value_as::<u32>().ok()
}

/// Reads an integer property of one or two cells.
fn wide_number(node: &FdtNode<'_>, name: &str) -> Option<u64> {
    let property = node.property(name)?;
    match property.value() {
        bytes if bytes.len() == 4 => Some(u32::from_be_bytes(bytes.try_into().ok()?).into()),
        bytes if bytes.len() == 8 => Some(u64::from_be_bytes(bytes.try_into().ok()?)),
        _ => None,
    }
}

fn string<'a>(node: FdtNode<'a>, name: &str) -> Option<&'a str> {
    node.properties().find(|p| p.name() == name)?.value_as::<&'a str>().ok()
}

/// INTID of the first interrupt of a node whose parent is a GIC: (0 = SPI | 1 = PPI, number, flags).
fn intid(node: &FdtNode<'_>) -> Option<u32> {
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

/// Checks the blob at `data` and returns the device tree.
///
/// # Errors
/// [`Error::Damaged`] when it does not parse.
pub fn parse(data: &[u8]) -> Result<Fdt<'_>, Error> {
    Fdt::new(data).map_err(|_| Error::Damaged)
}

/// Returns the hypervisor's command line.
pub fn bootargs(fdt: Fdt<'_>) -> &str {
    fdt.find_node("/chosen").and_then(|chosen| string(chosen, "bootargs")).unwrap_or("")
}

fn cpus(fdt: Fdt<'_>, out: &mut ArrayVec<CpuNode, MAX_CPUS>) {
    let Some(cpus) = fdt.find_node("/cpus") else { return };
    for node in cpus.children() {
        let is_cpu = string(node, "device_type") == Some("cpu");
        if !is_cpu || !usable(&node) {
            continue;
        }
        let Some(affinity) = wide_number(&node, "reg") else { continue };
        let release = match string(node, "enable-method") {
            Some("spin-table") => match wide_number(&node, "cpu-release-addr") {
                Some(address) => Release::SpinTable(address),
                None => continue,
            },
            _ => Release::Psci,
        };
        if out.try_push(CpuNode { affinity, release }).is_err() {
            return;
        }
    }
}

fn reserved(fdt: Fdt<'_>, out: &mut ArrayVec<Range, MAX_RESERVED>) -> Result<(), Error> {
    for entry in fdt.memory_reservations() {
        let range = Range { base: entry.address(), size: entry.size() };
        out.try_push(range).map_err(|_| Error::TooManyReserved)?;
    }
    if let Some(node) = fdt.find_node("/reserved-memory") {
        for child in node.children() {
            for range in ranges(child) {
                out.try_push(range).map_err(|_| Error::TooManyReserved)?;
            }
        }
    }
    Ok(())
}

/// Returns the first register block of the first node that is compatible with `name`.
fn registers_of(fdt: Fdt<'_>, name: &str) -> Option<Range> {
    Place::find(fdt, &|node| usable(node) && node.is_compatible(name))?.registers().next()
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
        gic: gic::find(fdt),
        psci: None,
        rtc: registers_of(fdt, "arm,pl031"),
        power: registers_of(fdt, "brcm,bcm2711-pm"),
        initrd: None,
        bootargs: bootargs(fdt),
        model: string(fdt.root(), "model").unwrap_or("unknown machine"),
    };
    for node in fdt.root().children() {
        if string(node, "device_type") == Some("memory") && usable(&node) {
            // A node that the firmware was to fill in may be empty.
            for range in ranges(node).filter(|range| range.size > 0) {
                let _ = machine.memory.try_push(range);
            }
        }
    }
    if machine.memory.is_empty() {
        return Err(Error::NoMemory);
    }
    reserved(fdt, &mut machine.reserved)?;
    cpus(fdt, &mut machine.cpus);
    if let Some(node) = fdt.find_node("/psci") {
        machine.psci = match string(node, "method") {
            Some("smc") => Some(Conduit::Smc),
            Some("hvc") => Some(Conduit::Hvc),
            _ => None,
        };
    }
    if let Some(chosen) = fdt.find_node("/chosen") {
        let start = wide_number(&chosen, "linux,initrd-start");
        let end = wide_number(&chosen, "linux,initrd-end");
        if let (Some(start), Some(end)) = (start, end)
            && end > start
        {
            machine.initrd = Some(Range { base: start, size: end - start });
        }
    }
    Ok(machine)
}
