// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The guest's device tree, read back with an independent parser.

use dtoolkit::fdt::{Fdt, FdtNode};
use dtoolkit::{Node, Property};
use proptest::prelude::*;
use turnstile_machine::fdt::{Error, MAX_BOOTARGS, MAX_SIZE, build};
use turnstile_machine::{GicVersion, GuestMachine, MapError, Platform, mpidr};

const MIB: u64 = 1 << 20;

fn platform(machine: GuestMachine, vcpus: usize) -> Platform<'static> {
    Platform {
        machine,
        gic: GicVersion::V3,
        vcpus,
        memory: 256 * MIB,
        bootargs: "console=ttyAMA0",
        initrd: None,
        pmu: false,
        flash: 0,
        service: false,
        pci: false,
        virtio: 0,
    }
}

fn cells(node: &FdtNode<'_>, name: &str) -> Vec<u32> {
    let property = node.property(name).unwrap_or_else(|| panic!("{} has no {name}", node.name()));
    let (cells, rest) = property.value().as_chunks();
    assert!(rest.is_empty());
    cells.iter().map(|cell| u32::from_be_bytes(*cell)).collect()
}

/// Pairs of 64-bit base and size.
fn reg(node: &FdtNode<'_>) -> Vec<(u64, u64)> {
    let wide = |high: u32, low: u32| (u64::from(high) << 32) | u64::from(low);
    let (entries, rest): (Vec<[u32; 4]>, _) = {
        let cells = cells(node, "reg");
        let (entries, rest) = cells.as_chunks();
        (entries.to_vec(), rest.len())
    };
    assert_eq!(rest, 0);
    entries.iter().map(|[a, b, c, d]| (wide(*a, *b), wide(*c, *d))).collect()
}

fn strings(node: &FdtNode<'_>, name: &str) -> Vec<String> {
    let property = node.property(name).unwrap_or_else(|| panic!("{} has no {name}", node.name()));
    let text = std::str::from_utf8(property.value()).unwrap();
    text.strip_suffix('\0').expect("a string ends with NUL").split('\0').map(str::to_owned).collect()
}

fn has(node: &FdtNode<'_>, name: &str) -> bool {
    node.property(name).is_some()
}

#[test]
fn a_bus_and_its_messages_are_described_where_there_are_functions() {
    for machine in GuestMachine::ALL {
        let map = machine.map();
        let blob = build(&Platform { pci: true, ..platform(machine, 2) }).unwrap();
        let fdt = Fdt::new(&blob).unwrap();
        let node = |path: String| fdt.find_node(&path).unwrap_or_else(|| panic!("no {path}"));
        let bus = node(format!("/pcie@{:x}", map.pci.ecam.base));
        assert_eq!(strings(&bus, "compatible"), ["pci-host-ecam-generic"]);
        assert_eq!(reg(&bus), [(map.pci.ecam.base, 1 << 20)]);
        assert_eq!(cells(&bus, "bus-range"), [0, 0]);
        let (base, size) = (map.pci.memory.base as u32, map.pci.memory.size as u32);
        assert_eq!(cells(&bus, "ranges"), [0x0200_0000, 0, base, 0, base, 0, size]);
        assert!(has(&bus, "dma-coherent"));
        let frame = node(format!("/intc@{:x}/v2m@{:x}", map.gicd.base, map.pci.frame.base));
        assert_eq!(cells(&frame, "phandle"), cells(&bus, "msi-parent"));
        assert_eq!(
            (cells(&frame, "arm,msi-base-spi"), cells(&frame, "arm,msi-num-spis")),
            (vec![64], vec![64])
        );
        let without = build(&platform(machine, 2)).unwrap();
        let fdt = Fdt::new(&without).unwrap();
        assert!(fdt.root().children().all(|node| !node.name().starts_with("pcie")));
    }
}

#[test]
fn each_virtio_device_behind_mmio_is_described() {
    for (machine, base) in [(GuestMachine::Virt, 0x0a00_0000), (GuestMachine::Kvmtool, 0x0300_0000)] {
        let blob = build(&Platform { virtio: 3, ..platform(machine, 2) }).unwrap();
        let fdt = Fdt::new(&blob).unwrap();
        let all: Vec<_> =
            fdt.root().children().filter(|node| node.name_without_address() == "virtio_mmio").collect();
        assert_eq!(all.len(), 3);
        for (number, node) in (0..).zip(&all) {
            let at = base + 0x200 * number;
            assert_eq!(node.name(), format!("virtio_mmio@{at:x}"));
            assert_eq!(strings(node, "compatible"), ["virtio,mmio"]);
            assert_eq!((reg(node), has(node, "dma-coherent")), (vec![(at, 0x200)], true));
            assert_eq!(cells(node, "interrupts"), [0, 16 + number as u32, 1]);
        }
        assert!(fdt.root().children().all(|node| !node.name().starts_with("pcie")));
    }
}

