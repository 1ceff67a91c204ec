// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The reader: from a blob, in place and without allocating.
//!
//! The digest comes first. Only bytes that are as they were written are parsed as a tree; yet nothing is
//! taken on trust from them either, since anybody can compute a digest.

use core::ffi::CStr;

use arrayvec::ArrayVec;
use dtoolkit::fdt::{Fdt, FdtNode};
use dtoolkit::{Node, Property};
use turnstile_machine::Flat;

use crate::check::validate;
use crate::cpus::CpuList;
use crate::digest::{self, read_u32};
use crate::error::{BundleError, Part};
use crate::machine::{Arm64, Format, Machine, Pc, Pseries};
use crate::paravirt::{Feature, Paravirt};
use crate::schedule::{Class, Schedule};
use crate::spec::VmSpec;
use crate::{COMPATIBLE, MAX_IMAGES, MAX_VMS, VERSION};

/// A device tree's magic number.
const MAGIC: u32 = 0xd00d_feed;
/// What a boot loader may add behind the file to fill a page, in bytes, exclusive.
const PADDING: usize = 0x1_0000;

/// The properties of a VM.
const VM_PROPERTIES: [&str; 26] = [
    "name",
    "vcpus",
    "cpus",
    "schedule",
    "weight",
    "realtime",
    "memory",
    "mapping",
    "machine",
    "gic",
    "pmu",
    "sve",
    "format",
    "load",
    "entry",
    "flash",
    "apic",
    "paravirt",
    "triple-fault",
    "interrupts",
    "threads",
    "on-crash",
    "statistics",
    "cmdline",
    "kernel",
    "initrd",
];

/// The properties that only machines for arm64 have.
const ARM64_PROPERTIES: [&str; 7] = ["gic", "pmu", "sve", "format", "load", "entry", "flash"];

/// A bundle that was checked, as a view of its blob.
#[derive(Debug, Clone)]
pub struct Bundle<'a> {
    vms: Vms<'a>,
    digest: u64,
}

type Vms<'a> = ArrayVec<VmSpec<'a>, MAX_VMS>;
type Images<'a> = ArrayVec<&'a [u8], MAX_IMAGES>;

impl<'a> Bundle<'a> {
    /// Checks and reads the bundle in `blob`: digest, form, and every bound of every VM.
    ///
    /// Behind the bundle there may be zeros, less than 64 KiB, with which a boot loader fills a page.
    ///
    /// # Errors
    ///
    /// Says what is wrong, and when a byte was changed, in which part.
    pub fn parse(blob: &'a [u8]) -> Result<Bundle<'a>, BundleError> {
        let blob = trim(blob)?;
        let digest = match digest::digests(blob) {
            Some((carried, computed)) if carried == computed && digest::in_place(blob) => computed,
            _ => return Err(diagnose(blob)),
        };
        let fdt = Fdt::new(blob).map_err(|_| BundleError::Malformed("it is no device tree"))?;
        let (images, vms) = read_root(&fdt)?;
        let images = read_images(&images)?;
        // In place: a copy of all descriptions is a large part of a boot CPU's stack.
        let mut bundle = Bundle { vms: Vms::new(), digest };
        read_vms(&vms, &images, &mut bundle.vms)?;
        validate(&bundle.vms)?;
        Ok(bundle)
    }

    /// Returns the VMs, 1 to [`MAX_VMS`] of them; a VM's index is its `VmId`.
    #[must_use]
    pub fn vms(&self) -> &[VmSpec<'a>] {
        &self.vms
    }

    /// Returns the digest, which identifies the bundle in reports.
    #[must_use]
    pub fn digest(&self) -> u64 {
        self.digest
    }
}

/// Returns the blob without what follows it, by the size in its header.
fn trim(blob: &[u8]) -> Result<&[u8], BundleError> {
    if blob.is_empty() {
        return Err(BundleError::Missing);
    }
    if read_u32(blob, 0) != Some(MAGIC) {
        return Err(BundleError::NotABundle);
    }
    let (have, need) = (blob.len(), read_u32(blob, 4).map_or(usize::MAX, |size| size as usize));
    let truncated = BundleError::Truncated { have, need };
    let (bundle, padding) = blob.split_at_checked(need).ok_or(truncated)?;
    if padding.len() >= PADDING || padding.iter().any(|&byte| byte != 0) {
        return Err(BundleError::Trailing { have, need });
    }
    Ok(bundle)
}

/// Says what is wrong with a blob whose digest does not match. Its bytes can be anything.
fn diagnose(blob: &[u8]) -> BundleError {
    let Ok(fdt) = Fdt::new(blob) else {
        return BundleError::Damaged(Part::Structure);
    };
    let root = fdt.root();
    if root.property("digest").is_none() {
        return BundleError::NotABundle;
    }
    match root.property("version").and_then(|property| property.value_as().ok()) {
        Some(VERSION) | None => {}
        Some(version) => return BundleError::Version(version),
    }
    let Some(images) = root.child("images") else {
        return BundleError::Damaged(Part::Description);
    };
    let is_damaged = |image: FdtNode<'_>| {
        let digest: Option<u64> = image.property("digest").and_then(|property| property.value_as().ok());
        let data = image.property("data").map(|property| digest::image(property.value()));
        digest.is_some() && data.is_some() && digest != data
    };
    BundleError::Damaged(images.children().position(is_damaged).map_or(Part::Description, Part::Image))
}

