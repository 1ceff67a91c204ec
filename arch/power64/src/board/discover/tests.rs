// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Discovery on device trees with the structure of skiboot's.

use std::vec::Vec;

use vm_fdt::{FdtReserveEntry, FdtWriter};

use super::*;

/// Writes a node; `f` adds what is in it.
fn node(fdt: &mut FdtWriter, name: &str, f: impl FnOnce(&mut FdtWriter)) {
    let node = fdt.begin_node(name).unwrap();
    f(fdt);
    fdt.end_node(node).unwrap();
}

fn core(fdt: &mut FdtWriter, threads: &[u32], status: &str) {
    node(fdt, &std::format!("PowerPC,POWER9@{:x}", threads[0]), |fdt| {
        fdt.property_string("device_type", "cpu").unwrap();
        fdt.property_string("status", status).unwrap();
        fdt.property_u32("timebase-frequency", 512_000_000).unwrap();
        fdt.property_array_u32("ibm,ppc-interrupt-server#s", threads).unwrap();
    });
}

const RESERVED: [u64; 4] = [0x3000_0000, 0x60_0000, 0x31c0_0000, 0x10_0000];

fn machine_tree(radix: bool, reserved_ranges: &[u64]) -> Vec<u8> {
    let reserved = FdtReserveEntry::new(0x3000_0000, 0x60_0000).unwrap();
    let mut fdt = FdtWriter::new_with_mem_reserv(&[reserved]).unwrap();
    node(&mut fdt, "", |fdt| {
        fdt.property_u32("#address-cells", 2).unwrap();
        fdt.property_u32("#size-cells", 2).unwrap();
        fdt.property_string("model", "IBM PowerNV (emulated by qemu)").unwrap();
        fdt.property_array_u64("reserved-ranges", reserved_ranges).unwrap();
        node(fdt, "cpus", |fdt| {
            core(fdt, &[0, 1], "okay");
            core(fdt, &[8, 9], "okay");
            core(fdt, &[16, 17], "bad");
            node(fdt, "ibm,powerpc-cpu-features", |fdt| {
                node(fdt, if radix { "mmu-radix" } else { "mmu-hash" }, |_| ());
            });
        });
        node(fdt, "ibm,opal", |fdt| {
            fdt.property_u64("opal-base-address", 0x3000_0000).unwrap();
            fdt.property_u64("opal-entry-address", 0x3000_3770).unwrap();
        });
        node(fdt, "memory@0", |fdt| {
            fdt.property_string("device_type", "memory").unwrap();
            fdt.property_array_u64("reg", &[0, 0x8000_0000]).unwrap();
        });
        node(fdt, "chosen", |fdt| {
            fdt.property_string("bootargs", "link=framed").unwrap();
            fdt.property_u64("linux,initrd-start", 0x2800_0000).unwrap();
            fdt.property_u64("linux,initrd-end", 0x2800_1000).unwrap();
        });
    });
    fdt.finish().unwrap()
}

#[test]
fn skiboots_machine_is_read() {
    let blob = machine_tree(true, &RESERVED);
    let machine = machine(parse(&blob).unwrap()).unwrap();
    assert_eq!(machine.cpus.as_slice(), [0, 1, 8, 9]);
    assert_eq!(machine.memory.as_slice(), [Range { base: 0, size: 0x8000_0000 }]);
    let reserved =
        [(0x3000_0000, 0x60_0000), (0x31c0_0000, 0x10_0000)].map(|(base, size)| Range { base, size });
    assert_eq!(machine.reserved.as_slice(), reserved);
    assert_eq!(machine.initrd, Some(Range { base: 0x2800_0000, size: 0x1000 }));
    assert_eq!(machine.opal, Some((0x3000_0000, 0x3000_3770)));
    assert_eq!((machine.bootargs, machine.timebase, machine.radix), ("link=framed", Some(512_000_000), true));
}

#[test]
fn no_reserved_range_is_forgotten() {
    let reserved: Vec<u64> = (0..65).flat_map(|n| [0x4000_0000 + 0x10_0000 * n, 0x1000]).collect();
    let found = |count: usize| {
        let blob = machine_tree(true, &reserved[..2 * count]);
        machine(parse(&blob).unwrap()).map(|machine| machine.reserved.len())
    };
    assert_eq!(found(63), Ok(64), "with the entry that the blob has itself");
    assert_eq!(found(64), Err(Error::TooManyReserved));
    assert_eq!(found(65), Err(Error::TooManyReserved));
}

#[test]
fn a_machine_without_radix_trees_is_told_apart() {
    let blob = machine_tree(false, &RESERVED);
    assert!(!machine(parse(&blob).unwrap()).unwrap().radix);
}

#[test]
fn what_is_no_device_tree_is_refused() {
    let blob = machine_tree(true, &RESERVED);
    assert_eq!(parse(&blob[..blob.len() - 1]).unwrap_err(), Error::Damaged);
    assert_eq!(parse(&[0; 64]).unwrap_err(), Error::Damaged);
    assert_eq!(parse(&[]).unwrap_err(), Error::Damaged);
}

#[test]
fn the_command_line_may_say_where_the_bundle_is() {
    let range = |base, size| Some(Range { base, size });
    assert_eq!(bundle("bundle=0x40000000+0x9000000"), range(0x4000_0000, 0x900_0000));
    let wrong = [
        "bundle=",
        "bundle=0x40000000",
        "bundle=1+1",
        "bundle=0x1+0x0",
        "bundle=0xffffffffffffffff+0x2",
        "link=framed",
    ];
    assert_eq!(wrong.map(bundle), [None; 6]);
}
