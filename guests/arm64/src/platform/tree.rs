// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reading the device tree (Devicetree Specification 0.4; Linux bindings arm,gic-v3, arm,gic, arm,psci, arm,armv8-timer,
//! arm,pl011, ns16550a, cfi-flash, pci-host-ecam-generic, arm,gic-v2m-frame, virtio,mmio).

use dtoolkit::Node;
use dtoolkit::fdt::{Fdt, FdtNode};
use turnstile_guests_common::image::image;
use turnstile_guests_common::tree::{cell, cells, initrd, integer, is_compatible, with_value};

use super::{Conduit, MsiFrame, PLATFORM, Pci, Platform, Region, Uart, UartKind, Virtio};

/// Reads the device tree.
///
/// # Safety
/// `address` is that of a device tree blob, or anything that is not one by its magic number; nothing else
/// runs, and no reference into the platform exists yet.
pub unsafe fn init(address: u64) {
    // SAFETY: the caller's promise.
    let platform = unsafe { PLATFORM.write() };
    if address == 0 || !address.is_multiple_of(8) {
        return;
    }
    let header = address as *const u32;
    // SAFETY: the header of a device tree is readable, by the caller's promise.
    let (magic, size) = unsafe { (u32::from_be(header.read()), u32::from_be(header.add(1).read())) };
    if magic != 0xd00d_feed {
        return;
    }
    // SAFETY: a blob is as long as its header says.
    let blob = unsafe { core::slice::from_raw_parts(address as *const u8, size as usize) };
    let Ok(tree) = Fdt::new(blob) else { return };
    let (start, end) = image();
    platform.taken.push(Region::between(start, end));
    platform.taken.push(Region { base: address, size: u64::from(size) });
    platform.tree = address;
    walk(platform, &tree);
    platform.found = true;
}

/// Cells of an address and of a size below one node.
#[derive(Clone, Copy)]
struct CellSizes {
    address: usize,
    size: usize,
}

fn walk(platform: &mut Platform, tree: &Fdt<'_>) {
    let root = tree.root();
    let sizes = cell_sizes(&root);
    let mut stdout = [0u8; 128];
    let stdout = stdout_path(tree, &mut stdout);
    for node in root.children() {
        match node.name_without_address() {
            "chosen" => chosen(platform, &node),
            "cpus" => cpus(platform, &node),
            "memory" => each_region(&node, sizes, |region| platform.memory.push(region)),
            _ => {
                device(platform, &node, sizes, stdout);
                // Boards keep their devices below a bus with a one-to-one mapping.
                let below = cell_sizes(&node);
                node.children().for_each(|child| device(platform, &child, below, stdout));
            }
        }
    }
}

fn cell_sizes(node: &FdtNode<'_>) -> CellSizes {
    CellSizes {
        address: cell(node, "#address-cells", 0).unwrap_or(2) as usize,
        size: cell(node, "#size-cells", 0).unwrap_or(1) as usize,
    }
}

fn each_region(node: &FdtNode<'_>, sizes: CellSizes, mut f: impl FnMut(Region)) {
    with_value(node, "reg", |bytes| {
        let stride = sizes.address + sizes.size;
        for index in 0..(bytes.len() / 4).checked_div(stride).unwrap_or(0) {
            let base = cells(bytes, index * stride, sizes.address);
            let size = cells(bytes, index * stride + sizes.address, sizes.size);
            if let (Some(base), Some(size)) = (base, size) {
                f(Region { base, size });
            }
        }
    });
}

fn first_region(node: &FdtNode<'_>, sizes: CellSizes) -> Option<Region> {
    let mut first = None;
    each_region(node, sizes, |region| {
        first.get_or_insert(region);
    });
    first
}

/// INTID of the interrupt specifier at `index` (arm,gic-v3: type, number, flags).
fn intid(node: &FdtNode<'_>, index: usize) -> Option<u32> {
    let kind = cell(node, "interrupts", index * 3)?;
    let number = cell(node, "interrupts", index * 3 + 1)?;
    Some(if kind == 0 { number + 32 } else { number + 16 })
}

/// Finds the full path of the console: `/chosen/stdout-path`, its options cut off, its alias resolved.
fn stdout_path<'b>(tree: &Fdt<'_>, buffer: &'b mut [u8; 128]) -> &'b str {
    let mut len = 0;
    let mut copy = |bytes: &[u8]| {
        let end = bytes.iter().position(|b| *b == 0 || *b == b':').unwrap_or(bytes.len());
        if let (Some(to), Some(from)) = (buffer.get_mut(..end), bytes.get(..end)) {
            to.copy_from_slice(from);
            len = end;
        }
    };
    if let Some(node) = tree.find_node("/chosen") {
        with_value(&node, "stdout-path", |path| {
            copy(path);
            let end = path.iter().position(|b| *b == 0 || *b == b':').unwrap_or(path.len());
            let alias = path.get(..end).and_then(|name| core::str::from_utf8(name).ok()).unwrap_or("/");
            if !alias.starts_with('/')
                && let Some(aliases) = tree.find_node("/aliases")
            {
                with_value(&aliases, alias, &mut copy);
            }
        });
    }
    buffer.get(..len).and_then(|path| core::str::from_utf8(path).ok()).unwrap_or("")
}

