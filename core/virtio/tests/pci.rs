// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A device behind PCI, as Linux drives it (`drivers/virtio/virtio_pci_modern_dev.c`).

mod common;

use common::disk::{Disk, OFFERED, OPEN, disk, function};
use common::{Ram, areas};
use turnstile_pci::address::Address;
use turnstile_pci::bar::Space;
use turnstile_pci::bus::Bus;
use turnstile_pci::function::{Changed, Function, Identity};
use turnstile_pci::msix::{Control, Message};
use turnstile_virtio::config::{Block, NETWORK, Network};
use turnstile_virtio::features::Features;
use turnstile_virtio::pci::{BAR_MSIX, BAR_VIRTIO, Kind};
use turnstile_virtio::registers::{Effect, NO_VECTOR, Registers, Status};
use turnstile_virtio::ring::{Areas, Buffer, Options};
use turnstile_virtio::violation::Violation;
use turnstile_virtio::{device, driver, mmio};

/// A field of the common structure, and how wide it is.
fn set(disk: &mut Disk, offset: u64, size: u8, value: u64) -> Option<Effect> {
    disk.write(OPEN, BAR_VIRTIO, offset, size, value).effect
}

fn get(disk: &mut Disk, offset: u64, size: u8) -> u64 {
    disk.read(BAR_VIRTIO, offset, size)
}

/// Status and features as in `virtio_dev_probe`; returns the status at the end.
fn negotiate(disk: &mut Disk, accept: Features) -> u64 {
    assert_eq!(set(disk, 0x14, 1, 0), Some(Effect::Reset));
    assert_eq!(get(disk, 0x14, 1), 0);
    assert_eq!((set(disk, 0x14, 1, 1), set(disk, 0x14, 1, 3)), (None, None));
    for select in [0, 1] {
        set(disk, 0x08, 4, select);
        set(disk, 0x0c, 4, accept.word(select as u32).into());
    }
    assert_eq!(set(disk, 0x14, 1, 11), None);
    get(disk, 0x14, 1)
}

/// Enables a queue as in `setup_vq`.
fn enable(disk: &mut Disk, queue: u64, size: u64, areas: Areas) -> Option<Effect> {
    set(disk, 0x16, 2, queue);
    set(disk, 0x18, 2, size);
    for (at, address) in [(0x20, areas.descriptors), (0x28, areas.driver), (0x30, areas.device)] {
        set(disk, at, 4, address & 0xffff_ffff);
        set(disk, at + 4, 4, address >> 32);
    }
    set(disk, 0x1a, 2, queue + 1);
    set(disk, 0x1c, 2, 1)
}

#[test]
fn a_driver_finds_its_structures_by_capabilities() {
    let identity = Identity {
        vendor: 0x1b36,
        device: 8,
        revision: 0,
        class: 0x06_0000,
        subsystem_vendor: 0,
        subsystem: 0,
        interrupt_pin: false,
    };
    let mut bus: Bus<2> = Bus::new(Function::new(&identity));
    assert_eq!(bus.add(function()), Some(1));
    let at = Address::new(0, 1, 0).unwrap();
    assert_eq!((bus.read(at, 0, 4), bus.read(at, 8, 4)), (0x1042_1af4, 0x0180_0001));
    let mut found = Vec::new();
    let mut position = bus.read(at, 0x34, 1) as u16;
    while position != 0 {
        if bus.read(at, position, 1) == 9 {
            let field = |offset, size| bus.read(at, position + offset, size);
            found.push((field(3, 1), field(2, 1), field(4, 1), field(8, 4), field(12, 4)));
            if field(3, 1) == 2 {
                assert_eq!(field(16, 4), 4, "notify_off_multiplier");
            }
        }
        position = bus.read(at, position + 1, 1) as u16;
    }
    let expected = [
        (1, 16, 4, 0x0000, 0x3c),
        (3, 16, 4, 0x1000, 4),
        (4, 16, 4, 0x2000, 60),
        (2, 20, 4, 0x3000, 8),
        (5, 20, 0, 0, 0),
    ];
    assert_eq!(found, expected);
    bus.function_mut(1).unwrap().place(BAR_VIRTIO, 0x1000_0000);
    bus.write(at, 4, 2, 6);
    let place = bus.find(Space::Memory, 0x1000_3004).unwrap();
    assert_eq!((place.device, place.bar, place.offset), (1, BAR_VIRTIO, 0x3004));
    // Devices without queues or configuration show no structure for them.
    let entropy = Kind { device: 4, class: 0xff_0000, interrupt_pin: false, places: 8 };
    assert!(entropy.function(1, 0, 2048).is_ok());
    assert!(entropy.function(1, 0x1001, 1).is_err() && entropy.function(1, 0, 0).is_err());
}

