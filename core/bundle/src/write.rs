// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The writer: descriptions and images to one blob.

use alloc::format;
use alloc::vec::Vec;

use dtoolkit::fdt::Fdt;
use dtoolkit::{Node, Property};
use vm_fdt::FdtWriter;

use crate::check::{validate, validate_pool};
use crate::digest::{self, DIGEST_OFFSET};
use crate::disk::{DiskSpec, Drive, validate_disks};
use crate::error::BundleError;
use crate::machine::{Arm64, Format, Machine, Pc, Pseries};
use crate::port::{PortSpec, validate_ports};
use crate::schedule::{Class, Schedule};
use crate::service::{ServiceSpec, Uplink, validate_services};
use crate::spec::VmSpec;
use crate::{COMPATIBLE, IMAGE_ALIGN, VERSION};

/// What the tree takes beside the images: generous for the most VMs with the longest lists and command lines.
const TREE_RESERVE: u64 = 1 << 20;

/// An image to be stored, with its digest.
struct Image<'a> {
    data: &'a [u8],
    digest: u64,
    padding: usize,
}

/// The indexes of a VM's images.
struct Indexes {
    kernel: u32,
    initrd: Option<u32>,
}

/// All that a bundle describes.
struct Contents<'a> {
    vms: &'a [VmSpec<'a>],
    indexes: &'a [Indexes],
    services: &'a [ServiceSpec<'a>],
    /// The indexes of the services' programs.
    programs: &'a [u32],
    disks: &'a [DiskSpec<'a>],
    /// The indexes of the disks' images.
    contents: &'a [Option<u32>],
    ports: &'a [PortSpec],
    /// The bytes of the pool, zero if there is none.
    pool: u64,
}

