// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What machine this is, from the device tree that skiboot passes (Devicetree Specification 0.4, skiboot's
//! `doc/device-tree`).

use arrayvec::ArrayVec;
use dtoolkit::Node;
use dtoolkit::fdt::Fdt;
use turnstile_firmware::Range;
use turnstile_firmware::tree::{self, Error, MAX_RESERVED, cells, number};

use crate::board::mitigation::{Features, Said};

#[cfg(test)]
mod tests;

/// The most physical CPUs (threads of cores) that are used.
pub const MAX_CPUS: usize = 512;

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
    /// What its firmware says of speculation; `None` if it says nothing.
    pub features: Option<Features>,
    /// What the boot loader loaded beside the image: the bundle.
    pub initrd: Option<Range>,
    /// The hypervisor's command line.
    pub bootargs: &'a str,
    /// `model` of the root node.
    pub model: &'a str,
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

/// Returns the reserved ranges that skiboot lists in the root: pairs of an address and a size, of two cells each.
fn listed(fdt: Fdt<'_>) -> impl Iterator<Item = Range> {
    let mut cells = cells(&fdt.root(), "reserved-ranges");
    let mut wide = move || Some(u64::from(cells.next()?) << 32 | u64::from(cells.next()?));
    core::iter::from_fn(move || Some(Range { base: wide()?, size: wide()? }))
}

/// Returns the PIRs of the CPUs: each core lists its threads'.
fn cpus(fdt: Fdt<'_>) -> ArrayVec<u32, MAX_CPUS> {
    let threads = tree::cpus(fdt).flat_map(|core| cells(&core, "ibm,ppc-interrupt-server#s"));
    threads.take(MAX_CPUS).collect()
}

/// Returns the firmware's services: their data, and their entry.
fn opal(fdt: Fdt<'_>) -> Option<(u64, u64)> {
    let node = fdt.find_node("/ibm,opal")?;
    number(&node, "opal-base-address").zip(number(&node, "opal-entry-address"))
}

/// Returns what the firmware says of speculation: a node for each feature, which is enabled or disabled.
fn features(fdt: Fdt<'_>) -> Option<Features> {
    let node = fdt.find_node("/ibm,opal/fw-features")?;
    Some(Features::read(|name| match node.children().find(|feature| feature.name() == name) {
        Some(feature) if feature.property("enabled").is_some() => Said::Enabled,
        Some(feature) if feature.property("disabled").is_some() => Said::Disabled,
        _ => Said::Nothing,
    }))
}

/// Reads the whole machine.
///
/// # Errors
/// [`Error::NoMemory`] when there is none, [`Error::TooManyReserved`].
pub fn machine(fdt: Fdt<'_>) -> Result<Machine<'_>, Error> {
    Ok(Machine {
        memory: tree::memory(fdt)?,
        reserved: tree::reserved(fdt, listed(fdt))?,
        cpus: cpus(fdt),
        timebase: tree::cpus(fdt).find_map(|core| number(&core, "timebase-frequency")),
        radix: fdt.find_node("/cpus/ibm,powerpc-cpu-features/mmu-radix").is_some(),
        opal: opal(fdt),
        features: features(fdt),
        initrd: tree::initrd(fdt),
        bootargs: tree::bootargs(fdt),
        model: tree::model(fdt),
    })
}