#[test]
fn features_are_agreed_on_or_not() {
    let disk = &mut disk();
    set(disk, 0, 4, 1);
    let high = get(disk, 4, 4);
    set(disk, 0, 4, 0);
    let offered = Features::from_bits_retain(high << 32 | get(disk, 4, 4));
    assert_eq!(offered, OFFERED | Features::VERSION_1 | Block::FLUSH | Block::CONFIG_WCE);
    set(disk, 0, 4, 2);
    assert_eq!(get(disk, 4, 4), 0);
    let good = Features::VERSION_1 | Block::FLUSH;
    for bad in [Features::empty(), Block::FLUSH, good | Block::RO, good | Features::RING_PACKED] {
        assert_eq!(negotiate(disk, bad), 3, "{bad:?}");
        assert_eq!(disk.registers.features(), Features::empty());
        assert_eq!(set(disk, 0x14, 1, 15), None, "DRIVER_OK without FEATURES_OK");
        assert_eq!(get(disk, 0x14, 1), 3);
    }
    assert_eq!(negotiate(disk, good), 11);
    set(disk, 0x08, 4, 0);
    set(disk, 0x0c, 4, 0);
    assert_eq!(disk.registers.features(), good, "what is agreed on stays");
    assert_eq!(set(disk, 0x14, 1, 15), Some(Effect::Started));
    assert_eq!(set(disk, 0x14, 1, 15), None, "it starts once");
    set(disk, 0x14, 1, 0x40);
    set(disk, 0x14, 1, 1);
    assert_eq!(get(disk, 0x14, 1), 15, "bits are added, and only the device needs a reset");
    let tso = Features::VERSION_1 | Network::HOST_TSO4;
    let offered = Network::HOST_TSO4 | Network::CSUM;
    for (accepted, expected) in [(tso, 3), (tso | Network::CSUM, 11)] {
        let registers = Registers::new(offered, Network::REQUIREMENTS, [16]);
        let mut net = mmio::Device::new(NETWORK, 0, registers, Network::default());
        for (select, register) in [(0, accepted.word(0)), (1, accepted.word(1))] {
            assert_eq!(net.write(0x24, 4, select), None);
            assert_eq!(net.write(0x20, 4, register.into()), None);
        }
        let _ = (net.write(0x70, 4, 3), net.write(0x70, 4, 11));
        assert_eq!(net.read(0x70, 4), expected);
    }
}

