// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The reader: from a blob, in place and without allocating.
//!
//! The digest comes first: only a blob that is as it was written is parsed as a tree. Its contents are checked all the same,
//! because anybody can compute a digest.

use arrayvec::ArrayVec;
use dtoolkit::fdt::{Fdt, FdtNode};
use dtoolkit::{Node, Property};

use crate::check::{validate, validate_pool};
use crate::digest::{self, read_u32};
use crate::disk::{DiskSpec, validate_disks};
use crate::error::{BundleError, Part};
use crate::fields::{double_word, fields, no_children, text, word};
use crate::port::{PortSpec, validate_ports};
use crate::read_disk::read_disk;
use crate::read_port::read_port;
use crate::read_service::read_service;
use crate::read_vm::read_vm;
use crate::service::{ServiceSpec, validate_services};
use crate::spec::VmSpec;
use crate::{COMPATIBLE, MAX_DISKS, MAX_IMAGES, MAX_PORTS, MAX_SERVICES, MAX_VMS, VERSION};

/// A device tree's magic number.
const MAGIC: u32 = 0xd00d_feed;
/// What a boot loader may add behind the file to fill a page, in bytes, exclusive.
const PADDING: usize = 0x1_0000;

/// A bundle that was checked, as a view of its blob.
#[derive(Default, Debug, Clone)]
pub struct Bundle<'a> {
    vms: Vms<'a>,
    services: Services<'a>,
    disks: Disks<'a>,
    ports: Ports,
    pool: u64,
    digest: u64,
}

type Vms<'a> = ArrayVec<VmSpec<'a>, MAX_VMS>;
type Services<'a> = ArrayVec<ServiceSpec<'a>, MAX_SERVICES>;
type Disks<'a> = ArrayVec<DiskSpec<'a>, MAX_DISKS>;
type Ports = ArrayVec<PortSpec, MAX_PORTS>;
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
        let mut bundle = Bundle::default();
        bundle.read(blob)?;
        Ok(bundle)
    }

    /// The same as [`Bundle::parse`] for who has a place for the descriptions, which take as much room as a CPU's stack may have. What was
    /// read before is gone, also if that fails.
    ///
    /// # Errors
    ///
    /// As for [`Bundle::parse`].
    pub fn read(&mut self, blob: &'a [u8]) -> Result<(), BundleError> {
        self.vms.clear();
        self.services.clear();
        self.disks.clear();
        self.ports.clear();
        self.pool = 0;
        let blob = trim(blob)?;
        let digest = match digest::digests(blob) {
            Some((carried, computed)) if carried == computed && digest::in_place(blob) => computed,
            _ => return Err(diagnose(blob)),
        };
        let fdt = Fdt::new(blob).map_err(|_| BundleError::Malformed("it is no device tree"))?;
        let Nodes { images, vms, services, disks, ports, pool } = read_root(&fdt)?;
        let images = read_images(&images)?;
        self.digest = digest;
        self.pool = pool;
        read_vms(&vms, &images, &mut self.vms)?;
        validate(&self.vms)?;
        validate_pool(&self.vms, self.pool)?;
        if let Some(services) = services {
            read_services(&services, &images, &mut self.services)?;
        }
        if let Some(disks) = disks {
            read_disks(&disks, &images, &mut self.disks)?;
        }
        if let Some(ports) = ports {
            read_ports(&ports, &mut self.ports)?;
        }
        validate_disks(&self.disks)?;
        validate_services(&self.vms, &self.services, &self.disks)?;
        validate_ports(&self.vms, &self.services, &self.ports)
    }

    /// Returns the VMs, 1 to [`MAX_VMS`] of them; a VM's index is its `VmId`.
    #[must_use]
    pub fn vms(&self) -> &[VmSpec<'a>] {
        &self.vms
    }

    /// Returns the services, at most [`MAX_SERVICES`].
    #[must_use]
    pub fn services(&self) -> &[ServiceSpec<'a>] {
        &self.services
    }

    /// Returns the disks, at most [`MAX_DISKS`].
    #[must_use]
    pub fn disks(&self) -> &[DiskSpec<'a>] {
        &self.disks
    }

    /// Returns the ports of networks, at most [`MAX_PORTS`]; [`ports_of`](crate::ports_of) finds those of one.
    #[must_use]
    pub fn ports(&self) -> &[PortSpec] {
        &self.ports
    }

    /// Returns the bytes of the pool that VMs have memory from in common; zero if there is none.
    #[must_use]
    pub fn pool(&self) -> u64 {
        self.pool
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

/// The nodes in the root node.
struct Nodes<'a> {
    images: FdtNode<'a>,
    vms: FdtNode<'a>,
    /// Only if there are any.
    services: Option<FdtNode<'a>>,
    /// Only if there are any.
    disks: Option<FdtNode<'a>>,
    /// Only if there are any.
    ports: Option<FdtNode<'a>>,
    /// The bytes of the pool, zero if there is none.
    pool: u64,
}

/// Checks the root node and returns the nodes in it.
fn read_root<'a>(fdt: &Fdt<'a>) -> Result<Nodes<'a>, BundleError> {
    let root = fdt.root();
    let [_digest, compatible, version, pool] = fields(&root, ["digest", "compatible", "version", "pool"])?;
    if compatible.and_then(text) != Some(COMPATIBLE) {
        return Err(BundleError::NotABundle);
    }
    match version.and_then(word) {
        Some(VERSION) => {}
        Some(version) => return Err(BundleError::Version(version)),
        None => return Err(BundleError::Malformed("its version")),
    }
    let is_there = pool.is_some();
    let pool = pool.map_or(Ok(0), double_word)?;
    if is_there && pool == 0 {
        return Err(BundleError::Malformed("its pool"));
    }
    // Fused: dtoolkit's iterator must not be asked again after its end.
    let mut children = root.children().fuse().peekable();
    let mut child = |name: &str| children.next_if(|child| child.name() == name);
    let (images, vms) = (child("images"), child("vms"));
    let (services, disks, ports) = (child("services"), child("disks"), child("ports"));
    match (images, vms, children.next()) {
        (Some(images), Some(vms), None) => Ok(Nodes { images, vms, services, disks, ports, pool }),
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

fn read_services<'a>(
    node: &FdtNode<'a>,
    images: &[&'a [u8]],
    services: &mut Services<'a>,
) -> Result<(), BundleError> {
    let [] = fields(node, [])?;
    let count = node.children().count();
    if count == 0 {
        return Err(BundleError::Malformed("its services"));
    }
    for child in node.children() {
        let service = read_service(&child, images)?;
        services.try_push(service).map_err(|_| BundleError::TooManyServices(count))?;
    }
    Ok(())
}

fn read_disks<'a>(node: &FdtNode<'a>, images: &[&'a [u8]], disks: &mut Disks<'a>) -> Result<(), BundleError> {
    let [] = fields(node, [])?;
    let count = node.children().count();
    if count == 0 {
        return Err(BundleError::Malformed("its disks"));
    }
    for child in node.children() {
        let disk = read_disk(&child, images)?;
        disks.try_push(disk).map_err(|_| BundleError::TooManyDisks(count))?;
    }
    Ok(())
}

fn read_ports(node: &FdtNode<'_>, ports: &mut Ports) -> Result<(), BundleError> {
    let [] = fields(node, [])?;
    let count = node.children().count();
    if count == 0 {
        return Err(BundleError::Malformed("its ports"));
    }
    for child in node.children() {
        let port = read_port(&child)?;
        ports.try_push(port).map_err(|_| BundleError::TooManyPorts(count))?;
    }
    Ok(())
}