/// Checks the root node and returns `/images` and `/vms`.
fn read_root<'a>(fdt: &Fdt<'a>) -> Result<(FdtNode<'a>, FdtNode<'a>), BundleError> {
    let root = fdt.root();
    let [_digest, compatible, version] = fields(&root, ["digest", "compatible", "version"])?;
    if compatible.and_then(text) != Some(COMPATIBLE) {
        return Err(BundleError::NotABundle);
    }
    match version.and_then(word) {
        Some(VERSION) => {}
        Some(version) => return Err(BundleError::Version(version)),
        None => return Err(BundleError::Malformed("its version")),
    }
    // Fused: dtoolkit's iterator must not be asked again after its end.
    let mut children = root.children().fuse();
    match (children.next(), children.next(), children.next()) {
        (Some(images), Some(vms), None) if images.name() == "images" && vms.name() == "vms" => {
            Ok((images, vms))
        }
        _ => Err(BundleError::Malformed("its nodes")),
    }
}

fn read_images<'a>(node: &FdtNode<'a>) -> Result<Images<'a>, BundleError> {
    let malformed = BundleError::Malformed("an image");
    let [] = fields(node, [])?;
    let mut images = Images::new();
    for child in node.children() {
        no_children(&child)?;
        let [digest, _padding, data] = fields(&child, ["digest", "padding", "data"])?;
        digest.ok_or(malformed)?;
        images.try_push(data.ok_or(malformed)?).map_err(|_| BundleError::Malformed("too many images"))?;
    }
    Ok(images)
}

fn read_vms<'a>(node: &FdtNode<'a>, images: &[&'a [u8]], vms: &mut Vms<'a>) -> Result<(), BundleError> {
    let [] = fields(node, [])?;
    let count = node.children().count();
    for child in node.children() {
        let vm = read_vm(&child, images)?;
        vms.try_push(vm).map_err(|_| BundleError::TooManyVms(count))?;
    }
    Ok(())
}

