// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The memory maps: no two regions overlap, numbers are those of the machines, bounds hold.

use turnstile_machine::gic::GICR_STRIDE;
use turnstile_machine::map::{
    FIRST_MESSAGE, INTID_COUNT, MAX_VCPUS, MESSAGES, MIN_FLASH, SPI_COUNT, Windows,
};
use turnstile_machine::{GicVersion, GuestMachine, Map, MapError, Region, UartKind, mpidr};

const GIB: u64 = 1 << 30;

fn gicr(map: &Map, vcpus: usize, memory: u64) -> Vec<Region> {
    map.gicr(vcpus, memory).regions().collect()
}

#[test]
fn the_addresses_are_those_of_the_machines() {
    let virt = GuestMachine::Virt.map();
    assert_eq!(virt.gicd, Region { base: 0x0800_0000, size: 0x1_0000 });
    assert_eq!(virt.gicc.base, 0x0801_0000);
    assert_eq!(gicr(virt, 4, GIB), [Region { base: 0x080a_0000, size: 0x8_0000 }]);
    assert_eq!((virt.uart_kind, virt.uart.region.base, virt.uart.intid), (UartKind::Pl011, 0x0900_0000, 33));
    assert_eq!((virt.rtc.region.base, virt.rtc.intid), (0x0901_0000, 34));
    assert_eq!(virt.ram_base, 0x4000_0000);

    let kvmtool = GuestMachine::Kvmtool.map();
    assert_eq!(kvmtool.gicd, Region { base: 0x3fff_0000, size: 0x1_0000 });
    assert_eq!(kvmtool.gicc.base, 0x3ffd_0000);
    assert_eq!(gicr(kvmtool, 1, GIB), [Region { base: 0x3fbf_0000, size: 0x2_0000 }]);
    assert_eq!(gicr(kvmtool, 31, GIB), [Region { base: 0x3fbf_0000, size: 31 * 0x2_0000 }]);
    assert_eq!(gicr(kvmtool, 32, GIB), [Region { base: 0x3fbd_0000, size: 32 * 0x2_0000 }]);
    assert_eq!(gicr(kvmtool, 512, GIB), [Region { base: 0x3bfd_0000, size: 512 * 0x2_0000 }]);
    assert_eq!(
        (kvmtool.uart_kind, kvmtool.uart.region.base, kvmtool.uart.intid),
        (UartKind::Uart16550, 0x0100_0000, 32)
    );
    assert_eq!((kvmtool.rtc.region.base, kvmtool.rtc.intid), (0x0101_0000, 33));
    assert_eq!(kvmtool.ram_base, 0x8000_0000);
}

/// QEMU's `virt` has room for 123 redistributors below its serial port, and puts the others high up.
#[test]
fn virt_has_a_second_region_of_redistributors() {
    let virt = GuestMachine::Virt.map();
    let first = Region { base: 0x080a_0000, size: 123 * GICR_STRIDE };
    assert_eq!(gicr(virt, 123, GIB), [first]);
    assert_eq!(gicr(virt, 124, GIB), [first, Region { base: 256 * GIB, size: GICR_STRIDE }]);
    assert_eq!(gicr(virt, 512, GIB), [first, Region { base: 256 * GIB, size: 389 * GICR_STRIDE }]);
    assert_eq!(gicr(virt, 512, 255 * GIB)[1].base, 256 * GIB, "RAM ends where it starts");
    assert_eq!(gicr(virt, 512, 300 * GIB)[1].base, 301 * GIB);
    assert_eq!(virt.gicr(512, GIB).in_first(), 123);
    assert_eq!(virt.gicr(4, GIB).in_first(), 4);
}

#[test]
fn an_address_belongs_to_the_redistributor_of_its_vcpu() {
    for machine in GuestMachine::ALL {
        for vcpus in [1, 123, 124, 512] {
            let gicr = machine.map().gicr(vcpus, GIB);
            let frames: Vec<u64> =
                gicr.regions().flat_map(|region| (region.base..region.end()).step_by(0x2_0000)).collect();
            assert_eq!(frames.len(), vcpus);
            for (vcpu, base) in frames.into_iter().enumerate() {
                assert_eq!(gicr.locate(base), Some((vcpu, 0)));
                assert_eq!(gicr.locate(base + 0x1_ffff), Some((vcpu, 0x1_ffff)));
            }
            for region in gicr.regions() {
                assert_eq!(gicr.locate(region.base - 1), None);
                assert_eq!(gicr.locate(region.end()), None);
            }
            assert_eq!((gicr.locate(0), gicr.locate(u64::MAX)), (None, None));
        }
    }
}

