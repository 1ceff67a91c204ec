// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What machine this is, from the device tree the firmware passed (Devicetree Specification 0.4).

use arrayvec::ArrayVec;
use dtoolkit::fdt::Fdt;
use dtoolkit::standard::NodeStandard;
use turnstile_firmware::Range;
use turnstile_firmware::tree::{self, Error, MAX_RESERVED, number, string, usable};

mod gic;
mod interrupt;
pub mod iommu;
pub mod pci;
mod place;
#[cfg(test)]
mod tests;
mod uart;

pub use gic::{GicError, GicNode, TwoPages, V2Node, V3Node};
pub use interrupt::Spi;
use place::Place;
pub use uart::{UartNode, uart};

/// The most physical CPUs that are used.
pub const MAX_CPUS: usize = 512;

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

/// Checks the blob at `data` and returns the device tree.
///
/// # Errors
/// [`Error::Damaged`] when it does not parse.
pub fn parse(data: &[u8]) -> Result<Fdt<'_>, Error> {
    Fdt::new(data).map_err(|_| Error::Damaged)
}

/// Returns the CPUs that may be used; of more than there is room for the first ones.
fn cpus(fdt: Fdt<'_>) -> ArrayVec<CpuNode, MAX_CPUS> {
    let nodes = tree::cpus(fdt).filter_map(|node| {
        let release = match string(node, "enable-method") {
            Some("spin-table") => Release::SpinTable(number(&node, "cpu-release-addr")?),
            _ => Release::Psci,
        };
        Some(CpuNode { affinity: number(&node, "reg")?, release })
    });
    nodes.take(MAX_CPUS).collect()
}

/// Returns the way to the firmware.
fn psci(fdt: Fdt<'_>) -> Option<Conduit> {
    match string(fdt.find_node("/psci")?, "method") {
        Some("smc") => Some(Conduit::Smc),
        Some("hvc") => Some(Conduit::Hvc),
        _ => None,
    }
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
    Ok(Machine {
        memory: tree::memory(fdt)?,
        reserved: tree::reserved(fdt, core::iter::empty())?,
        cpus: cpus(fdt),
        gic: gic::find(fdt),
        psci: psci(fdt),
        rtc: registers_of(fdt, "arm,pl031"),
        power: registers_of(fdt, "brcm,bcm2711-pm"),
        initrd: tree::initrd(fdt),
        bootargs: tree::bootargs(fdt),
        model: tree::model(fdt),
    })
}