fn read_vm<'a>(node: &FdtNode<'a>, images: &[&'a [u8]]) -> Result<VmSpec<'a>, BundleError> {
    const MALFORMED: BundleError = BundleError::Malformed("a VM's description");
    no_children(node)?;
    let values = fields(node, VM_PROPERTIES)?;
    let get = |name: &str| {
        let position = VM_PROPERTIES.iter().position(|known| *known == name);
        position.and_then(|position| values.get(position).copied().flatten())
    };
    let required = |name| get(name).ok_or(MALFORMED);
    let text = |name| required(name).and_then(|value| text(value).ok_or(MALFORMED));
    let image = |value: &[u8]| {
        let index = word(value).and_then(|index| usize::try_from(index).ok());
        index.and_then(|index| images.get(index).copied()).ok_or(BundleError::Malformed("an image's index"))
    };

    Ok(VmSpec {
        name: text("name")?,
        vcpus: word(required("vcpus")?).ok_or(MALFORMED)? as usize,
        cpus: read_cpus(required("cpus")?)?,
        schedule: read_schedule(text("schedule")?, get("weight"), get("realtime"))?,
        memory: double_word(required("memory")?)?,
        mapping: text("mapping")?
            .parse()
            .map_err(|_| BundleError::Malformed("how a VM's memory is mapped"))?,
        machine: read_machine(text("machine")?, get)?,
        on_crash: text("on-crash")?.parse().map_err(|_| BundleError::Malformed("a VM's crash policy"))?,
        statistics: flag(get("statistics"))?,
        cmdline: text("cmdline")?,
        kernel: image(required("kernel")?)?,
        initrd: get("initrd").map(image).transpose()?,
    })
}

/// Reads the machine of this name; what belongs to machines of the other architecture must not be there.
fn read_machine<'a>(name: &str, get: impl Fn(&str) -> Option<&'a [u8]>) -> Result<Machine, BundleError> {
    let none = |names: &[&str]| match names.iter().any(|name| get(name).is_some()) {
        true => Err(BundleError::Malformed("a property of another machine")),
        false => Ok(()),
    };
    if name == Pseries::NAME {
        none(&ARM64_PROPERTIES)?;
        none(&["apic", "paravirt", "triple-fault"])?;
        let interrupts = get("interrupts").and_then(text).and_then(|name| name.parse().ok());
        let threads = get("threads").and_then(word).and_then(|threads| threads.try_into().ok());
        return Ok(Machine::Pseries(Pseries {
            interrupts: interrupts.ok_or(BundleError::Malformed("a VM's interrupt controller"))?,
            threads: threads.ok_or(BundleError::Malformed("the threads of a VM's cores"))?,
        }));
    }
    if name == Pc::NAME {
        none(&ARM64_PROPERTIES)?;
        none(&["interrupts", "threads"])?;
        let apic = get("apic").and_then(text).and_then(|apic| apic.parse().ok());
        let paravirt = get("paravirt").and_then(read_paravirt);
        let triple_fault = get("triple-fault").and_then(text).and_then(|what| what.parse().ok());
        return Ok(Machine::Pc(Pc {
            apic: apic.ok_or(BundleError::Malformed("a VM's local APIC"))?,
            paravirt: paravirt.ok_or(BundleError::Malformed("a VM's paravirtual interface"))?,
            triple_fault: triple_fault.ok_or(BundleError::Malformed("what a triple fault is"))?,
        }));
    }
    none(&["apic", "paravirt", "triple-fault", "interrupts", "threads"])?;
    let map = name.parse().map_err(|_| BundleError::Malformed("a VM's machine"))?;
    let gic = get("gic").and_then(text).and_then(|gic| gic.parse().ok());
    let pmu = get("pmu").and_then(text).and_then(|pmu| pmu.parse().ok());
    Ok(Machine::Arm64(Arm64 {
        map,
        gic: gic.ok_or(BundleError::Malformed("a VM's interrupt controller"))?,
        pmu: pmu.ok_or(BundleError::Malformed("a VM's PMU"))?,
        sve: flag(get("sve"))?,
        format: read_format(get("format").and_then(text), get("load"), get("entry"))?,
        flash: get("flash").map(double_word).transpose()?.unwrap_or(0),
    }))
}