/// Writes a bundle of these VMs; the same VMs always give the same bytes.
///
/// # Errors
///
/// Refuses descriptions that [`validate`] refuses, and images of 4 GiB or more together.
pub fn write(vms: &[VmSpec<'_>]) -> Result<Vec<u8>, BundleError> {
    write_with(vms, &[], &[], &[], 0)
}

/// Writes a bundle of these VMs, services, disks and ports of networks, and of a pool of so many bytes, unless that is zero.
///
/// # Errors
///
/// Refuses descriptions that [`validate`], [`validate_pool`], [`validate_disks`], [`validate_services`] or [`validate_ports`] refuses, and images of 4 GiB
/// or more together.
pub fn write_with(
    vms: &[VmSpec<'_>],
    services: &[ServiceSpec<'_>],
    disks: &[DiskSpec<'_>],
    ports: &[PortSpec],
    pool: u64,
) -> Result<Vec<u8>, BundleError> {
    validate(vms)?;
    validate_pool(vms, pool)?;
    validate_disks(disks)?;
    validate_services(vms, services, disks)?;
    validate_ports(vms, services, ports)?;

    let mut images = Vec::new();
    let indexes: Vec<Indexes> = vms
        .iter()
        .map(|vm| Indexes {
            kernel: store(&mut images, vm.kernel),
            initrd: vm.initrd.map(|initrd| store(&mut images, initrd)),
        })
        .collect();
    let programs: Vec<u32> = services.iter().map(|service| store(&mut images, service.program)).collect();
    let contents: Vec<Option<u32>> =
        disks.iter().map(|disk| disk.image.map(|image| store(&mut images, image))).collect();
    let contents = Contents {
        vms,
        indexes: &indexes,
        services,
        programs: &programs,
        disks,
        contents: &contents,
        ports,
        pool,
    };
    let size: u64 = images.iter().map(|image| image.data.len() as u64).sum();
    if size + TREE_RESERVE > u64::from(u32::MAX) {
        return Err(BundleError::TooLarge(size));
    }

    let refused = BundleError::Malformed("the device tree writer refused it");
    let empty: Vec<Image<'_>> = images.iter().map(|image| Image { data: &[], ..*image }).collect();
    let draft = tree(&contents, &empty).map_err(|_| refused)?;
    align(&mut images, &draft).ok_or(refused)?;
    let mut blob = tree(&contents, &images).map_err(|_| refused)?;
    let (_, digest) = digest::digests(&blob).ok_or(refused)?;
    let place = blob.get_mut(DIGEST_OFFSET..).and_then(|rest| rest.first_chunk_mut()).ok_or(refused)?;
    *place = digest.to_be_bytes();
    Ok(blob)
}

/// Returns the index of the image with these bytes, which is stored unless an equal one is.
fn store<'a>(images: &mut Vec<Image<'a>>, data: &'a [u8]) -> u32 {
    let digest = digest::image(data);
    let found = images.iter().position(|image| image.digest == digest && image.data == data);
    found.unwrap_or_else(|| {
        images.push(Image { data, digest, padding: 0 });
        images.len() - 1
    }) as u32
}

/// Sets each image's padding so that its bytes are at a multiple of [`IMAGE_ALIGN`] in the blob. The draft is the blob with empty images
/// and without padding.
fn align(images: &mut [Image<'_>], draft: &[u8]) -> Option<()> {
    let fdt = Fdt::new(draft).ok()?;
    let nodes = fdt.root().child("images")?;
    // What the images and paddings so far add to the draft's offsets. The format fills each up to four bytes.
    let mut added = 0;
    for (image, node) in images.iter_mut().zip(nodes.children()) {
        let start = node.property("data")?.value().as_ptr().addr() - draft.as_ptr().addr() + added;
        image.padding = start.next_multiple_of(IMAGE_ALIGN) - start;
        added += image.padding + image.data.len().next_multiple_of(4);
    }
    Some(())
}

fn tree(contents: &Contents<'_>, images: &[Image<'_>]) -> Result<Vec<u8>, vm_fdt::Error> {
    let mut fdt = FdtWriter::new()?;
    let root = fdt.begin_node("")?;
    fdt.property_u64("digest", 0)?;
    fdt.property_string("compatible", COMPATIBLE)?;
    fdt.property_u32("version", VERSION)?;
    if contents.pool != 0 {
        fdt.property_u64("pool", contents.pool)?;
    }

    nodes(&mut fdt, ("images", "image"), images, describe_image)?;
    let vms = contents.vms.iter().zip(contents.indexes);
    nodes(&mut fdt, ("vms", "vm"), vms, |fdt, (vm, images)| describe(fdt, vm, images))?;
    if !contents.services.is_empty() {
        let services = contents.services.iter().zip(contents.programs);
        let describe = |fdt: &mut _, (service, &program)| describe_service(fdt, service, program);
        nodes(&mut fdt, ("services", "service"), services, describe)?;
    }
    if !contents.disks.is_empty() {
        let disks = contents.disks.iter().zip(contents.contents);
        nodes(&mut fdt, ("disks", "disk"), disks, |fdt, (disk, &image)| describe_disk(fdt, disk, image))?;
    }
    if !contents.ports.is_empty() {
        nodes(&mut fdt, ("ports", "port"), contents.ports, describe_port)?;
    }
    fdt.end_node(root)?;
    fdt.finish()
}

/// Writes a node of this name with one in it for each item, which are numbered and described.
fn nodes<T>(
    fdt: &mut FdtWriter,
    (list, one): (&str, &str),
    items: impl IntoIterator<Item = T>,
    mut describe: impl FnMut(&mut FdtWriter, T) -> Result<(), vm_fdt::Error>,
) -> Result<(), vm_fdt::Error> {
    let node = fdt.begin_node(list)?;
    for (index, item) in items.into_iter().enumerate() {
        let node = fdt.begin_node(&format!("{one}-{index}"))?;
        describe(fdt, item)?;
        fdt.end_node(node)?;
    }
    fdt.end_node(node)
}

fn describe_image(fdt: &mut FdtWriter, image: &Image<'_>) -> Result<(), vm_fdt::Error> {
    fdt.property_u64("digest", image.digest)?;
    fdt.property("padding", &[0; IMAGE_ALIGN][..image.padding])?;
    fdt.property("data", image.data)
}

fn describe(fdt: &mut FdtWriter, vm: &VmSpec<'_>, images: &Indexes) -> Result<(), vm_fdt::Error> {
    let cpus: Vec<u32> = vm.cpus.iter().map(u32::from).collect();
    fdt.property_string("name", vm.name)?;
    fdt.property_u32("vcpus", vm.vcpus as u32)?;
    fdt.property_array_u32("cpus", &cpus)?;
    fdt.property_string("schedule", vm.schedule.name())?;
    match vm.schedule {
        Schedule::Pinned => {}
        Schedule::Shared(Class::Fair { weight }) => fdt.property_u32("weight", u32::from(weight))?,
        Schedule::Shared(Class::RealTime { priority }) => {
            fdt.property_u32("realtime", u32::from(priority))?;
        }
    }
    fdt.property_u64("memory", vm.memory)?;
    fdt.property_string("mapping", vm.mapping.name())?;
    fdt.property_string("machine", vm.machine.name())?;
    match vm.machine {
        Machine::Arm64(Arm64 { gic, pmu, sve, format, flash, virtio, .. }) => {
            fdt.property_string("gic", gic.name())?;
            fdt.property_string("pmu", pmu.name())?;
            if sve {
                fdt.property_null("sve")?;
            }
            fdt.property_string("format", format.name())?;
            if let Format::Flat(flat) = format {
                fdt.property_u64("load", flat.load)?;
                fdt.property_u64("entry", flat.entry)?;
            }
            if flash != 0 {
                fdt.property_u64("flash", flash)?;
            }
            fdt.property_string("virtio", virtio.name())?;
        }
        Machine::Pc(Pc { apic, paravirt, triple_fault }) => {
            fdt.property_string("apic", apic.name())?;
            let names = paravirt.iter().map(|feature| feature.name().into()).collect();
            fdt.property_string_list("paravirt", names)?;
            fdt.property_string("triple-fault", triple_fault.name())?;
        }
        Machine::Pseries(Pseries { interrupts, threads }) => {
            fdt.property_string("interrupts", interrupts.name())?;
            fdt.property_u32("threads", threads.into())?;
        }
    }
    fdt.property_string("on-crash", vm.on_crash.name())?;
    if vm.statistics {
        fdt.property_null("statistics")?;
    }
    fdt.property_string("cmdline", vm.cmdline)?;
    fdt.property_u32("kernel", images.kernel)?;
    if let Some(initrd) = images.initrd {
        fdt.property_u32("initrd", initrd)?;
    }
    Ok(())
}

fn describe_service(
    fdt: &mut FdtWriter,
    service: &ServiceSpec<'_>,
    program: u32,
) -> Result<(), vm_fdt::Error> {
    fdt.property_string("name", service.name)?;
    fdt.property_u32("program", program)?;
    if let Some(vm) = service.vm {
        fdt.property_u32("vm", vm as u32)?;
    }
    fdt.property_string("device", service.device.name())?;
    fdt.property_u64("time-limit", service.limit)?;
    if service.memory {
        fdt.property_null("memory")?;
    }
    if let Some(disk) = service.disk {
        fdt.property_u32("disk", disk as u32)?;
    }
    if let Some(joins) = service.joins {
        fdt.property_u32("joins", joins as u32)?;
    }
    if let Some(cpu) = service.cpu {
        fdt.property_u32("cpu", cpu.into())?;
    }
    if let Some(Uplink { card, trusted }) = service.uplink {
        fdt.property_u32("uplink", card as u32)?;
        if trusted {
            fdt.property_null("trusted")?;
        }
    }
    if !service.ports.is_empty() {
        fdt.property_string("ports", service.ports)?;
    }
    Ok(())
}

fn describe_disk(fdt: &mut FdtWriter, disk: &DiskSpec<'_>, image: Option<u32>) -> Result<(), vm_fdt::Error> {
    fdt.property_string("name", disk.name)?;
    if let Some(image) = image {
        fdt.property_u32("image", image)?;
    }
    fdt.property_u64("size", disk.size)?;
    if disk.read_only {
        fdt.property_null("read-only")?;
    }
    if let Some(writes) = disk.writes {
        fdt.property_u64("writes", writes)?;
    }
    if let Some(Drive { kind, number, partition, trusted }) = disk.drive {
        fdt.property_string("drive", kind.name())?;
        fdt.property_u32("number", number as u32)?;
        if let Some(partition) = partition {
            fdt.property_u32("partition", partition)?;
        }
        if trusted {
            fdt.property_null("trusted")?;
        }
    }
    Ok(())
}

fn describe_port(fdt: &mut FdtWriter, port: &PortSpec) -> Result<(), vm_fdt::Error> {
    fdt.property_u32("service", port.service as u32)?;
    fdt.property_u32("vm", port.vm as u32)?;
    fdt.property("mac", &port.mac)?;
    if port.guard {
        fdt.property_null("guard")?;
    }
    if port.isolated {
        fdt.property_null("isolated")?;
    }
    if let Some(rate) = port.rate {
        fdt.property_u64("rate", rate)?;
    }
    fdt.property_u32("queues", port.queues.into())?;
    Ok(())
}
