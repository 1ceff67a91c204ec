// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Discovery on device trees with the structure of a Raspberry Pi 4's: devices behind buses, spin tables, memory
//! that the firmware fills in.

use std::vec::Vec;

use vm_fdt::{FdtReserveEntry, FdtWriter};

use super::*;
use crate::board::uart::UartKind;

const fn range(base: u64, size: u64) -> Range {
    Range { base, size }
}

/// Writes a node; `f` adds what is in it.
pub(super) fn node(fdt: &mut FdtWriter, name: &str, f: impl FnOnce(&mut FdtWriter)) {
    let node = fdt.begin_node(name).unwrap();
    f(fdt);
    fdt.end_node(node).unwrap();
}

/// Says how many cells addresses and sizes have below a node.
pub(super) fn cells(fdt: &mut FdtWriter, address: u32, size: u32) {
    fdt.property_u32("#address-cells", address).unwrap();
    fdt.property_u32("#size-cells", size).unwrap();
}

fn pl011(fdt: &mut FdtWriter, base: u32) {
    node(fdt, &std::format!("serial@{base:x}"), |fdt| {
        fdt.property_string_list("compatible", ["arm,pl011".into(), "arm,primecell".into()].into()).unwrap();
        fdt.property_array_u32("reg", &[base, 0x200]).unwrap();
        fdt.property_array_u32("interrupts", &[0, 0x79, 4]).unwrap();
        fdt.property_string("status", "okay").unwrap();
    });
}

/// A board whose `stdout-path` is `stdout`.
fn raspberry(stdout: &str) -> Vec<u8> {
    let reserved = FdtReserveEntry::new(0, 0x1000).unwrap();
    let mut fdt = FdtWriter::new_with_mem_reserv(&[reserved]).unwrap();
    let root = fdt.begin_node("").unwrap();
    fdt.property_string_list("compatible", ["raspberrypi,4-model-b".into(), "brcm,bcm2711".into()].into())
        .unwrap();
    fdt.property_string("model", "Raspberry Pi 4 Model B").unwrap();
    cells(&mut fdt, 2, 1);
    node(&mut fdt, "aliases", |fdt| {
        fdt.property_string("serial0", "/soc/serial@7e201000").unwrap();
        fdt.property_string("serial1", "/soc/serial@7e215040").unwrap();
    });
    node(&mut fdt, "chosen", |fdt| fdt.property_string("stdout-path", stdout).unwrap());
    node(&mut fdt, "soc", |fdt| {
        cells(fdt, 1, 1);
        let windows = [
            [0x7e00_0000, 0, 0xfe00_0000, 0x0180_0000],
            [0x7c00_0000, 0, 0xfc00_0000, 0x0200_0000],
            [0x4000_0000, 0, 0xff80_0000, 0x0080_0000],
        ];
        fdt.property_array_u32("ranges", windows.as_flattened()).unwrap();
        node(fdt, "interrupt-controller@40041000", |fdt| {
            fdt.property_string("compatible", "arm,gic-400").unwrap();
            let reg = [0x4004_1000, 0x1000, 0x4004_2000, 0x2000, 0x4004_4000, 0x2000, 0x4004_6000, 0x2000];
            fdt.property_array_u32("reg", &reg).unwrap();
            fdt.property_array_u32("interrupts", &[1, 9, 0xf04]).unwrap();
        });
        pl011(fdt, 0x7e20_1000);
        node(fdt, "serial@7e215040", |fdt| {
            fdt.property_string("compatible", "brcm,bcm2835-aux-uart").unwrap();
            fdt.property_array_u32("reg", &[0x7e21_5040, 0x40]).unwrap();
        });
        node(fdt, "watchdog@7e100000", |fdt| {
            fdt.property_string("compatible", "brcm,bcm2711-pm").unwrap();
            fdt.property_array_u32("reg", &[0x7e10_0000, 0x114, 0x7e00_a000, 0x24]).unwrap();
        });
    });
    node(&mut fdt, "cpus", |fdt| {
        cells(fdt, 1, 0);
        for cpu in 0..4u32 {
            node(fdt, &std::format!("cpu@{cpu}"), |fdt| {
                fdt.property_string("device_type", "cpu").unwrap();
                fdt.property_u32("reg", cpu).unwrap();
                fdt.property_string("enable-method", "spin-table").unwrap();
                fdt.property_u64("cpu-release-addr", 0xd8 + 8 * u64::from(cpu)).unwrap();
            });
        }
    });
    for (name, reg) in [
        ("memory@0", [0, 0, 0]),
        ("memory", [0, 0, 0x3c00_0000]),
        ("memory@40000000", [0, 0x4000_0000, 0x4000_0000]),
    ] {
        node(&mut fdt, name, |fdt| {
            fdt.property_string("device_type", "memory").unwrap();
            fdt.property_array_u32("reg", &reg).unwrap();
        });
    }
    fdt.end_node(root).unwrap();
    fdt.finish().unwrap()
}