/// From the first write to the last interrupt.
#[test]
fn a_request_goes_through_a_pci_device() {
    let (disk, ram) = (&mut disk(), Ram::new(0x1_0000));
    let (areas, heap) = areas(16);
    assert_eq!(get(disk, 0x12, 2), 2, "num_queues");
    assert_eq!(enable(disk, 0, 16, areas), None, "not before the features are agreed on");
    assert_eq!(negotiate(disk, OFFERED | Features::VERSION_1), 11);
    set(disk, 0x16, 2, 0);
    assert_eq!((get(disk, 0x18, 2), get(disk, 0x1a, 2), get(disk, 0x1c, 2)), (256, NO_VECTOR.into(), 0));
    assert_eq!(enable(disk, 0, 16, areas), Some(Effect::Enabled(0)));
    assert_eq!((get(disk, 0x18, 2), get(disk, 0x1a, 2), get(disk, 0x1c, 2)), (16, 1, 1));
    assert_eq!(
        (get(disk, 0x20, 8), get(disk, 0x28, 8), get(disk, 0x30, 8)),
        (areas.descriptors, areas.driver, areas.device)
    );
    set(disk, 0x18, 2, 64);
    set(disk, 0x20, 8, 0);
    assert_eq!(get(disk, 0x20, 8), areas.descriptors, "an enabled queue stays where it is");
    assert_eq!(enable(disk, 0, 16, areas), None, "it is enabled");
    assert_eq!((get(disk, 0x18, 2), get(disk, 0x20, 8)), (16, areas.descriptors));
    assert_eq!(set(disk, 0x3000, 2, 0), None, "not before DRIVER_OK");
    assert_eq!(set(disk, 0x14, 1, 15), Some(Effect::Started));

    let options = Options::from(disk.registers.features());
    let layout = disk.registers.queue(0).unwrap().layout(&ram).unwrap();
    let mut driver: driver::Queue<16> = driver::Queue::new(&ram, layout, options).unwrap();
    let mut queue = device::Queue::new(layout, options, 130);
    driver.add(&ram, &[Buffer { address: heap, length: 512, writable: true }]).unwrap();
    assert_eq!(driver.publish(&ram), Ok(true));
    assert_eq!(set(disk, 0x3000, 2, 0), Some(Effect::Notified(0)));
    assert_eq!(set(disk, 0x3004, 2, 1), None, "queue 1 is not enabled");
    assert_eq!(set(disk, 0x3ffc, 2, 1), None);
    let token = queue.pop(&ram).unwrap().unwrap().finish();
    queue.complete(&ram, token, 512).unwrap();
    assert_eq!(queue.publish(&ram), Ok(true));

    // The vector is masked after a reset; unmasking delivers what came.
    assert_eq!(disk.raise_queue(OPEN, 0), None);
    assert_eq!(disk.read(BAR_MSIX, 0x800, 8), 1 << 1);
    let write = |disk: &mut Disk, at, value| disk.write(OPEN, BAR_MSIX, at, 4, value).message;
    assert_eq!((write(disk, 16, 0xfee0_0000), write(disk, 24, 0x41)), (None, None));
    let message = Message { address: 0xfee0_0000, data: 0x41 };
    assert_eq!(write(disk, 28, 0), Some(message));
    assert_eq!(disk.raise_queue(OPEN, 0), Some(message));
    assert_eq!(disk.raise_queue(OPEN, 1), None, "no vector");
    assert!(!disk.line());
    // Without MSI-X it is INTx, which reading the ISR ends.
    assert_eq!(disk.raise_queue(Control::default(), 0), None);
    assert!(disk.line());
    assert_eq!((get(disk, 0x1000, 1), get(disk, 0x1000, 1)), (1, 0));
    assert!(!disk.line());
    // A vector that the device does not have is none.
    set(disk, 0x10, 2, 3);
    assert_eq!(get(disk, 0x10, 2), NO_VECTOR.into());
    set(disk, 0x10, 2, 2);
    assert_eq!((get(disk, 0x10, 2), get(disk, 0x15, 1)), (2, 0));
    assert_eq!(disk.raise_config(Control::default()), None);
    assert_eq!((get(disk, 0x15, 1), get(disk, 0x1000, 4)), (1, 2));
}