#[test]
fn virt_describes_each_of_its_devices() {
    let blob = build(&platform(GuestMachine::Virt, 4)).unwrap();
    let fdt = Fdt::new(&blob).unwrap();
    let node = |path| fdt.find_node(path).unwrap_or_else(|| panic!("no {path}"));

    let root = fdt.root();
    assert_eq!((cells(&root, "#address-cells"), cells(&root, "#size-cells")), (vec![2], vec![2]));
    assert_eq!(strings(&root, "compatible"), ["linux,dummy-virt"]);

    let chosen = node("/chosen");
    assert_eq!(strings(&chosen, "bootargs"), ["console=ttyAMA0"]);
    assert_eq!(strings(&chosen, "stdout-path"), ["/pl011@9000000"]);
    assert!(!has(&chosen, "linux,initrd-start"));
    assert_eq!(strings(&node("/aliases"), "serial0"), ["/pl011@9000000"]);

    let memory = node("/memory@40000000");
    assert_eq!(strings(&memory, "device_type"), ["memory"]);
    assert_eq!(reg(&memory), [(0x4000_0000, 256 * MIB)]);

    let psci = node("/psci");
    assert_eq!(strings(&psci, "compatible"), ["arm,psci-1.0", "arm,psci-0.2"]);
    assert_eq!(strings(&psci, "method"), ["hvc"]);

    let gic = node("/intc@8000000");
    assert_eq!(strings(&gic, "compatible"), ["arm,gic-v3"]);
    assert_eq!(reg(&gic), [(0x0800_0000, 0x1_0000), (0x080a_0000, 0x8_0000)]);
    assert_eq!(cells(&gic, "#interrupt-cells"), [3]);
    assert!(has(&gic, "interrupt-controller") && has(&gic, "ranges"));
    assert!(!has(&gic, "interrupts"), "a maintenance interrupt is for a hypervisor");
    assert_eq!(cells(&gic, "phandle"), cells(&root, "interrupt-parent"));

    let timer = node("/timer");
    assert_eq!(strings(&timer, "compatible")[0], "arm,armv8-timer");
    assert_eq!(cells(&timer, "interrupts"), [1, 13, 4, 1, 14, 4, 1, 11, 4, 1, 10, 4]);
    assert!(has(&timer, "always-on"));

    let clock = node("/apb-pclk");
    assert_eq!(strings(&clock, "compatible"), ["fixed-clock"]);
    assert_eq!(cells(&clock, "#clock-cells"), [0]);
    let phandle = cells(&clock, "phandle")[0];

    let uart = node("/pl011@9000000");
    assert_eq!(strings(&uart, "compatible"), ["arm,pl011", "arm,primecell"]);
    assert_eq!(reg(&uart), [(0x0900_0000, 0x1000)]);
    assert_eq!(cells(&uart, "interrupts"), [0, 1, 4]);
    assert_eq!(cells(&uart, "clocks"), [phandle, phandle]);
    assert_eq!(strings(&uart, "clock-names"), ["uartclk", "apb_pclk"]);

    let rtc = node("/pl031@9010000");
    assert_eq!(strings(&rtc, "compatible"), ["arm,pl031", "arm,primecell"]);
    assert_eq!(reg(&rtc), [(0x0901_0000, 0x1000)]);
    assert_eq!(cells(&rtc, "interrupts"), [0, 2, 4]);
    assert_eq!(cells(&rtc, "clocks"), [phandle]);
    assert!(fdt.find_node("/pmu").is_none());
}