#[test]
fn a_raspberry_pi_is_found_behind_its_bus() {
    let blob = raspberry("serial0:115200n8");
    let machine = machine(parse(&blob).unwrap()).unwrap();
    assert_eq!(machine.model, "Raspberry Pi 4 Model B");
    let Ok(GicNode::V2(gic)) = machine.gic else { panic!("{:?}", machine.gic) };
    assert_eq!((gic.distributor, gic.control), (0xff84_1000, 0xff84_4000));
    assert_eq!((gic.interface.first, gic.virtual_interface.first), (0xff84_2000, 0xff84_6000));
    assert_eq!(machine.power, Some(range(0xfe10_0000, 0x114)));
    assert_eq!((machine.psci, machine.rtc), (None, None));
    assert_eq!(machine.memory.as_slice(), [range(0, 0x3c00_0000), range(0x4000_0000, 0x4000_0000)]);
    assert_eq!(machine.reserved.as_slice(), [range(0, 0x1000)]);
    let releases: Vec<Release> = machine.cpus.iter().map(|cpu| cpu.release).collect();
    assert_eq!(releases, [0xd8, 0xe0, 0xe8, 0xf0].map(Release::SpinTable));
}

#[test]
fn its_pl011_is_the_console_whatever_stdout_path_names() {
    let expected = UartNode {
        kind: UartKind::Pl011,
        registers: range(0xfe20_1000, 0x200),
        intid: Some(32 + 0x79),
        clock: Some(48_000_000),
    };
    for stdout in
        ["serial0:115200n8", "/soc/serial@7e201000", "/soc/serial@7e201000:9600", "serial1", "none", ""]
    {
        let blob = raspberry(stdout);
        assert_eq!(uart(parse(&blob).unwrap()), Some(expected), "{stdout:?}");
    }
}

/// What a device at `base` on a bus with these windows (child, parent, length) becomes. Without windows the bus has
/// an empty `ranges`, or none.
fn translated(base: u64, windows: Option<&[[u64; 3]]>) -> Option<Range> {
    let mut fdt = FdtWriter::new().unwrap();
    let root = fdt.begin_node("").unwrap();
    cells(&mut fdt, 2, 2);
    node(&mut fdt, "outer", |fdt| {
        cells(fdt, 2, 2);
        fdt.property_array_u64("ranges", &[0x1000, 0x10_1000, 0x8000]).unwrap();
        node(fdt, "inner", |fdt| {
            cells(fdt, 2, 2);
            if let Some(windows) = windows {
                fdt.property_array_u64("ranges", windows.as_flattened()).unwrap();
            }
            node(fdt, "clock", |fdt| {
                fdt.property_string("compatible", "arm,pl031").unwrap();
                fdt.property_array_u64("reg", &[base, 0x1000]).unwrap();
            });
        });
    });
    fdt.end_node(root).unwrap();
    let blob = fdt.finish().unwrap();
    registers_of(parse(&blob).unwrap(), "arm,pl031")
}

#[test]
fn addresses_are_translated_by_every_bus() {
    assert_eq!(translated(0x2000, Some(&[])), Some(range(0x10_2000, 0x1000)));
    let windows = [[0, 0x3000, 0x1000], [0x5000, 0x1000, 0x2000]];
    assert_eq!(translated(0, Some(&windows)), Some(range(0x10_3000, 0x1000)));
    assert_eq!(translated(0x6000, Some(&windows)), Some(range(0x10_2000, 0x1000)));
}

#[test]
fn what_no_window_shows_is_not_there() {
    let windows = [[0, 0x3000, 0x1000]];
    assert_eq!(translated(0x800, Some(&windows)), None, "half of it outside");
    assert_eq!(translated(0x1000, Some(&windows)), None);
    assert_eq!(translated(0x2000, None), None, "no ranges");
    assert_eq!(translated(0x9000, Some(&[])), None, "outside of the outer window");
    assert_eq!(translated(0, Some(&[[0, u64::MAX, 0x1000]])), None, "wraps");
}
