// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Commands whose bytes are in several segments.

mod common;

use common::{buffer, outcome, ram, sound, start};
use turnstile_drive::drive::{Direction, Drive, MOST_BYTES, MOST_SEGMENTS, Refusal, Segment};
use turnstile_drive::nvme::Nvme;
use turnstile_drive::virtio::Virtio;
use turnstile_rig::{self as rig, Disk, Order, Ram, Shape, disk_settings};
use turnstile_virtio::config::Block;
use turnstile_virtio::driver::Bus;
use turnstile_virtio::features::Features;

const SECTORS: u64 = 4096;
const PAGE: u64 = 4096;

/// Segments at these places of the tag's buffer, so long.
fn segments<D: Drive>(tag: u16, places: &[(u64, u32)]) -> Vec<Segment> {
    places.iter().map(|&(at, length)| Segment { address: buffer::<D>(tag) + at, length }).collect()
}

/// Writes what is in segments to the disk, and reads it to others; both have to be the same bytes.
fn there_and_back<D: Drive, B: Bus>(driver: &mut D, bus: &B, ram: &Ram, places: &[(u64, u32)]) {
    let [from, to] = [0, 1].map(|tag| segments::<D>(tag, places));
    let get = |all: &[Segment]| -> Vec<u8> {
        all.iter().flat_map(|one| ram.get(one.address, one.length as usize)).collect()
    };
    for (at, segment) in from.iter().enumerate() {
        let bytes: Vec<u8> = (0..segment.length).map(|byte| (byte / 3) as u8 ^ at as u8).collect();
        ram.put(segment.address, &bytes);
    }
    to.iter().for_each(|one| ram.put(one.address, &vec![0xee; one.length as usize]));
    driver.scatter(bus, 0, Direction::Write, 8, &from).unwrap();
    assert_eq!(outcome(driver, bus), Ok((0, Ok(()))));
    driver.scatter(bus, 1, Direction::Read, 8, &to).unwrap();
    assert_eq!(outcome(driver, bus), Ok((1, Ok(()))));
    assert!(get(&from) == get(&to), "{places:x?}");
}

/// Segments that a list of pages has: from one page to all that a command has, the first of them with an offset or not.
fn lists() -> Vec<Vec<(u64, u32)>> {
    let mut all = Vec::new();
    for pages in 1..MOST_SEGMENTS as u64 {
        // Each page somewhere else, the last ones first.
        let place = |page: u64| (pages - 1 - page) * PAGE;
        all.push((0..pages).map(|page| (place(page), 4096)).collect());
        all.push(vec![(0, (pages * PAGE) as u32)]);
        if pages > 1 {
            let cut = |page| match page {
                0 => (place(0) + 1024 + 512, 2560),
                page if page == pages - 1 => (place(page), 1536),
                page => (place(page), 4096),
            };
            all.push((0..pages).map(cut).collect());
        }
    }
    all
}

#[test]
fn nvme_takes_what_a_list_of_pages_has() {
    let (nvme, ram) = (rig::Nvme::new(Shape::default(), SECTORS), ram::<Nvme>());
    let bus = nvme.on(&ram);
    let (mut driver, _) = start::<Nvme, _>(&bus).unwrap();
    lists().iter().for_each(|places| there_and_back(&mut driver, &bus, &ram, places));
    // One segment of all that a command has, which begins within a page: one page more.
    there_and_back(&mut driver, &bus, &ram, &[(4, MOST_BYTES - 512)]);
    let long = [Segment { address: buffer::<Nvme>(2) + 0x7fc, length: MOST_BYTES }];
    driver.scatter(&bus, 2, Direction::Read, 0, &long).unwrap();
    assert_eq!(outcome(&mut driver, &bus), Ok((2, Ok(()))));
    sound(&nvme);
}