#[test]
fn a_queue_is_reset_by_itself() {
    let (disk, ram) = (&mut disk(), Ram::new(0x1_0000));
    let (areas, _) = areas(16);
    negotiate(disk, Features::VERSION_1);
    assert_eq!(enable(disk, 1, 16, areas), Some(Effect::Enabled(1)));
    assert_eq!(set(disk, 0x3a, 2, 1), None, "the feature was not accepted");
    assert_eq!(get(disk, 0x1c, 2), 1);
    negotiate(disk, Features::VERSION_1 | Features::RING_RESET);
    assert_eq!(enable(disk, 1, 16, areas), Some(Effect::Enabled(1)));
    set(disk, 0x14, 1, 15);
    assert_eq!(set(disk, 0x1c, 2, 0), None, "a driver must not");
    assert_eq!(set(disk, 0x3a, 2, 1), Some(Effect::QueueReset(1)));
    assert_eq!((get(disk, 0x3a, 2), get(disk, 0x1c, 2), get(disk, 0x18, 2)), (0, 0, 64));
    assert_eq!(set(disk, 0x3004, 2, 1), None);
    assert_eq!(enable(disk, 1, 8, areas), Some(Effect::Enabled(1)));
    assert_eq!(set(disk, 0x3004, 2, 1), Some(Effect::Notified(1)));
    assert!(disk.registers.queue(1).unwrap().layout(&ram).is_ok());
    // What a queue may not be is found when the device begins with it.
    for size in [0, 3, 128, 0xffff] {
        set(disk, 0x3a, 2, 1);
        enable(disk, 1, size, areas);
        let wrong = disk.registers.queue(1).unwrap().layout(&ram);
        assert_eq!(wrong, Err(Violation::Size(size as u16)), "{size}");
    }
    assert_eq!(disk.fail(Control::default()), None);
    assert_eq!((get(disk, 0x14, 1), get(disk, 0x1000, 1)), (0x4f, 2));
    assert_eq!(set(disk, 0x3004, 2, 1), None, "it needs a reset");
    assert_eq!(set(disk, 0x14, 1, 0), Some(Effect::Reset));
    assert!(!disk.registers.is_running() && disk.registers.status() == Status::empty());
    assert_eq!(get(disk, 0x16, 2), 0);
}

#[test]
fn configuration_space_has_a_window_to_the_bars() {
    let (disk, function) = (&mut disk(), &mut function());
    let window =
        (0x40..0xf0).step_by(4).find(|&at| function.read(at, 1) == 9 && function.read(at + 3, 1) == 5);
    let window = window.unwrap();
    let mut point = |bar: u32, offset: u32, length: u32| {
        for (at, value) in [(4, bar), (8, offset), (12, length)] {
            let outcome = disk.write_config(function, window + at, if at == 4 { 1 } else { 4 }, value);
            assert!(outcome.effect.is_none());
        }
        disk.read_config(function, window + 16, length as u8)
    };
    assert_eq!(point(4, 0x12, 2), 2, "num_queues");
    assert_eq!(point(4, 0x2000, 4), 0x5678_9abc, "the capacity");
    assert_eq!(point(4, 0x2002, 4), 0, "an access that is not aligned");
    assert_eq!(point(3, 0x2000, 4), 0, "a BAR that there is not");
    assert_eq!(point(4, u32::MAX - 3, 4), 0);
    point(4, 0x12, 2);
    let others = [1, 4].map(|size| disk.read_config(function, window + 16, size));
    assert_eq!(others, [0, 0], "of another length than was set");
    for (at, size, value) in [(8, 4, 0x14), (12, 4, 1)] {
        let _ = disk.write_config(function, window + at, size, value);
    }
    assert_eq!(disk.write_config(function, window + 16, 1, 1).effect, None);
    assert_eq!(disk.registers.status(), Status::ACKNOWLEDGE);
    assert_eq!(disk.write_config(function, window + 16, 1, 0).effect, Some(Effect::Reset));
    assert_eq!(disk.write_config(function, window + 16, 2, 1).effect, None, "another length than was set");
    assert_eq!(disk.write_config(function, 4, 2, 6).changed, Changed::COMMAND);
    assert_eq!(disk.read_config(function, 4, 2), 6);
}

#[test]
fn a_bus_reset_takes_messages_with_it() {
    let disk = &mut disk();
    negotiate(disk, Features::VERSION_1);
    let outcome = disk.write(OPEN, BAR_MSIX, 12, 4, 0);
    assert_eq!(outcome, Default::default());
    assert_eq!(disk.reset(), Effect::Reset);
    assert_eq!((disk.read(BAR_MSIX, 12, 4), get(disk, 0x14, 1)), (1, 0));
}