#[test]
fn no_two_regions_overlap_with_any_number_of_vcpus() {
    for machine in GuestMachine::ALL {
        let map = machine.map();
        for (vcpus, memory) in
            (1..=MAX_VCPUS).flat_map(|vcpus| [GIB, 255 * GIB, 900 * GIB].map(|size| (vcpus, size)))
        {
            let mut regions = vec![map.gicd, map.uart.region, map.rtc.region, map.ram(memory)];
            regions.extend(map.gicr(vcpus, memory).regions());
            assert!(regions.iter().all(|region| region.end() <= 1 << 40));
            for (index, region) in regions.iter().enumerate() {
                for other in &regions[index + 1..] {
                    assert!(!region.overlaps(other), "{machine}, {vcpus} vCPUs: {region:x?} and {other:x?}");
                }
            }
        }
    }
}

#[test]
fn pci_overlaps_with_nothing() {
    for machine in GuestMachine::ALL {
        let map = machine.map();
        let mut others =
            vec![map.gicd, map.gicc, map.stolen_time, map.uart.region, map.rtc.region, map.service.region];
        others.extend(
            map.gicr(MAX_VCPUS, GIB).regions().chain([map.ram(GIB)]).chain(map.flash.iter().copied()),
        );
        for part in [map.pci.ecam, map.pci.memory, map.pci.frame] {
            assert!(others.iter().all(|other| !part.overlaps(other)), "{machine}: {part:x?}");
            others.push(part);
        }
        assert!(map.pci.memory.end() <= 1 << 32, "a BAR may have 32 bits");
        let fixed = [map.uart.intid, map.rtc.intid, map.service.intid];
        assert!(fixed.iter().all(|intid| *intid < FIRST_MESSAGE));
    }
    assert_eq!(FIRST_MESSAGE + MESSAGES, INTID_COUNT);
}

#[test]
fn virtio_devices_behind_mmio_overlap_with_nothing() {
    for machine in GuestMachine::ALL {
        let map = machine.map();
        let windows = map.virtio.region;
        let others = [
            map.gicd,
            map.gicc,
            map.stolen_time,
            map.uart.region,
            map.rtc.region,
            map.service.region,
            map.ram(GIB),
        ];
        let gicr = map.gicr(MAX_VCPUS, GIB);
        let mut others = others.into_iter().chain(gicr.regions()).chain(map.flash.iter().copied());
        assert!(others.all(|other| !windows.overlaps(&other)), "{machine}");
        let all: Vec<_> = (0..Windows::COUNT).map(|number| map.virtio.device(number).unwrap()).collect();
        assert_eq!(map.virtio.device(Windows::COUNT), None);
        let last = all.last().unwrap();
        assert_eq!((last.region.end(), last.intid), (windows.end(), 32 + 16 + 31));
        let fixed = [map.uart.intid, map.rtc.intid, map.service.intid];
        for (number, device) in all.iter().enumerate() {
            assert_eq!(map.virtio.number(device.region.base), Some(number));
            assert!(!fixed.contains(&device.intid) && device.intid < INTID_COUNT);
        }
        let no_window = [windows.base - 0x200, windows.base + 4, windows.end(), 0, u64::MAX];
        assert!(no_window.iter().all(|address| map.virtio.number(*address).is_none()));
    }
}

#[test]
fn a_gicv2_overlaps_with_nothing() {
    for machine in GuestMachine::ALL {
        let map = machine.map();
        for other in [map.gicd, map.uart.region, map.rtc.region, map.ram(GIB)] {
            assert!(!map.gicc.overlaps(&other), "{machine}: {other:x?}");
        }
    }
}

#[test]
fn flash_overlaps_with_nothing() {
    for machine in GuestMachine::ALL {
        let map = machine.map();
        let mut others =
            vec![map.gicd, map.gicc, map.stolen_time, map.uart.region, map.rtc.region, map.ram(GIB)];
        others.extend(map.gicr(MAX_VCPUS, GIB).regions());
        for bank in map.flash {
            assert!(others.iter().all(|other| !bank.overlaps(other)), "{machine}: {bank:x?}");
            assert!(bank.base.is_multiple_of(MIN_FLASH));
            others.push(*bank);
        }
    }
}

#[test]
fn a_bank_of_flash_has_a_power_of_two() {
    for (machine, most) in [(GuestMachine::Virt, 64 << 20), (GuestMachine::Kvmtool, 16 << 20)] {
        let map = machine.map();
        for size in [0, MIN_FLASH, 8 << 20, most] {
            assert_eq!(map.check_flash(size), Ok(()));
            assert!(map.flash_banks(size).all(|bank| bank.size == size && size != 0));
        }
        for size in [1, MIN_FLASH / 2, 6 << 20, 2 * most, u64::MAX] {
            let error = Err(MapError::Flash { size, most });
            assert_eq!(map.check_flash(size), error);
        }
    }
    let text = MapError::Flash { size: 3, most: 64 << 20 }.to_string();
    assert_eq!(text, "a bank of flash cannot have 3 bytes; give a power of two from 2 to 64 MiB");
}

