// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Host bridges in device trees with the structure of QEMU's `virt`.

use std::vec::Vec;

use vm_fdt::FdtWriter;

use super::super::tests::{cells, node};
use super::*;

const GIC: u32 = 0x8002;
const OTHER: u32 = 0x8003;

/// What is different about a bridge.
struct Variant<'a> {
    compatible: &'a str,
    reg: [u64; 2],
    buses: Option<[u32; 2]>,
    ranges: &'a [[u32; 7]],
    dma: Option<&'a [[u32; 7]]>,
    coherent: bool,
    /// On a bus that shows its addresses from 0 to 2^32 at 2^36.
    behind: bool,
}

const IO: [u32; 7] = [0x0100_0000, 0, 0, 0, 0x3eff_0000, 0, 0x1_0000];
const LOW: [u32; 7] = [0x0200_0000, 0, 0x1000_0000, 0, 0x1000_0000, 0, 0x2eff_0000];
const HIGH: [u32; 7] = [0x4300_0000, 0x80, 0, 0x90, 0, 0x80, 0];

const VIRT: Variant<'static> = Variant {
    compatible: "pci-host-ecam-generic",
    reg: [0x40_1000_0000, 0x1000_0000],
    buses: Some([0, 0xff]),
    ranges: &[IO, LOW, HIGH],
    dma: None,
    coherent: true,
    behind: false,
};

fn controller(fdt: &mut FdtWriter, name: &str, phandle: u32, compatible: &str, cells: [u32; 2]) {
    node(fdt, name, |fdt| {
        fdt.property_string("compatible", compatible).unwrap();
        fdt.property_u32("phandle", phandle).unwrap();
        fdt.property_u32("#address-cells", cells[0]).unwrap();
        fdt.property_u32("#interrupt-cells", cells[1]).unwrap();
    });
}

fn bridge(fdt: &mut FdtWriter, variant: &Variant<'_>) {
    node(fdt, "pcie@10000000", |fdt| {
        fdt.property_string("compatible", variant.compatible).unwrap();
        fdt.property_array_u64("reg", &variant.reg).unwrap();
        if let Some(buses) = variant.buses {
            fdt.property_array_u32("bus-range", &buses).unwrap();
        }
        cells(fdt, 3, 2);
        fdt.property_array_u32("ranges", variant.ranges.as_flattened()).unwrap();
        if let Some(dma) = variant.dma {
            fdt.property_array_u32("dma-ranges", dma.as_flattened()).unwrap();
        }
        if variant.coherent {
            fdt.property_null("dma-coherent").unwrap();
        }
        fdt.property_array_u32("interrupt-map-mask", &[0x1800, 0, 0, 7]).unwrap();
        let mut map = Vec::new();
        for slot in 0..4 {
            for pin in 1..=4u32 {
                let line = 3 + (slot + pin - 1) % 4;
                map.extend([slot << 11, 0, 0, pin]);
                match (slot, pin) {
                    // Of another controller, whose cells are others.
                    (3, 4) => map.extend([OTHER, line]),
                    (2, 4) => map.extend([GIC, 0, 0, 0, line, 1]),
                    (1, 4) => map.extend([GIC, 0, 0, 1, line, 4]),
                    _ => map.extend([GIC, 0, 0, 0, line, 4]),
                }
            }
        }
        // The last line leads to nobody.
        map.extend([0, 0, 0, 5, 7, 0, 0, 0, 0, 4]);
        fdt.property_array_u32("interrupt-map", &map).unwrap();
    });
}

