// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The memory maps: no two regions overlap, numbers are those of the machines, bounds hold.

use turnstile_machine::map::{INTID_COUNT, MAX_VCPUS, SPI_COUNT};
use turnstile_machine::{GuestMachine, MapError, Region, UartKind, mpidr};

#[test]
fn the_addresses_are_those_of_the_machines() {
    let virt = GuestMachine::Virt.map();
    assert_eq!(virt.gicd, Region { base: 0x0800_0000, size: 0x1_0000 });
    assert_eq!(virt.gicr(4), Region { base: 0x080a_0000, size: 0x8_0000 });
    assert_eq!(virt.gicr_of(4, 3), Region { base: 0x0810_0000, size: 0x2_0000 });
    assert_eq!((virt.uart_kind, virt.uart.region.base, virt.uart.intid), (UartKind::Pl011, 0x0900_0000, 33));
    assert_eq!((virt.rtc.region.base, virt.rtc.intid), (0x0901_0000, 34));
    assert_eq!(virt.ram_base, 0x4000_0000);

    let kvmtool = GuestMachine::Kvmtool.map();
    assert_eq!(kvmtool.gicd, Region { base: 0x3fff_0000, size: 0x1_0000 });
    assert_eq!(kvmtool.gicr(1).base, 0x3fbf_0000);
    assert_eq!(kvmtool.gicr(31), Region { base: 0x3fbf_0000, size: 31 * 0x2_0000 });
    assert_eq!(kvmtool.gicr(31).end(), 0x3ffd_0000);
    assert_eq!(kvmtool.gicr(32), Region { base: 0x3fbd_0000, size: 32 * 0x2_0000 });
    assert_eq!(kvmtool.gicr(64).end(), 0x3ffd_0000);
    assert_eq!(
        (kvmtool.uart_kind, kvmtool.uart.region.base, kvmtool.uart.intid),
        (UartKind::Uart16550, 0x0100_0000, 32)
    );
    assert_eq!((kvmtool.rtc.region.base, kvmtool.rtc.intid), (0x0101_0000, 33));
    assert_eq!(kvmtool.ram_base, 0x8000_0000);
}

#[test]
fn no_two_regions_overlap_with_any_number_of_vcpus() {
    for machine in GuestMachine::ALL {
        let map = machine.map();
        for vcpus in 1..=MAX_VCPUS {
            let ram = map.ram(1 << 30);
            let regions = [map.gicd, map.gicr(vcpus), map.uart.region, map.rtc.region, ram];
            for (index, region) in regions.iter().enumerate() {
                for other in &regions[index + 1..] {
                    assert!(!region.overlaps(other), "{machine}, {vcpus} vCPUs: {region:x?} and {other:x?}");
                }
            }
        }
    }
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
        assert_eq!(map.check(1, 4 * MIB), Ok(()));
        assert_eq!(map.check(64, most), Ok(()));
        assert_eq!(map.check(0, 4 * MIB), Err(MapError::Vcpus(0)));
        assert_eq!(map.check(65, 4 * MIB), Err(MapError::Vcpus(65)));
        assert_eq!(map.check(1, 0), Err(MapError::TooSmall(0)));
        assert_eq!(map.check(1, 2 * MIB), Err(MapError::TooSmall(2 * MIB)));
        assert_eq!(map.check(1, 5 * MIB), Err(MapError::Unaligned(5 * MIB)));
        let memory = most + 2 * MIB;
        assert_eq!(map.check(1, memory), Err(MapError::TooLarge { memory, most }));
        assert!(map.check(1, u64::MAX - (2 * MIB - 1)).is_err());
    }
}

#[test]
fn messages_say_what_to_give_instead() {
    assert_eq!(MapError::Vcpus(65).to_string(), "65 vCPUs are too many; give at most 64");
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