#[test]
fn nvme_refuses_what_no_list_of_pages_has() {
    let (nvme, ram) = (rig::Nvme::new(Shape::default(), SECTORS), ram::<Nvme>());
    let bus = nvme.on(&ram);
    let (mut driver, _) = start::<Nvme, _>(&bus).unwrap();
    let wrong: [&[(u64, u32)]; 8] = [
        // Not at a multiple of four.
        &[(2, 512)],
        // It does not end with its page, and another one follows.
        &[(0, 2048), (4096, 2048)],
        &[(0, 4096), (4096, 512), (8192, 512)],
        // It does not begin with a page.
        &[(0, 4096), (4608, 512)],
        &[(0, 512), (512, 512)],
        // No bytes.
        &[(0, 512), (4096, 0)],
        &[(0, 0), (0, 512)],
        // The first one ends with its page, the second one begins in the middle of one.
        &[(3584, 512), (8192 + 2048, 512)],
    ];
    for places in wrong {
        let all = segments::<Nvme>(0, places);
        assert_eq!(driver.scatter(&bus, 0, Direction::Read, 0, &all), Err(Refusal::Memory), "{places:x?}");
    }
    let last = [Segment { address: u64::MAX - 511, length: 1024 }];
    assert_eq!(driver.scatter(&bus, 0, Direction::Read, 0, &last), Err(Refusal::Memory));
    let many = vec![Segment { address: buffer::<Nvme>(0), length: 512 }; MOST_SEGMENTS + 1];
    assert_eq!(driver.scatter(&bus, 0, Direction::Read, 0, &many), Err(Refusal::Memory));
    for all in [&segments::<Nvme>(0, &[(0, 100)])[..], &[]] {
        assert_eq!(driver.scatter(&bus, 0, Direction::Read, 0, all), Err(Refusal::Range));
    }
    let one = segments::<Nvme>(0, &[(0, 1024)]);
    assert_eq!(driver.scatter(&bus, 0, Direction::Read, SECTORS - 1, &one), Err(Refusal::Range));
    driver.scatter(&bus, 0, Direction::Read, 0, &one).unwrap();
    assert_eq!(driver.scatter(&bus, 0, Direction::Read, 0, &one), Err(Refusal::Tag));
    assert_eq!(outcome(&mut driver, &bus), Ok((0, Ok(()))), "it goes on");
}

#[test]
fn a_virtio_device_takes_as_many_segments_as_it_says() {
    for (without, most) in
        [(Features::empty(), 5), (Block::SEG_MAX, 1), (Features::INDIRECT_DESC, 1), (Features::empty(), 200)]
    {
        let (order, ram) = (Order::default(), ram::<Virtio>());
        let change = |config: &mut Block| config.seg_max = most;
        let disk = Disk::new((disk_settings(), SECTORS, 128), without, true, &order, change);
        let bus = disk.on(&ram);
        let (mut driver, _) = start::<Virtio, _>(&bus).unwrap();
        let most = (most as usize).min(MOST_SEGMENTS);
        // Wherever they lie.
        let places: Vec<_> = (0..=most as u64).map(|at| (at * 1030 + 7, 512)).collect();
        there_and_back(&mut driver, &bus, &ram, &places[..most]);
        assert_eq!(
            driver.scatter(&bus, 0, Direction::Read, 0, &segments::<Virtio>(0, &places)),
            Err(Refusal::Memory)
        );
        sound(&disk);
    }
}

#[test]
fn a_disk_that_is_only_read_is_not_written() {
    let (nvme, ram) = (rig::Nvme::new(Shape::default(), SECTORS), ram::<Nvme>());
    // NSATTR of the namespace.
    nvme.identified.borrow_mut().insert((0, 99), 1);
    let bus = nvme.on(&ram);
    let (mut driver, geometry) = start::<Nvme, _>(&bus).unwrap();
    assert!(!geometry.writable);
    let one = segments::<Nvme>(0, &[(0, 512)]);
    assert_eq!(driver.scatter(&bus, 0, Direction::Write, 0, &one), Err(Refusal::Unsupported));
}
