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
    /// The bundle: where the command line says, or what the boot loader loaded beside the image.
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

/// Where the bundle is, if this word of the command line says so: `bundle=ADDRESS+SIZE`, both in bytes and hexadecimal, such as
/// `bundle=0x40000000+0x9000000`. QEMU loads no more than 128 MiB beside an image for this machine; what is larger it can put anywhere.
pub fn bundle(word: &str) -> Option<Range> {
    let number = |digits: &str| u64::from_str_radix(digits.strip_prefix("0x")?, 16).ok();
    let (base, size) = word.strip_prefix("bundle=")?.split_once('+')?;
    let range = Range { base: number(base)?, size: number(size)? };
    (range.size > 0 && range.base.checked_add(range.size).is_some()).then_some(range)
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
    let bootargs = tree::bootargs(fdt);
    Ok(Machine {
        memory: tree::memory(fdt)?,
        reserved: tree::reserved(fdt, listed(fdt))?,
        cpus: cpus(fdt),
        timebase: tree::cpus(fdt).find_map(|core| number(&core, "timebase-frequency")),
        radix: fdt.find_node("/cpus/ibm,powerpc-cpu-features/mmu-radix").is_some(),
        opal: opal(fdt),
        features: features(fdt),
        initrd: bootargs.split_ascii_whitespace().find_map(bundle).or_else(|| tree::initrd(fdt)),
        bootargs,
        model: tree::model(fdt),
    })
}