#[test]
fn device_interrupts_are_distinct_spis_that_are_offered() {
    assert_eq!(INTID_COUNT, 32 + SPI_COUNT);
    for machine in GuestMachine::ALL {
        let (uart, rtc) = (machine.map().uart.intid, machine.map().rtc.intid);
        assert_ne!(uart, rtc);
        assert!((32..INTID_COUNT).contains(&uart) && (32..INTID_COUNT).contains(&rtc));
    }
}

#[test]
fn affinities_are_distinct_and_fill_clusters_of_sixteen() {
    let affinities: Vec<u64> = (0..MAX_VCPUS).map(|vcpu| mpidr(vcpu).unwrap()).collect();
    assert_eq!(affinities[0], 0);
    assert_eq!(affinities[15], 0x00f);
    assert_eq!(affinities[16], 0x100);
    assert_eq!(affinities[63], 0x30f);
    assert_eq!(affinities[511], 0x1f0f);
    let distinct: std::collections::BTreeSet<_> = affinities.iter().collect();
    assert_eq!(distinct.len(), MAX_VCPUS);
    assert_eq!(mpidr(MAX_VCPUS), None);
    assert_eq!(mpidr(usize::MAX), None);
}

#[test]
fn sizes_are_checked_at_their_bounds() {
    const MIB: u64 = 1 << 20;
    for (machine, base) in [(GuestMachine::Virt, 1 << 30), (GuestMachine::Kvmtool, 2 << 30)] {
        let map = machine.map();
        let most = (1 << 40) - base;
        let check = |vcpus, memory| map.check(GicVersion::V3, vcpus, memory);
        assert_eq!(check(1, 4 * MIB), Ok(()));
        assert_eq!(check(64, most), Ok(()));
        for (gic, bound) in [(GicVersion::V2, 8), (GicVersion::V3, 512)] {
            assert_eq!(map.check(gic, bound, 4 * MIB), Ok(()));
            for vcpus in [0, bound + 1] {
                assert_eq!(map.check(gic, vcpus, 4 * MIB), Err(MapError::Vcpus { gic, vcpus }));
            }
        }
        assert_eq!(check(1, 0), Err(MapError::TooSmall(0)));
        assert_eq!(check(1, 2 * MIB), Err(MapError::TooSmall(2 * MIB)));
        assert_eq!(check(1, 5 * MIB), Err(MapError::Unaligned(5 * MIB)));
        let memory = most + 2 * MIB;
        assert_eq!(check(1, memory), Err(MapError::TooLarge { memory, most }));
        assert!(check(1, u64::MAX - (2 * MIB - 1)).is_err());
    }
    // A second region of redistributors needs room behind RAM.
    let most = (1 << 40) - GIB - 64 * MIB;
    let check = |memory| GuestMachine::Virt.map().check(GicVersion::V3, 124, memory);
    assert_eq!(check(most), Ok(()));
    assert_eq!(check(most + 2 * MIB), Err(MapError::TooLarge { memory: most + 2 * MIB, most }));
}

#[test]
fn messages_say_what_to_give_instead() {
    let many = |gic, vcpus| MapError::Vcpus { gic, vcpus }.to_string();
    assert_eq!(many(GicVersion::V3, 513), "513 vCPUs are too many for a GICv3; give at most 512");
    assert_eq!(many(GicVersion::V2, 9), "9 vCPUs are too many for a GICv2; give at most 8");
    assert_eq!(
        MapError::Unaligned(5 << 20).to_string(),
        "5242880 bytes of memory are no multiple of 2 MiB; give 4 or 6 MiB"
    );
    assert!("virtio".parse::<GuestMachine>().unwrap_err().to_string().contains("`virt` or `kvmtool`"));
    for machine in GuestMachine::ALL {
        assert_eq!(machine.to_string().parse(), Ok(machine));
    }
}

#[test]
fn a_region_contains_its_addresses_only() {
    let region = Region { base: 0x1000, size: 0x10 };
    assert!(region.contains(0x1000) && region.contains(0x100f));
    assert!(!region.contains(0xfff) && !region.contains(0x1010) && !region.contains(0));
    assert!(!region.overlaps(&Region { base: 0x1010, size: 1 }));
    assert!(region.overlaps(&Region { base: 0x100f, size: 1 }));
}