fn chosen(platform: &mut Platform, node: &FdtNode<'_>) {
    platform.command_line.read(node);
    if let Some(disk) = initrd(node) {
        platform.taken.push(disk);
    }
}

fn cpus(platform: &mut Platform, node: &FdtNode<'_>) {
    for cpu in node.children().filter(|cpu| cpu.name_without_address() == "cpu") {
        let disabled = with_value(&cpu, "status", |status| status.starts_with(b"disabled")) == Some(true);
        if let (false, Some(affinity)) = (disabled, integer(&cpu, "reg")) {
            platform.cpus.push(affinity);
        }
    }
}

fn device(platform: &mut Platform, node: &FdtNode<'_>, sizes: CellSizes, stdout: &str) {
    if is_compatible(node, "arm,gic-v3") {
        each_region(node, sizes, |region| match platform.gicd {
            None => platform.gicd = Some(region),
            Some(_) => platform.gicr.push(region),
        });
        // The CPU interface's legacy regions follow the redistributors in the same property.
        let regions = cell(node, "#redistributor-regions", 0).unwrap_or(1) as usize;
        platform.gicr.truncate(regions);
    } else if is_compatible(node, "arm,gic-400") || is_compatible(node, "arm,cortex-a15-gic") {
        // Hypervisors' and virtual interfaces follow, where there are any.
        each_region(node, sizes, |region| match (platform.gicd, platform.gicc) {
            (None, _) => platform.gicd = Some(region),
            (_, None) => platform.gicc = Some(region),
            _ => {}
        });
    } else if is_compatible(node, "arm,psci-0.2") || is_compatible(node, "arm,psci-1.0") {
        let hvc = with_value(node, "method", |method| method.starts_with(b"hvc")) == Some(true);
        platform.psci = Some(if hvc { Conduit::Hvc } else { Conduit::Smc });
    } else if is_compatible(node, "arm,armv8-timer") {
        platform.physical_timer = intid(node, 1).unwrap_or(30);
        platform.virtual_timer = intid(node, 2).unwrap_or(27);
    } else if is_compatible(node, "arm,armv8-pmuv3") {
        platform.pmu = intid(node, 0);
    } else if is_compatible(node, "arm,pl031") {
        platform.rtc = first_region(node, sizes);
        platform.rtc_intid = intid(node, 0);
    } else if is_compatible(node, "cfi-flash") {
        each_region(node, sizes, |region| platform.flash.push(region));
    } else if is_compatible(node, "pci-host-ecam-generic") {
        platform.pci = pci(node, sizes);
    } else if is_compatible(node, "arm,gic-v2m-frame") {
        let first = cell(node, "arm,msi-base-spi", 0);
        platform.messages =
            first_region(node, sizes).zip(first).map(|(region, first)| MsiFrame { region, first });
    } else if is_compatible(node, "virtio,mmio") {
        let found = first_region(node, sizes).zip(intid(node, 0));
        let found = found.map(|(region, intid)| Virtio { region, intid });
        platform.virtio = platform.virtio.or(found);
    } else if is_compatible(node, "xen,xen") {
        platform.xen = true;
    } else {
        uart(platform, node, sizes, stdout);
    }
}

/// A range of a bus: three cells of its own address, two of the CPUs', two of the size.
fn pci(node: &FdtNode<'_>, sizes: CellSizes) -> Option<Pci> {
    let window = with_value(node, "ranges", |ranges| {
        Some(Region { base: cells(ranges, 3, 2)?, size: cells(ranges, 5, 2)? })
    });
    Some(Pci { ecam: first_region(node, sizes)?, window: window.flatten()? })
}

fn uart(platform: &mut Platform, node: &FdtNode<'_>, sizes: CellSizes, stdout: &str) {
    let kind = if is_compatible(node, "arm,pl011") {
        UartKind::Pl011
    } else if is_compatible(node, "ns16550a") {
        UartKind::Uart16550 { shift: cell(node, "reg-shift", 0).unwrap_or(0) }
    } else {
        return;
    };
    // Paths are compared by their last part, which has the unit address and is unique.
    let is_stdout = stdout.rsplit('/').next().is_some_and(|name| name == node.name());
    if let (true, Some(region), Some(intid)) =
        (is_stdout || platform.uart.is_none(), first_region(node, sizes), intid(node, 0))
    {
        platform.uart = Some(Uart { kind, region, intid });
    }
}
