// SPDX-License-Identifier: Apache-2.0 OR MIT
//! SMMUs in device trees with the structure of QEMU's `virt`.

use std::vec::Vec;

use vm_fdt::FdtWriter;

use super::super::tests::{cells, node};
use super::*;

const NAMES: &str = "eventq\0priq\0cmdq-sync\0gerror";
/// Their interrupts: SPIs 74 to 77, with rising edges.
const INTERRUPTS: [u32; 12] = [0, 74, 1, 0, 75, 1, 0, 76, 1, 0, 77, 1];

/// What is different about an SMMU.
#[derive(Clone, Copy)]
struct Variant {
    compatible: &'static str,
    size: u64,
    names: Option<&'static str>,
    status: &'static str,
}

const VIRT: Variant =
    Variant { compatible: "arm,smmu-v3", size: 0x2_0000, names: Some(NAMES), status: "okay" };

fn found(variant: Variant, map: &[u32], mask: Option<u32>) -> (Vec<SmmuNode>, Streams) {
    let mut fdt = FdtWriter::new().unwrap();
    let root = fdt.begin_node("").unwrap();
    cells(&mut fdt, 2, 2);
    node(&mut fdt, "smmuv3@9050000", |fdt| {
        fdt.property_string("compatible", variant.compatible).unwrap();
        fdt.property_string("status", variant.status).unwrap();
        fdt.property_array_u64("reg", &[0x905_0000, variant.size]).unwrap();
        fdt.property_u32("phandle", 0x8006).unwrap();
        fdt.property_array_u32("interrupts", &INTERRUPTS).unwrap();
        if let Some(names) = variant.names {
            fdt.property("interrupt-names", &[names.as_bytes(), &[0]].concat()).unwrap();
        }
    });
    node(&mut fdt, "pcie", |fdt| {
        fdt.property_array_u32("iommu-map", map).unwrap();
        if let Some(mask) = mask {
            fdt.property_u32("iommu-map-mask", mask).unwrap();
        }
    });
    fdt.end_node(root).unwrap();
    let blob = fdt.finish().unwrap();
    let fdt = super::super::parse(&blob).unwrap();
    let bridge = fdt.root().children().find(|node| node.name() == "pcie").unwrap();
    (smmus(fdt), Streams::read(&bridge))
}

#[test]
fn the_smmu_of_a_virt_is_found() {
    let (smmus, streams) = found(VIRT, &[0, 0x8006, 0, 0x1_0000], None);
    let registers = Range { base: 0x905_0000, size: 0x2_0000 };
    assert_eq!(
        smmus,
        [SmmuNode { phandle: 0x8006, registers, events: Some(Spi { intid: 106, edge: true }) }]
    );
    assert_eq!(
        [0, 8, 0xffff].map(|requester| streams.of(requester)),
        [0, 8, 0xffff].map(|s| Some((0x8006, s)))
    );
    assert_eq!((streams.end(0x8006), streams.end(0x8007)), (0x1_0000, 0));
}

#[test]
fn its_interrupt_is_the_one_with_that_name() {
    let events = |names| found(Variant { names, ..VIRT }, &[], None).0[0].events.map(|spi| spi.intid);
    assert_eq!(events(Some("gerror\0eventq")), Some(32 + 75));
    assert_eq!(events(Some("a\0b\0c\0d\0eventq")), None, "there are only four");
    assert_eq!([events(Some("gerror")), events(None)], [None; 2]);
}

#[test]
fn what_cannot_be_driven_is_none() {
    for without in [
        Variant { compatible: "arm,mmu-500", ..VIRT },
        Variant { size: 0x1_0000, ..VIRT },
        Variant { status: "disabled", ..VIRT },
    ] {
        assert_eq!(found(without, &[], None).0, []);
    }
}

#[test]
fn requesters_are_streams_as_the_map_says() {
    let map = [0x100, 1, 0x1000, 0x80, 0x200, 2, 0xffff_fff0, 0x20, 7, 7];
    let (_, streams) = found(VIRT, &map, None);
    assert_eq!([0xff, 0x180].map(|requester| streams.of(requester)), [None; 2]);
    assert_eq!([0x100, 0x17f].map(|requester| streams.of(requester)), [Some((1, 0x1000)), Some((1, 0x107f))]);
    assert_eq!(streams.of(0x20f), Some((2, 0xffff_ffff)));
    assert_eq!(streams.of(0x210), None, "there is no such number");
    assert_eq!((streams.end(1), streams.end(2)), (0x1080, 0x1_0000_0010));
    let (_, masked) = found(VIRT, &[0, 1, 0x40, 0x100], Some(0xff));
    assert_eq!(masked.of(0x318), Some((1, 0x58)));
    let (_, none) = found(VIRT, &[], None);
    assert_eq!((none.of(0), none.end(0)), (None, 0));
}