/// Reads what a kernel's file is; only a flat image has addresses.
fn read_format(name: Option<&str>, load: Option<&[u8]>, entry: Option<&[u8]>) -> Result<Format, BundleError> {
    match (name, load, entry) {
        (Some(Format::IMAGE), None, None) => Ok(Format::Image),
        (Some(Format::FLAT), Some(load), Some(entry)) => {
            Ok(Format::Flat(Flat { load: double_word(load)?, entry: double_word(entry)? }))
        }
        _ => Err(BundleError::Malformed("a kernel's format")),
    }
}

/// Reads a list of names, each once; an empty list is none.
fn read_paravirt(value: &[u8]) -> Option<Paravirt> {
    let Some((0, _)) = value.split_last() else {
        return value.is_empty().then_some(Paravirt::NONE);
    };
    let mut found = Paravirt::NONE;
    for name in value.split_inclusive(|&byte| byte == 0) {
        found = found.with(text(name).and_then(Feature::from_name)?);
    }
    let written = found.iter().map(|feature| feature.name().len() + 1).sum::<usize>();
    // Names that are there twice are longer than what is written.
    (written == value.len()).then_some(found)
}

/// Reads a list of physical CPU indexes, one cell each.
fn read_cpus(value: &[u8]) -> Result<CpuList<'_>, BundleError> {
    match value.as_chunks() {
        (cells, []) => Ok(CpuList::from_cells(cells)),
        _ => Err(BundleError::Malformed("a list of physical CPUs")),
    }
}

/// Reads who runs on a VM's CPUs. Numbers that are too large for any machine stay so.
fn read_schedule(
    name: &str,
    weight: Option<&[u8]>,
    realtime: Option<&[u8]>,
) -> Result<Schedule, BundleError> {
    let malformed = BundleError::Malformed("a VM's schedule");
    let number = |value: &[u8]| word(value).ok_or(malformed);
    match (name, weight, realtime) {
        (Schedule::PINNED, None, None) => Ok(Schedule::Pinned),
        (Schedule::SHARED, Some(weight), None) => {
            let weight = u16::try_from(number(weight)?).unwrap_or(u16::MAX);
            Ok(Schedule::Shared(Class::Fair { weight }))
        }
        (Schedule::SHARED, None, Some(priority)) => {
            let priority = u8::try_from(number(priority)?).unwrap_or(u8::MAX);
            Ok(Schedule::Shared(Class::RealTime { priority }))
        }
        _ => Err(malformed),
    }
}

/// Returns the values of a node's properties of these names, each at most once and no others.
fn fields<'a, const N: usize>(
    node: &FdtNode<'a>,
    names: [&str; N],
) -> Result<[Option<&'a [u8]>; N], BundleError> {
    let mut values = [None; N];
    for property in node.properties() {
        let position = names.iter().position(|name| *name == property.name());
        let slot = position.and_then(|position| values.get_mut(position));
        match slot {
            Some(slot @ None) => *slot = property.value_as().ok(),
            Some(Some(_)) => return Err(BundleError::Malformed("a property twice")),
            None => return Err(BundleError::Malformed("an unknown property")),
        }
    }
    Ok(values)
}

fn no_children(node: &FdtNode<'_>) -> Result<(), BundleError> {
    match node.children().next() {
        None => Ok(()),
        Some(_) => Err(BundleError::Malformed("an unknown node")),
    }
}

/// Reads a property whose presence is its value.
fn flag(value: Option<&[u8]>) -> Result<bool, BundleError> {
    match value {
        None => Ok(false),
        Some([]) => Ok(true),
        Some(_) => Err(BundleError::Malformed("a flag with a value")),
    }
}

/// Reads a property of two cells.
fn double_word(value: &[u8]) -> Result<u64, BundleError> {
    value.try_into().map(u64::from_be_bytes).map_err(|_| BundleError::Malformed("a number of 64 bits"))
}

fn word(value: &[u8]) -> Option<u32> {
    value.try_into().ok().map(u32::from_be_bytes)
}

/// Returns the text of a property: UTF-8 with exactly one NUL, at its end.
fn text(value: &[u8]) -> Option<&str> {
    CStr::from_bytes_with_nul(value).ok()?.to_str().ok()
}
