// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The driver of virtio against a model of a disk.

mod common;

use common::{buffer, outcome, ram, sound, start};
use turnstile_block::settings::{MAX_RANGE, Settings};
use turnstile_drive::drive::{Drive, Failure, Geometry, MOST_BYTES, Refusal, Refused};
use turnstile_drive::virtio::Virtio;
use turnstile_rig::{Disk, Fuse, Order, Ram, disk_settings};
use turnstile_virtio::config::{Block, BlockRequest};
use turnstile_virtio::driver::pci::{self, Function};
use turnstile_virtio::features::Features;
use turnstile_virtio::violation::Violation;

const SECTORS: u64 = 4096;
/// A queue of so many descriptors is enough.
const MOST: u16 = 128;
const NONE: Features = Features::empty();

/// What comes of a disk with these settings, without some features and with a configuration that is changed.
fn tried(
    settings: Settings,
    without: Features,
    change: impl FnOnce(&mut Block),
) -> Result<Geometry, Failure> {
    let (order, ram) = (Order::default(), ram::<Virtio>());
    let disk = Disk::new((settings, SECTORS, MOST), without, true, &order, change);
    let result = start::<Virtio, _>(&disk.on(&ram)).map(|(_, geometry)| geometry);
    sound(&disk);
    assert_eq!(disk.runs(), result.is_ok());
    result
}