#[test]
fn kvmtool_has_a_16550_and_its_own_addresses() {
    let blob = build(&platform(GuestMachine::Kvmtool, 40)).unwrap();
    let fdt = Fdt::new(&blob).unwrap();
    let node = |path| fdt.find_node(path).unwrap_or_else(|| panic!("no {path}"));

    let uart = node("/serial@1000000");
    assert_eq!(strings(&uart, "compatible"), ["ns16550a"]);
    assert_eq!(reg(&uart), [(0x0100_0000, 8)]);
    assert_eq!(cells(&uart, "clock-frequency"), [1_843_200]);
    assert_eq!(cells(&uart, "reg-shift"), [0]);
    assert_eq!(cells(&uart, "interrupts"), [0, 0, 4]);
    assert_eq!(strings(&node("/chosen"), "stdout-path"), ["/serial@1000000"]);
    assert_eq!(cells(&node("/pl031@1010000"), "interrupts"), [0, 1, 4]);
    assert_eq!(cells(&node("/timer"), "interrupts"), [1, 13, 8, 1, 14, 8, 1, 11, 8, 1, 10, 8]);
    assert_eq!(
        reg(&node("/intc@3fff0000")),
        [(0x3fff_0000, 0x1_0000), (0x3ffd_0000 - 40 * 0x2_0000, 40 * 0x2_0000)]
    );
    assert_eq!(reg(&node("/memory@80000000")), [(0x8000_0000, 256 * MIB)]);
}

#[test]
fn each_vcpu_has_a_node_with_its_affinity() {
    let blob = build(&platform(GuestMachine::Virt, 512)).unwrap();
    let fdt = Fdt::new(&blob).unwrap();
    let cpus = fdt.find_node("/cpus").unwrap();
    assert_eq!((cells(&cpus, "#address-cells"), cells(&cpus, "#size-cells")), (vec![1], vec![0]));
    let nodes: Vec<_> = cpus.children().collect();
    assert_eq!(nodes.len(), 512);
    for (vcpu, node) in nodes.iter().enumerate() {
        let affinity = mpidr(vcpu).unwrap();
        assert_eq!(node.name(), format!("cpu@{affinity:x}"));
        assert_eq!(cells(node, "reg"), [affinity as u32]);
        assert_eq!(strings(node, "device_type"), ["cpu"]);
        assert_eq!(strings(node, "compatible"), ["arm,armv8"]);
        assert_eq!(strings(node, "enable-method"), ["psci"]);
    }
}

#[test]
fn many_redistributors_are_in_two_regions() {
    let blob = build(&platform(GuestMachine::Virt, 200)).unwrap();
    let fdt = Fdt::new(&blob).unwrap();
    let gic = fdt.find_node("/intc@8000000").unwrap();
    assert_eq!(cells(&gic, "#redistributor-regions"), [2]);
    assert_eq!(
        reg(&gic),
        [(0x0800_0000, 0x1_0000), (0x080a_0000, 123 * 0x2_0000), (256 << 30, 77 * 0x2_0000)]
    );
}

#[test]
fn a_gicv2_has_a_cpu_interface_in_memory() {
    for (machine, node, gicc) in [
        (GuestMachine::Virt, "/intc@8000000", 0x0801_0000),
        (GuestMachine::Kvmtool, "/intc@3fff0000", 0x3ffd_0000),
    ] {
        let blob = build(&Platform { gic: GicVersion::V2, pmu: true, ..platform(machine, 8) }).unwrap();
        let fdt = Fdt::new(&blob).unwrap();
        let gic = fdt.find_node(node).unwrap();
        assert_eq!(strings(&gic, "compatible"), ["arm,cortex-a15-gic"]);
        assert_eq!(cells(&gic, "#interrupt-cells"), [3]);
        assert_eq!(reg(&gic), [(machine.map().gicd.base, 0x1_0000), (gicc, 0x2000)]);
        assert!(has(&gic, "interrupt-controller") && !has(&gic, "#redistributor-regions"));
        // Bits 15 to 8 of a PPI's flags are the CPUs that have it.
        let level = if machine == GuestMachine::Virt { 4 } else { 8 };
        let timer = cells(&fdt.find_node("/timer").unwrap(), "interrupts");
        assert_eq!(timer[6..9], [1, 11, 0xff00 | level]);
        assert_eq!(cells(&fdt.find_node("/pmu").unwrap(), "interrupts"), [1, 7, 0xff04]);
    }
}

#[test]
fn initrd_and_pmu_appear_when_asked_for() {
    let mut platform = platform(GuestMachine::Virt, 1);
    platform.initrd = Some(0x4400_0000..0x4412_3456);
    platform.pmu = true;
    let blob = build(&platform).unwrap();
    let fdt = Fdt::new(&blob).unwrap();
    let chosen = fdt.find_node("/chosen").unwrap();
    assert_eq!(cells(&chosen, "linux,initrd-start"), [0, 0x4400_0000]);
    assert_eq!(cells(&chosen, "linux,initrd-end"), [0, 0x4412_3456]);
    let pmu = fdt.find_node("/pmu").unwrap();
    assert_eq!(strings(&pmu, "compatible"), ["arm,armv8-pmuv3"]);
    assert_eq!(cells(&pmu, "interrupts"), [1, 7, 4]);
}

