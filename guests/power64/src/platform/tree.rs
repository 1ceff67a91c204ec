// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reading the device tree (LoPAR, appendices on the device tree).

use dtoolkit::Node;
use dtoolkit::fdt::{Fdt, FdtNode};
use turnstile_guests_common::image::image;
use turnstile_guests_common::options;
use turnstile_guests_common::tree::{cell, initrd, is_compatible, wide, with_value};

use super::{Controller, PLATFORM, Pci, Platform, Region, Rtas, Tokens, Xive};

/// Reads the device tree.
///
/// # Safety
/// `address` is that of a device tree blob; nothing else runs, and no reference into the platform exists yet.
pub unsafe fn init(address: u64) {
    // SAFETY: the caller's promise.
    let platform = unsafe { PLATFORM.write() };
    let (start, end) = image();
    platform.taken.push(Region::between(start, end));
    let header = address as *const u32;
    // SAFETY: the header of a device tree is readable, by the caller's promise.
    let size = u32::from_be(unsafe { header.add(1).read() });
    // SAFETY: a blob is as long as its header says.
    let blob = unsafe { core::slice::from_raw_parts(address as *const u8, size as usize) };
    // Not `new`, which takes no names of more than 31 characters: PAPR has some.
    let tree = Fdt::new_unchecked(blob);
    platform.taken.push(Region { base: address, size: u64::from(size) });
    for node in tree.root().children() {
        match node.name_without_address() {
            "chosen" => chosen(platform, &node),
            "cpus" => node.children().for_each(|cpu| read_cpu(platform, &cpu)),
            "memory" => memory(platform, &node),
            "rtas" => rtas(platform, &node),
            "vdevice" => vdevice(platform, &node),
            "pci" => platform.pci = pci(&node),
            _ => device(platform, &node),
        }
    }
    // One that the device tree does not tell: its address is an option.
    let base = options::number_in(platform.command_line(), "uart", 0);
    if base != 0 {
        platform.uart = Some(Region { base, size: 0x1000 });
    }
}

fn chosen(platform: &mut Platform, node: &FdtNode<'_>) {
    platform.command_line.read(node);
    if let Some(disk) = initrd(node) {
        platform.taken.push(disk);
    }
}

fn read_cpu(platform: &mut Platform, node: &FdtNode<'_>) {
    if !with_value(node, "device_type", |bytes| bytes.starts_with(b"cpu")).unwrap_or(false) {
        return;
    }
    let threads = with_value(node, "ibm,ppc-interrupt-server#s", <[u8]>::len).unwrap_or(0) / 4;
    if platform.threads == 0 {
        platform.threads = threads;
    }
    for thread in 0..threads {
        if let Some(server) = cell(node, "ibm,ppc-interrupt-server#s", thread) {
            platform.cpus.push(server);
        }
    }
    if let Some(hertz) = cell(node, "timebase-frequency", 0).filter(|hertz| *hertz != 0) {
        platform.timebase = u64::from(hertz);
    }
    platform.radix |= node.property("ibm,processor-radix-AP-encodings").is_some();
}

/// Addresses and sizes of a partition's memory have two cells each.
fn memory(platform: &mut Platform, node: &FdtNode<'_>) {
    if let (Some(base), Some(size)) = (wide(node, "reg", 0), wide(node, "reg", 2)) {
        platform.memory.push(Region { base, size });
    }
}

fn rtas(platform: &mut Platform, node: &FdtNode<'_>) {
    let token = |name| cell(node, name, 0);
    platform.tokens = Tokens {
        start_cpu: token("start-cpu"),
        stop_self: token("stop-self"),
        query_stopped: token("query-cpu-stopped-state"),
        power_off: token("power-off"),
        reboot: token("system-reboot"),
        terminate: token("ibm,os-term"),
        get_time: token("get-time-of-day"),
        set_time: token("set-time-of-day"),
        display: token("display-character"),
        get_parameter: token("ibm,get-system-parameter"),
        set_xive: token("ibm,set-xive"),
        int_on: token("ibm,int-on"),
        read_pci: token("ibm,read-pci-config"),
        write_pci: token("ibm,write-pci-config"),
        change_msi: token("ibm,change-msi"),
        query_source: token("ibm,query-interrupt-source-number"),
    };
    if let (Some(base), Some(entry)) = (token("linux,rtas-base"), token("linux,rtas-entry")) {
        let size = token("rtas-size").unwrap_or(4096);
        platform.rtas = Some(Rtas { base: u64::from(base), entry: u64::from(entry) });
        platform.taken.push(Region { base: u64::from(base), size: u64::from(size) });
    }
}

fn vdevice(platform: &mut Platform, node: &FdtNode<'_>) {
    let terminals = node.children().filter(|child| child.name_without_address() == "vty");
    // The first one; others are for other purposes.
    if let Some(unit) = terminals.filter_map(|vty| cell(&vty, "reg", 0)).next() {
        platform.terminal = u64::from(unit);
    }
}

/// A host bridge with one window, which is for memory of 32 bits. `None` if that is not at the lower half of its address.
fn pci(node: &FdtNode<'_>) -> Option<Pci> {
    let window = Region { base: wide(node, "ranges", 3)?, size: wide(node, "ranges", 5)? };
    let is_same = cell(node, "ranges", 2)? == window.base as u32;
    is_same.then_some(Pci { unit: wide(node, "reg", 0)?, window })
}

fn device(platform: &mut Platform, node: &FdtNode<'_>) {
    if is_compatible(node, "ibm,power-ivpe") {
        // The user's page, then the operating system's.
        let presentation = wide(node, "reg", 4);
        let ranges = |index| cell(node, "ibm,xive-lisn-ranges", index);
        if let (Some(presentation), Some(first_source), Some(sources)) = (presentation, ranges(0), ranges(1))
        {
            platform.controller = Controller::Xive(Xive { presentation, first_source, sources });
        }
    } else if is_compatible(node, "IBM,ppc-xicp") {
        platform.controller = Controller::Xics;
    } else if is_compatible(node, "ns16550a")
        && let (Some(base), Some(size)) = (wide(node, "reg", 0), wide(node, "reg", 2))
    {
        platform.uart = Some(Region { base, size });
    }
}
