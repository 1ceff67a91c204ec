// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What any device tree says.

use dtoolkit::fdt::Fdt;
use turnstile_firmware::Range;
use turnstile_firmware::tree::{self, Error, MAX_RESERVED};
use vm_fdt::{FdtReserveEntry, FdtWriter};

fn range(base: u64, size: u64) -> Range {
    Range { base, size }
}

/// Writes a device tree: `f` adds what is in its root, whose addresses and sizes have two cells.
fn blob(reserved: &[FdtReserveEntry], f: impl FnOnce(&mut FdtWriter)) -> Vec<u8> {
    let mut fdt = FdtWriter::new_with_mem_reserv(reserved).unwrap();
    let root = fdt.begin_node("").unwrap();
    fdt.property_u32("#address-cells", 2).unwrap();
    fdt.property_u32("#size-cells", 2).unwrap();
    f(&mut fdt);
    fdt.end_node(root).unwrap();
    fdt.finish().unwrap()
}

/// Writes a node; `f` adds what is in it.
fn node(fdt: &mut FdtWriter, name: &str, f: impl FnOnce(&mut FdtWriter)) {
    let node = fdt.begin_node(name).unwrap();
    f(fdt);
    fdt.end_node(node).unwrap();
}

fn memory(fdt: &mut FdtWriter, status: &str, reg: &[u64]) {
    node(fdt, &format!("memory@{:x}", reg[0]), |fdt| {
        fdt.property_string("device_type", "memory").unwrap();
        fdt.property_string("status", status).unwrap();
        fdt.property_array_u64("reg", reg).unwrap();
    });
}

#[test]
fn memory_is_what_may_be_used_and_is_not_empty() {
    let blob = blob(&[], |fdt| {
        memory(fdt, "okay", &[0, 0]);
        memory(fdt, "disabled", &[0x1000, 0x1000]);
        memory(fdt, "ok", &[0x4000, 0x1000, 0x8000, 0x2000]);
        memory(fdt, "okay", &[0x1_0000, 0x1000]);
    });
    let fdt = Fdt::new(&blob).unwrap();
    let all = [range(0x4000, 0x1000), range(0x8000, 0x2000), range(0x1_0000, 0x1000)];
    assert_eq!(tree::memory::<8>(fdt).unwrap().as_slice(), all);
    assert_eq!(tree::memory::<2>(fdt).unwrap().as_slice(), &all[..2]);
}

#[test]
fn without_memory_there_is_no_machine() {
    let blob = blob(&[], |fdt| memory(fdt, "disabled", &[0x1000, 0x1000]));
    assert_eq!(tree::memory::<8>(Fdt::new(&blob).unwrap()), Err(Error::NoMemory));
}

#[test]
fn what_is_reserved_is_remembered_once_and_wholly() {
    let entries = [FdtReserveEntry::new(0x1000, 0x1000).unwrap()];
    let blob = blob(&entries, |fdt| {
        node(fdt, "reserved-memory", |fdt| {
            fdt.property_u32("#address-cells", 2).unwrap();
            fdt.property_u32("#size-cells", 2).unwrap();
            node(fdt, "a", |fdt| fdt.property_array_u64("reg", &[0x1000, 0x1000, 0x3000, 0x1000]).unwrap());
            node(fdt, "b", |fdt| fdt.property_array_u64("reg", &[0x5000, 0]).unwrap());
        });
    });
    let fdt = Fdt::new(&blob).unwrap();
    let listed = (0..).map(|n| range(0x10_0000 + n * 0x1000, 0x800));
    let all = tree::reserved(fdt, listed.clone().take(MAX_RESERVED - 2)).unwrap();
    assert_eq!(all[..3], [range(0x1000, 0x1000), range(0x3000, 0x1000), range(0x10_0000, 0x800)]);
    assert_eq!(tree::reserved(fdt, listed.take(MAX_RESERVED - 1)), Err(Error::TooManyReserved));
}

#[test]
fn only_cpus_that_may_be_used_are_cpus() {
    let cpu = |fdt: &mut FdtWriter, name: &str, kind: &str, status: &str| {
        node(fdt, name, |fdt| {
            fdt.property_string("device_type", kind).unwrap();
            fdt.property_string("status", status).unwrap();
        });
    };
    let blob = blob(&[], |fdt| {
        node(fdt, "cpus", |fdt| {
            cpu(fdt, "a", "cpu", "okay");
            cpu(fdt, "b", "cpu", "fail");
            cpu(fdt, "c", "cache", "okay");
            node(fdt, "cpu-map", |_| ());
            cpu(fdt, "d", "cpu", "ok");
        });
    });
    let fdt = Fdt::new(&blob).unwrap();
    assert_eq!(
        tree::cpus(fdt).map(|node| dtoolkit::Node::name(&node).to_string()).collect::<Vec<_>>(),
        ["a", "d"]
    );
}

#[test]
fn the_boot_loader_says_what_it_has_loaded() {
    let with = |start: &[u32], end: &[u32]| {
        let blob = blob(&[], |fdt| {
            fdt.property_string("model", "a board").unwrap();
            node(fdt, "chosen", |fdt| {
                fdt.property_string("bootargs", "link=framed").unwrap();
                fdt.property_array_u32("linux,initrd-start", start).unwrap();
                fdt.property_array_u32("linux,initrd-end", end).unwrap();
            });
        });
        let fdt = Fdt::new(&blob).unwrap();
        assert_eq!((tree::bootargs(fdt), tree::model(fdt)), ("link=framed", "a board"));
        tree::initrd(fdt)
    };
    assert_eq!(with(&[0x1000], &[0x3000]), Some(range(0x1000, 0x2000)));
    assert_eq!(with(&[1, 0x1000], &[1, 0x3000]), Some(range(0x1_0000_1000, 0x2000)));
    assert_eq!(with(&[0x1000], &[0x1000]), None, "nothing");
    assert_eq!(with(&[0x3000], &[0x1000]), None, "ends before it begins");
    assert_eq!(with(&[], &[0x1000]), None, "no number");
    assert_eq!(with(&[0, 0, 0], &[0x1000]), None, "too wide");
}