#[test]
fn what_does_not_fit_is_refused() {
    let virt = || platform(GuestMachine::Virt, 1);
    for (gic, vcpus) in [(GicVersion::V2, 9), (GicVersion::V3, 513)] {
        let refused = Err(Error::Map(MapError::Vcpus { gic, vcpus }));
        assert_eq!(build(&Platform { gic, vcpus, ..virt() }), refused);
    }
    let flash = MapError::Flash { size: 3 * MIB, most: 64 * MIB };
    assert_eq!(build(&Platform { flash: 3 * MIB, ..virt() }), Err(Error::Map(flash)));
    assert_eq!(build(&Platform { memory: 0, ..virt() }), Err(Error::Map(MapError::TooSmall(0))));
    let long = "x".repeat(MAX_BOOTARGS + 1);
    assert_eq!(build(&Platform { bootargs: &long, ..virt() }), Err(Error::BootargsTooLong(2048)));
    assert!(build(&Platform { bootargs: &long[1..], ..virt() }).is_ok());
    assert_eq!(build(&Platform { bootargs: "a\0b", ..virt() }), Err(Error::BootargsNul));
    let end = 0x4000_0000 + 256 * MIB;
    for bad in [0x4000_0000..0x4000_0000, 0x3fff_f000..0x4100_0000, 0x4100_0000..end + 1] {
        assert_eq!(build(&Platform { initrd: Some(bad.clone()), ..virt() }), Err(Error::Initrd(bad)));
    }
    assert!(build(&Platform { initrd: Some(end - 1..end), ..virt() }).is_ok());
}

#[test]
fn the_largest_tree_fits_the_room_kept_for_it() {
    let bootargs = "x".repeat(MAX_BOOTARGS);
    for machine in GuestMachine::ALL {
        let platform = Platform {
            memory: 512 << 30,
            bootargs: &bootargs,
            initrd: Some(0x1_0000_0000..0x2_0000_0000),
            pmu: true,
            ..platform(machine, 512)
        };
        assert!((build(&platform).unwrap().len() as u64) < MAX_SIZE / 4 * 3);
    }
}

proptest! {
    /// Any platform is either refused or gives a tree that reads back as itself.
    #[test]
    fn a_tree_says_what_it_was_built_from(
        kvmtool: bool,
        v2: bool,
        vcpus in 0usize..600,
        units in 0u64..1024,
        bootargs in "[ -~]{0,300}",
        pmu: bool,
    ) {
        let machine = if kvmtool { GuestMachine::Kvmtool } else { GuestMachine::Virt };
        let memory = units * 2 * MIB;
        let gic = if v2 { GicVersion::V2 } else { GicVersion::V3 };
        let platform = Platform { machine, gic, vcpus, memory, bootargs: &bootargs, initrd: None, pmu, flash: 0, service: pmu, pci: pmu, virtio: 0 };
        let blob = build(&platform);
        prop_assert_eq!(blob.is_ok(), (1..=gic.max_vcpus()).contains(&vcpus) && units >= 2);
        if let Ok(blob) = blob {
            let fdt = Fdt::new(&blob).unwrap();
            prop_assert_eq!(fdt.find_node("/cpus").unwrap().children().count(), vcpus);
            prop_assert_eq!(reg(&fdt.find_node("/memory").unwrap()), vec![(machine.map().ram_base, memory)]);
            prop_assert_eq!(strings(&fdt.find_node("/chosen").unwrap(), "bootargs"), vec![bootargs]);
            prop_assert_eq!(fdt.find_node("/pmu").is_some(), pmu);
        }
    }
}

#[test]
fn flash_is_described_if_there_is_any() {
    let banks = |machine, flash| {
        let blob = build(&Platform { flash, ..platform(machine, 1) }).unwrap();
        let fdt = Fdt::new(&blob).unwrap();
        let node = fdt.root().children().find(|node| node.name_without_address() == "flash")?;
        assert_eq!(strings(&node, "compatible"), ["cfi-flash"]);
        assert_eq!(cells(&node, "bank-width"), [4]);
        Some(reg(&node))
    };
    let virt = vec![(0, 4 * MIB), (0x0400_0000, 4 * MIB)];
    assert_eq!(banks(GuestMachine::Virt, 4 * MIB), Some(virt));
    assert_eq!(banks(GuestMachine::Kvmtool, 16 * MIB), Some(vec![(0x0200_0000, 16 * MIB)]));
    assert_eq!(banks(GuestMachine::Virt, 0), None);
}