/// What is found of these bridges.
fn found(variants: &[Variant<'_>]) -> Vec<PciNode> {
    let mut fdt = FdtWriter::new().unwrap();
    let root = fdt.begin_node("").unwrap();
    cells(&mut fdt, 2, 2);
    controller(&mut fdt, "other", OTHER, "acme,pic", [0, 1]);
    for variant in variants.iter().filter(|variant| !variant.behind) {
        bridge(&mut fdt, variant);
    }
    node(&mut fdt, "soc", |fdt| {
        cells(fdt, 2, 2);
        fdt.property_array_u64("ranges", &[0, 1 << 36, 1 << 32]).unwrap();
        fdt.property_array_u64("dma-ranges", &[1 << 31, 0, 1 << 31]).unwrap();
        variants.iter().filter(|variant| variant.behind).for_each(|variant| bridge(fdt, variant));
        controller(fdt, "intc", GIC, "arm,gic-v3", [2, 3]);
    });
    fdt.end_node(root).unwrap();
    let blob = fdt.finish().unwrap();
    bridges(super::super::parse(&blob).unwrap())
}

fn one(variant: Variant<'_>) -> PciNode {
    let [found] = found(&[variant]).try_into().unwrap();
    found
}

/// The bridge of a `virt` whose configuration space is elsewhere, with these buses.
pub(crate) fn virt(configuration: u64, [first, last]: [u32; 2]) -> PciNode {
    let size = u64::from(last - first + 1) << 20;
    one(Variant { reg: [configuration, size], buses: Some([first, last]), ..VIRT })
}

const fn level(n: u32) -> Option<Spi> {
    Some(Spi { intid: 32 + n, edge: false })
}

#[test]
fn the_bridge_of_a_virt_is_found() {
    let bridge = one(VIRT);
    assert_eq!(bridge.configuration, Range { base: 0x40_1000_0000, size: 0x1000_0000 });
    assert_eq!((bridge.buses, bridge.function(255, 31, 7)), ((0, 255), Some(0xfff_f000)));
    assert_eq!(bridge.room(), Some((0x1000_0000, 0x2eff_0000)));
    assert_eq!(bridge.physical(0x1000_1000), Some(0x1000_1000));
    assert_eq!(bridge.physical(0x3efe_ffff), Some(0x3efe_ffff));
    assert_eq!((bridge.physical(0x3eff_0000), bridge.physical(0)), (None, None), "that is I/O");
    assert_eq!(bridge.physical(0x80_0000_1234), Some(0x90_0000_1234));
    assert_eq!(bridge.reach(0x4123_4000), Some(0x4123_4000));
}

#[test]
fn pins_lead_to_spis_by_slot_and_in_turn() {
    let bridge = one(VIRT);
    for slot in 0..32 {
        assert_eq!(bridge.interrupt(slot, 0, 1), level(3 + u32::from(slot) % 4));
        assert_eq!(
            bridge.interrupt(slot, 7, 1),
            bridge.interrupt(slot, 0, 1),
            "the mask leaves functions out"
        );
    }
    assert_eq!(
        bridge.interrupt(2, 0, 4),
        Some(Spi { intid: 32 + 4, edge: true }),
        "2 + 4 - 1 = 5, 5 % 4 = 1"
    );
    assert_eq!(bridge.interrupt(1, 0, 4), None, "a PPI");
    assert_eq!(bridge.interrupt(3, 0, 4), None, "another controller's");
    assert_eq!(bridge.interrupt(0, 0, 5), None, "of a controller that is nowhere");
    assert_eq!(bridge.interrupt(0, 0, 0), None, "no pin");
}

#[test]
fn buses_are_those_that_have_configuration_space() {
    let bridge = one(Variant { reg: [0x3f00_0000, 0x0100_0000], ..VIRT });
    assert_eq!((bridge.buses, bridge.function(16, 0, 0)), ((0, 15), None));
    let bridge = one(Variant { buses: Some([0x20, 0x2f]), ..VIRT });
    assert_eq!((bridge.buses, bridge.configuration.size), ((0x20, 0x2f), 0x0100_0000));
    assert_eq!((bridge.function(0x1f, 0, 0), bridge.function(0x21, 1, 1)), (None, Some(0x10_9000)));
    assert_eq!(one(Variant { buses: None, ..VIRT }).buses, (0, 255));
    for without in [
        Variant { compatible: "pci-host-cam-generic", ..VIRT },
        Variant { reg: [0x3f00_0000, 0xf_ffff], ..VIRT },
        Variant { buses: Some([2, 1]), ..VIRT },
        Variant { buses: Some([0, 256]), ..VIRT },
    ] {
        assert_eq!(found(&[without]), []);
    }
    assert_eq!(found(&[VIRT, Variant { reg: [0x3f00_0000, 0x0100_0000], ..VIRT }]).len(), 2);
}

#[test]
fn room_is_where_every_function_can_be_and_otherwise_what_there_is() {
    let prefetchable = [0x4200_0000, 0, 0x5000_0000, 0, 0x5000_0000, 0, 0x1000];
    let room = |ranges: &[[u32; 7]]| one(Variant { ranges, ..VIRT }).room();
    assert_eq!(room(&[HIGH, prefetchable, LOW]), Some((0x1000_0000, 0x2eff_0000)));
    assert_eq!(room(&[HIGH, prefetchable]), Some((0x5000_0000, 0x1000)));
    assert_eq!(room(&[IO, HIGH]), Some((0x80_0000_0000, 0x80_0000_0000)));
    assert_eq!(room(&[IO]), None);
}

#[test]
fn addresses_are_translated_by_every_bus_and_its_dma_not_at_all() {
    let behind = Variant { reg: [0x3000_0000, 0x10_0000], ranges: &[LOW, HIGH], behind: true, ..VIRT };
    let bridge = one(behind);
    assert_eq!(bridge.configuration.base, 0x10_3000_0000);
    assert_eq!(bridge.physical(0x1000_0000), Some(0x10_1000_0000));
    assert_eq!(bridge.physical(0x80_0000_0000), None, "the bus above does not show it");
    assert_eq!(bridge.reach(0x4000_0000), None, "the bus above says otherwise");
}

#[test]
fn functions_reach_what_dma_ranges_say_if_they_see_caches() {
    assert_eq!(one(Variant { coherent: false, ..VIRT }).reach(0x4000_0000), None);
    let dma = [[0x0200_0000, 0, 0x8000_0000, 0, 0x4000_0000, 0, 0x4000_0000]];
    let bridge = one(Variant { dma: Some(&dma), ..VIRT });
    assert_eq!(bridge.reach(0x4000_1000), Some(0x8000_1000));
    assert_eq!((bridge.reach(0x3fff_ffff), bridge.reach(0x8000_0000)), (None, None));
    let all = |base, size| bridge.reach_all(Range { base, size });
    assert_eq!(all(0x7fff_f000, 0x1000), Some(0xbfff_f000));
    assert_eq!([all(0x7fff_f000, 0x1001), all(0x3fff_f000, 0x2000), all(0x4000_0000, 0)], [None; 3]);
    assert_eq!(one(Variant { dma: Some(&[]), ..VIRT }).reach(0x1_0000_0000), Some(0x1_0000_0000));
}