/// Does something with a disk and its driver.
fn with<R>(work: impl FnOnce(&Disk<'_>, &Ram, Virtio) -> R) -> R {
    let (order, ram) = (Order::default(), ram::<Virtio>());
    let disk = Disk::new((disk_settings(), SECTORS, MOST), NONE, true, &order, |_| {});
    let (driver, _) = start::<Virtio, _>(&disk.on(&ram)).unwrap();
    let result = work(&disk, &ram, driver);
    sound(&disk);
    result
}

#[test]
fn a_device_says_what_its_disk_is() {
    let all = disk_settings();
    let usual = Geometry {
        sectors: SECTORS,
        block: 512,
        depth: 32,
        most_bytes: MOST_BYTES,
        writable: true,
        cache: true,
        most_discarded: MAX_RANGE,
        discard_alignment: 8,
        most_zeroed: MAX_RANGE,
    };
    assert_eq!(tried(all, NONE, |_| {}), Ok(usual));
    let without = |features| tried(all, features, |_| {}).unwrap();
    assert_eq!(without(Features::INDIRECT_DESC.union(Features::EVENT_IDX)), usual);
    assert_eq!(without(Block::FLUSH), Geometry { cache: false, ..usual });
    assert_eq!(without(Block::DISCARD), Geometry { most_discarded: 0, ..usual });
    let plain = Geometry { most_discarded: 0, most_zeroed: 0, discard_alignment: 8, ..usual };
    assert_eq!(
        without(Block::DISCARD.union(Block::WRITE_ZEROES)),
        Geometry { discard_alignment: 1, ..plain }
    );
    let fixed = tried(Settings { read_only: true, ..all }, NONE, |_| {}).unwrap();
    assert!(!fixed.writable && fixed.most_zeroed == 0 && fixed.most_discarded == 0);
    let changed = |change: fn(&mut Block)| tried(all, NONE, change).unwrap();
    assert_eq!(changed(|config| config.max_discard_seg = 0), Geometry { most_discarded: 0, ..usual });
    assert_eq!(changed(|config| config.max_write_zeroes_seg = 0), Geometry { most_zeroed: 0, ..usual });
    // What does not fill a block is not used.
    let large = changed(|config| {
        (config.block_size, config.capacity) = (4096, 8 * 77 + 5);
        (config.max_discard_sectors, config.max_write_zeroes_sectors) = (23, u32::MAX);
    });
    let expected = Geometry { sectors: 8 * 77, block: 4096, most_discarded: 16, most_zeroed: !7, ..usual };
    assert_eq!(large, expected);
    let short = tried(Settings { segment_bytes: 9999, ..all }, NONE, |config| config.block_size = 4096);
    assert_eq!(short.map(|geometry| geometry.most_bytes), Ok(8192));
}

#[test]
fn nonsense_is_refused() {
    let changed = |change: &dyn Fn(&mut Block)| tried(disk_settings(), NONE, change);
    for size in [0, 1, 256, 513, 8192, u32::MAX] {
        assert_eq!(changed(&|config| config.block_size = size), Err(Failure::Blocks), "{size}");
        let ignored = tried(disk_settings(), Block::BLK_SIZE, |config| config.block_size = size);
        assert_eq!(ignored.map(|geometry| geometry.block), Ok(512), "the field does not hold");
    }
    for capacity in [0, 1 << 55, u64::MAX] {
        assert_eq!(changed(&|config| config.capacity = capacity), Err(Failure::Blocks));
    }
    assert!(changed(&|config| config.capacity = (1 << 55) - 1).is_ok());
    let small = |size| {
        let settings = Settings { segment_bytes: 1, ..disk_settings() };
        tried(settings, NONE, |config| config.size_max = size).map(|geometry| geometry.most_bytes)
    };
    assert_eq!((small(0), small(511), small(512)), (Err(Failure::Queues), Err(Failure::Queues), Ok(512)));
    assert_eq!(small(u32::MAX), Ok(MOST_BYTES));
}

/// A queue may have room for fewer commands.
#[test]
fn small_queues_hold_what_they_can() {
    let depth = |most, without| {
        let (order, ram) = (Order::default(), ram::<Virtio>());
        let disk = Disk::new((disk_settings(), SECTORS, most), without, false, &order, |_| {});
        let (mut driver, geometry) = start::<Virtio, _>(&disk.on(&ram))?;
        disk.holds.set(true);
        for tag in 0..geometry.depth {
            assert_eq!(driver.read(&disk.on(&ram), tag, 0, buffer::<Virtio>(tag), 512), Ok(()));
        }
        if geometry.depth < 32 {
            assert_eq!(driver.flush(&disk.on(&ram), 31), Err(Refusal::Full));
        }
        driver.ring(&disk.on(&ram))?;
        disk.run_all(&ram);
        for _ in 0..geometry.depth {
            assert!(matches!(driver.finished(&disk.on(&ram)), Ok(Some((_, Ok(()))))));
        }
        sound(&disk);
        Ok(geometry.depth)
    };
    let plain = Features::INDIRECT_DESC;
    assert_eq!([1, 4, 64].map(|most| depth(most, NONE)), [Ok(1), Ok(4), Ok(32)]);
    assert_eq!([4, 16, 256].map(|most| depth(most, plain)), [Ok(1), Ok(5), Ok(32)]);
    assert_eq!(depth(2, plain), Err(Failure::Queues));
}

#[test]
fn what_is_no_disk_is_refused() {
    let (order, memory) = (Order::default(), ram::<Virtio>());
    let disk = Disk::new((disk_settings(), SECTORS, MOST), NONE, true, &order, |_| {});
    let begun = |ram: &Ram| start::<Virtio, _>(&disk.on(ram)).map(drop);
    assert_eq!(begun(&Ram::new(Virtio::BYTES as usize, Fuse::default())), Ok(()));
    assert_eq!(begun(&Ram::new(Virtio::BYTES as usize - 1, Fuse::default())), Err(Failure::Memory));
    let mut driver = Virtio::NEW;
    let aligned = driver.begin(&disk.on(&memory), Ram::BASE + 64);
    assert_eq!(aligned, Err(Failure::Violation(Violation::Alignment(Ram::BASE + 64))));
    assert!(!disk.runs());
    // Transitional: 0x1001.
    disk.patches.borrow_mut().extend([(2, 1), (3, 0x10)]);
    assert_eq!(begun(&memory), Ok(()));
    disk.patches.borrow_mut().insert(2, 0);
    assert_eq!(begun(&memory), Err(Failure::Unknown), "a card");
    assert_eq!(Virtio::reset(&disk.on(&memory)), Err(Failure::Unknown));
    disk.patches.borrow_mut().clear();
    assert_eq!((Virtio::reset(&disk.on(&memory)), disk.runs()), (Ok(true), false));
    assert_eq!(driver.proceed(&disk.on(&memory), 0), Err(Failure::Unknown));
}

/// Devices of before virtio 1.1 end behind the size of a block, or a little later.
#[test]
fn short_configurations_do() {
    let short = |length: u8, without| {
        let (order, ram) = (Order::default(), ram::<Virtio>());
        let disk = Disk::new((disk_settings(), SECTORS, MOST), without, true, &order, |_| {});
        let bus = disk.on(&ram);
        let mut at = bus.configuration(0x34, 1) as u16;
        while (bus.configuration(at, 1), bus.configuration(at + 3, 1)) != (9, 4) {
            at = bus.configuration(at + 1, 1) as u16;
        }
        disk.patches.borrow_mut().insert(at + 12, length);
        start::<Virtio, _>(&bus).map(|(_, geometry)| geometry.sectors)
    };
    let new = Block::DISCARD.union(Block::WRITE_ZEROES);
    assert_eq!((short(24, new), short(23, new)), (Ok(SECTORS), Err(Failure::Blocks)));
    assert_eq!((short(60, NONE), short(59, NONE)), (Ok(SECTORS), Err(Failure::Blocks)));
    assert_eq!(short(24, Block::DISCARD), Err(Failure::Blocks));
}

#[test]
fn a_bad_sector_fails_its_command_alone() {
    with(|disk, ram, mut driver| {
        let bus = disk.on(ram);
        disk.platter.bad.borrow_mut().insert(12);
        driver.write(&bus, 3, 10, buffer::<Virtio>(3), 1024).unwrap();
        assert_eq!(outcome(&mut driver, &bus), Ok((3, Ok(()))));
        driver.read(&bus, 3, 11, buffer::<Virtio>(3), 1024).unwrap();
        assert_eq!(outcome(&mut driver, &bus), Ok((3, Err(Refused::Io))));
        assert_eq!(driver.check(&bus), Ok(()));
    });
}

#[test]
fn zeroes_are_given_up_if_they_may_be() {
    for can in [false, true] {
        let (order, ram) = (Order::default(), ram::<Virtio>());
        let settings = Settings { discard_alignment: if can { 1 } else { 0 }, ..disk_settings() };
        let disk = Disk::new((settings, SECTORS, MOST), NONE, true, &order, |_| {});
        let bus = disk.on(&ram);
        let (mut driver, _) = start::<Virtio, _>(&bus).unwrap();
        for may_discard in [false, true] {
            driver.zero(&bus, 1, 16, 8, may_discard).unwrap();
            assert_eq!(outcome(&mut driver, &bus), Ok((1, Ok(()))));
        }
        assert_eq!(*disk.platter.zeroed.borrow(), [(8192, 4096, false), (8192, 4096, can)]);
    }
}

/// Used entries and statuses of any kind, written by hand: behind the descriptors and the driver's area of a queue of 32.
#[test]
fn answers_that_lie_are_noticed() {
    let used = (Ram::BASE + 16 * 32 + 6 + 2 * 32).next_multiple_of(4);
    let answer = |index: u16, id: u32, length: u32, status: Option<u8>| {
        with(|disk, ram, mut driver| {
            let bus = disk.on(ram);
            disk.holds.set(true);
            driver.read(&bus, 5, 0, buffer::<Virtio>(5), 512).unwrap();
            driver.ring(&bus).unwrap();
            if let Some(status) = status {
                ram.put(Ram::BASE + 0x1000 + 1024 * 5 + 32, &[status]);
            }
            ram.put(used + 4, &id.to_le_bytes());
            ram.put(used + 8, &length.to_le_bytes());
            ram.put(used + 2, &index.to_le_bytes());
            driver.finished(&bus)
        })
    };
    assert_eq!(answer(0, 0, 513, Some(0)), Ok(None));
    assert_eq!(answer(1, 0, 513, Some(BlockRequest::OK)), Ok(Some((5, Ok(())))));
    assert_eq!(answer(1, 0, 513, Some(BlockRequest::UNSUPP)), Ok(Some((5, Err(Refused::Unsupported)))));
    for status in [None, Some(BlockRequest::IOERR), Some(3), Some(0xff)] {
        assert_eq!(answer(1, 0, 513, status), Ok(Some((5, Err(Refused::Io)))));
    }
    let violation = |violation| Err(Failure::Violation(violation));
    assert_eq!(answer(1, 5, 513, Some(0)), violation(Violation::UsedId(5)), "that is its tag");
    assert_eq!(answer(1, 0, 514, Some(0)), violation(Violation::UsedLength(514)));
    assert_eq!(answer(2, 0, 513, Some(0)), violation(Violation::UsedJump { next: 0, found: 2 }));
}

#[test]
fn a_device_that_cannot_go_on_says_so() {
    for msix in [false, true] {
        let (order, ram) = (Order::default(), ram::<Virtio>());
        let disk = Disk::new((disk_settings(), SECTORS, MOST), NONE, msix, &order, |_| {});
        let bus = disk.on(&ram);
        let (mut driver, _) = start::<Virtio, _>(&bus).unwrap();
        assert_eq!((driver.interrupted(&bus), driver.check(&bus)), (Ok(()), Ok(())));
        disk.fail();
        let broken = Err(Failure::from(pci::Failure::Broken));
        assert_eq!(driver.check(&bus), broken);
        assert_eq!(driver.interrupted(&bus), if msix { Ok(()) } else { broken }, "a pin has a reason");
        driver.stop(&bus);
        assert!(!disk.runs());
        let unknown = Err(Failure::Unknown);
        assert_eq!(
            (driver.check(&bus), driver.ring(&bus), driver.interrupted(&bus)),
            (unknown, unknown, unknown)
        );
        assert_eq!((driver.finished(&bus), driver.arm(&bus)), (Err(Failure::Unknown), Err(Failure::Unknown)));
        assert_eq!(driver.flush(&bus, 0), Err(Refusal::Unsupported));
        assert!(start::<Virtio, _>(&bus).is_ok());
    }
}

#[test]
fn commands_that_cannot_be_are_refused() {
    with(|disk, ram, mut driver| {
        let (bus, at) = (disk.on(ram), buffer::<Virtio>(0));
        let end = Ram::BASE + ram.length() as u64;
        let cases = [
            (32, 0, at, 512, Refusal::Tag),
            (0, 0, at, 0, Refusal::Range),
            (0, 0, at, 513, Refusal::Range),
            (0, 0, at, MOST_BYTES + 512, Refusal::Range),
            (0, SECTORS, at, 512, Refusal::Range),
            (0, u64::MAX, at, 512, Refusal::Range),
            (0, 0, at + 512, 512, Refusal::Memory),
            (0, 0, end, 512, Refusal::Memory),
        ];
        for (tag, sector, address, length, refusal) in cases {
            assert_eq!(driver.read(&bus, tag, sector, address, length), Err(refusal));
            assert_eq!(driver.write(&bus, tag, sector, address, length), Err(refusal));
        }
        for (sector, sectors) in [(0, 0), (SECTORS, 1), (0, SECTORS as u32 + 1), (0, MAX_RANGE + 1)] {
            assert_eq!(driver.zero(&bus, 0, sector, sectors, true), Err(Refusal::Range));
            assert_eq!(driver.discard(&bus, 0, sector, sectors), Err(Refusal::Range));
        }
        driver.flush(&bus, 0).unwrap();
        assert_eq!(driver.flush(&bus, 0), Err(Refusal::Tag));
        assert_eq!(outcome(&mut driver, &bus), Ok((0, Ok(()))));
        assert_eq!(disk.platter.flushes.get(), 1);
    });
    let (order, ram) = (Order::default(), ram::<Virtio>());
    let settings = Settings { read_only: true, cache: false, ..disk_settings() };
    let disk = Disk::new((settings, SECTORS, MOST), NONE, true, &order, |_| {});
    let (bus, at) = (disk.on(&ram), buffer::<Virtio>(0));
    let (mut driver, _) = start::<Virtio, _>(&bus).unwrap();
    let unsupported = Err(Refusal::Unsupported);
    assert_eq!((driver.flush(&bus, 0), driver.write(&bus, 0, 0, at, 512)), (unsupported, unsupported));
    assert_eq!(
        (driver.zero(&bus, 0, 0, 8, false), driver.discard(&bus, 0, 0, 8)),
        (unsupported, unsupported)
    );
    driver.read(&bus, 0, 0, at, 512).unwrap();
    assert_eq!(outcome(&mut driver, &bus), Ok((0, Ok(()))));
}

#[test]
fn a_burst_is_one_notification() {
    with(|disk, ram, mut driver| {
        let bus = disk.on(ram);
        for tag in 0..32 {
            driver.read(&bus, tag, tag.into(), buffer::<Virtio>(tag), 512).unwrap();
        }
        assert_eq!(driver.finished(&bus), Ok(None));
        driver.ring(&bus).unwrap();
        driver.ring(&bus).unwrap();
        assert_eq!(disk.notified.get(), 1);
    });
}
