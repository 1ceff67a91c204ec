// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The reader: from a blob, in place and without allocating.
//!
//! The digest comes first. Only bytes that are as they were written are parsed as a tree; yet nothing is
//! taken on trust from them either, since anybody can compute a digest.

use core::ffi::CStr;

use arrayvec::ArrayVec;
use dtoolkit::fdt::{Fdt, FdtNode};
use dtoolkit::{Node, Property};
use turnstile_machine::map::MAX_VCPUS;

use crate::digest::{self, read_u32};
use crate::error::{BundleError, Part, SpecError, VmLabel};
use crate::spec::{CpuList, VmSpec, validate};
use crate::{COMPATIBLE, MAX_IMAGES, MAX_VMS, VERSION};

/// A device tree's magic number.
const MAGIC: u32 = 0xd00d_feed;
/// What a boot loader may add behind the file to fill a page, in bytes, exclusive.
const PADDING: usize = 0x1_0000;

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
        let vms = read_vms(&vms, &images)?;
        validate(&vms)?;
        Ok(Bundle { vms, digest })
    }

    /// Returns the VMs, 1 to 16 of them; a VM's index is its `VmId`.
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
        let [digest, data] = fields(&child, ["digest", "data"])?;
        digest.ok_or(malformed)?;
        images.try_push(data.ok_or(malformed)?).map_err(|_| BundleError::Malformed("too many images"))?;
    }
    Ok(images)
}

fn read_vms<'a>(node: &FdtNode<'a>, images: &[&'a [u8]]) -> Result<Vms<'a>, BundleError> {
    let [] = fields(node, [])?;
    let count = node.children().count();
    let mut vms = Vms::new();
    for (index, child) in node.children().enumerate() {
        let vm = read_vm(&child, index, images)?;
        vms.try_push(vm).map_err(|_| BundleError::TooManyVms(count))?;
    }
    Ok(vms)
}

fn read_vm<'a>(node: &FdtNode<'a>, index: usize, images: &[&'a [u8]]) -> Result<VmSpec<'a>, BundleError> {
    const NAMES: [&str; 10] =
        ["name", "cpus", "memory", "machine", "pmu", "on-crash", "statistics", "cmdline", "kernel", "initrd"];
    no_children(node)?;
    let [name, cpus, memory, machine, pmu, on_crash, statistics, cmdline, kernel, initrd] =
        fields(node, NAMES)?;
    let malformed = BundleError::Malformed("a VM's description");
    let text = |value: Option<&'a [u8]>| value.and_then(text).ok_or(malformed);
    let image = |value: &[u8]| {
        let index = word(value).and_then(|index| usize::try_from(index).ok());
        index.and_then(|index| images.get(index).copied()).ok_or(BundleError::Malformed("an image's index"))
    };

    let name = text(name)?;
    let cpus = read_cpus(cpus.ok_or(malformed)?)
        .map_err(|problem| BundleError::Vm { vm: VmLabel::new(index, name), problem })?;
    let memory = memory.and_then(|value| value.try_into().ok()).map(u64::from_be_bytes).ok_or(malformed)?;
    Ok(VmSpec {
        name,
        cpus,
        memory,
        machine: text(machine)?.parse().map_err(|_| BundleError::Malformed("a VM's machine"))?,
        pmu: text(pmu)?.parse().map_err(|_| BundleError::Malformed("a VM's PMU"))?,
        on_crash: text(on_crash)?.parse().map_err(|_| BundleError::Malformed("a VM's crash policy"))?,
        statistics: flag(statistics)?,
        cmdline: text(cmdline)?,
        kernel: image(kernel.ok_or(malformed)?)?,
        initrd: initrd.map(image).transpose()?,
    })
}

/// Reads a list of physical CPU indexes, one cell each. What is too large for any machine stays so.
fn read_cpus(value: &[u8]) -> Result<CpuList, SpecError> {
    let (cells, rest) = value.as_chunks();
    if !rest.is_empty() || cells.len() > MAX_VCPUS {
        return Err(SpecError::TooManyCpus(value.len().div_ceil(4)));
    }
    let cpus: ArrayVec<u16, MAX_VCPUS> =
        cells.iter().map(|&cell| u16::try_from(u32::from_be_bytes(cell)).unwrap_or(u16::MAX)).collect();
    CpuList::new(&cpus)
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

fn word(value: &[u8]) -> Option<u32> {
    value.try_into().ok().map(u32::from_be_bytes)
}

/// Returns the text of a property: UTF-8 with exactly one NUL, at its end.
fn text(value: &[u8]) -> Option<&str> {
    CStr::from_bytes_with_nul(value).ok()?.to_str().ok()
}
