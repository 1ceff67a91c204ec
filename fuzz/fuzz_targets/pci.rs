// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A virtio device over PCI and one over MMIO under any accesses of a guest: to ports, configuration space and BARs.
#![no_main]

use libfuzzer_sys::fuzz_target;
use turnstile_pci::address::{ConfigPorts, ecam};
use turnstile_pci::bar::Space;
use turnstile_pci::bus::Bus;
use turnstile_virtio::config::{BLOCK, Block, Configuration, NETWORK, Network};
use turnstile_virtio::features::Features;
use turnstile_virtio::pci::Kind;
use turnstile_virtio::registers::{Registers, Status};
use turnstile_virtio::{mmio, pci};

fuzz_target!(|accesses: Vec<(u8, u32, u8, u64)>| {
    let kind = |device| Kind { device, class: 0x01_8000, interrupt_pin: true, places: 8 };
    let disk = kind(BLOCK).function(2, Block::LENGTH as u32, 3).expect("it fits");
    let mut bus: Bus<2> = Bus::new(kind(63).function(1, 0, 1).expect("it fits"));
    bus.add(disk).expect("there is room");
    let offered = Features::EVENT_IDX | Features::INDIRECT_DESC | Features::RING_RESET;
    let mut disk: pci::Device<2, 3, Block> =
        pci::Device::new(Registers::new(offered, &[], [256, 16]), Block::default(), 8);
    let registers = Registers::new(offered | Network::CSUM, Network::REQUIREMENTS, [8, 0]);
    let mut net: mmio::Device<2, Network> = mmio::Device::new(NETWORK, 0, registers, Network::default());
    let mut ports = ConfigPorts::new();
    for (way, at, size, value) in accesses {
        let target = match way % 4 {
            0 => ecam((at % (1 << 16)).into()),
            1 => {
                ports.write(0xcf8 + at as u16 % 8, size, value as u32);
                ports.target(0xcf8 + (at >> 16) as u16 % 8, size)
            }
            2 => {
                let _ = (net.read(at.into(), size), net.write(at.into(), size, value));
                None
            }
            _ => {
                // By the number of a BAR, or by the address that was given to it.
                let place = bus.find(Space::Memory, value).map(|place| (place.bar, place.offset));
                let (bar, offset) = place.unwrap_or((way >> 2, at.into()));
                let control = bus.function(1).expect("it is there").msix();
                disk.read(bar, offset, size);
                let _ = disk.write(control, bar, offset, size, value);
                None
            }
        };
        let Some((address, offset)) = target else { continue };
        bus.read(address, offset, size);
        if bus.device(address) == Some(1) {
            let function = bus.function_mut(1).expect("it is there");
            disk.read_config(function, offset, size);
            let _ = disk.write_config(function, offset, size, value as u32);
            disk.settle(function.msix(), |message| assert_eq!(message.address % 4, 0));
        } else {
            bus.write(address, offset, size, value as u32);
        }
        assert_eq!(bus.function(1).expect("it is there").read(0, 4), 0x1042_1af4);
        for status in [disk.registers.status(), net.registers.status()] {
            assert!(!status.contains(Status::DRIVER_OK) || status.contains(Status::FEATURES_OK));
        }
    }
});
