// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a guest finds, and what becomes of what it asks for.

use crc::{CRC_32_ISO_HDLC, Crc};
use turnstile_rig::{ACCEPTED, BlockDriver, Computer, Random, Shape, request};
use turnstile_service_rt::drive::Drive as Settings;
use turnstile_virtio::config::{Block, BlockRange, BlockRequest};
use turnstile_virtio::features::Features;

use super::host::{Host, SECTORS, driver};

/// What Linux accepts of a disk with one queue.
pub const FEATURES: Features = ACCEPTED.difference(Block::MQ).difference(Features::RING_RESET);

/// The same of one that is not known yet.
pub const FEW: Features = FEATURES.difference(Block::DISCARD.union(Block::WRITE_ZEROES));

/// A host whose driver works.
pub fn running(shape: Shape, settings: Settings) -> (Host, BlockDriver) {
    running_without(shape, settings, Features::empty())
}

/// The same, with a driver that does without some features.
fn running_without(shape: Shape, settings: Settings, without: Features) -> (Host, BlockDriver) {
    let mut host = Host::new(shape, settings, |nvme| nvme.holds.set(true));
    let mut driver = driver(&mut host);
    assert!(driver.start(&mut host, FEATURES.difference(without)));
    (host, driver)
}

const CACHE: Features = Block::FLUSH.union(Block::CONFIG_WCE);

/// Asks for one thing, and waits for it: the bytes that come, the status last.
pub fn once(
    host: &mut Host,
    driver: &mut BlockDriver,
    kind: u32,
    sector: u64,
    data: &[u8],
    room: u32,
) -> Vec<u8> {
    assert!(driver.ask(host, 0, &request(kind, sector, data, room)));
    let mut replies = driver.finish(host);
    assert_eq!(replies.len(), 1);
    replies.remove(0).1.bytes
}

/// Any request for a place that nobody else has asked for, and what must come back.
pub fn any(random: &mut Random, place: u64, disk: &mut [u8]) -> (turnstile_rig::Request, Vec<u8>) {
    let bytes = &mut disk[(place * 8 * 512) as usize..][..8 * 512];
    match random.below(5) {
        0 | 1 => {
            bytes.fill(random.any() as u8);
            (request(BlockRequest::OUT, place * 8, bytes, 0), vec![0])
        }
        2 | 3 => (request(BlockRequest::IN, place * 8, &[], 8 * 512), [&bytes[..], &[0]].concat()),
        _ => {
            bytes.fill(0);
            let range = BlockRange { sector: place * 8, sectors: 8, flags: 0 }.to_bytes();
            (request(BlockRequest::WRITE_ZEROES, 0, &range, 0), vec![0])
        }
    }
}

#[test]
fn a_guest_finds_the_disk() {
    let (mut host, mut driver) = running(Shape { block: 12, ..Shape::default() }, Settings::default());
    assert_eq!(host.read(driver.config, 4), SECTORS);
    assert_eq!(host.read(driver.config + 20, 4), 4096, "the size of a block");
    assert_eq!(
        once(&mut host, &mut driver, BlockRequest::GET_ID, 0, &[], 20)[..16],
        *b"root-of-all\0\0\0\0\0"
    );
    assert_eq!(
        once(&mut host, &mut driver, BlockRequest::IN, 1, &[], 4096),
        [vec![0xee; 4096], vec![1]].concat(),
        "half a block"
    );
    assert!(host.board.log.borrow().is_empty());
}

#[test]
fn what_is_asked_for_at_once_is_done_in_any_order() {
    let random = &mut Random(0x64_7269_7665);
    let (mut host, mut driver) = running(Shape::default(), Settings::default());
    let mut disk = vec![0; (SECTORS * 512) as usize];
    for _ in 0..60 {
        let mut expected = Vec::new();
        let first = random.below(SECTORS / 8);
        for place in (0..12).map(|at| (first + 5 * at) % (SECTORS / 8)) {
            let (request, answer) = any(random, place, &mut disk);
            assert!(driver.ask(&mut host, 0, &request));
            expected.push(answer);
        }
        let begun = driver.asked[0] - expected.len();
        for (_, reply) in driver.finish(&mut host) {
            assert!(reply.bytes == expected[reply.number - begun], "{}", reply.number);
        }
    }
    assert!(*host.board.nvme.platter.bytes.borrow() == disk);
    assert_eq!(host.board.nvme.platter.flushes.get(), 0, "nobody has asked for that");
    assert_eq!(once(&mut host, &mut driver, BlockRequest::FLUSH, 0, &[], 0), [0]);
    assert_eq!(host.board.nvme.platter.flushes.get(), 1);
    let range = BlockRange { sector: 64, sectors: 128, flags: 0 }.to_bytes();
    assert_eq!(once(&mut host, &mut driver, BlockRequest::DISCARD, 0, &range, 0), [0]);
    assert_eq!(
        host.board.nvme.platter.discarded.borrow().iter().map(|(_, length)| length).sum::<u64>(),
        128 * 512
    );
}

#[test]
fn a_disk_without_a_cache_needs_no_flush() {
    let (mut host, mut driver) =
        running_without(Shape { cache: false, ..Shape::default() }, Settings::default(), CACHE);
    assert_eq!(once(&mut host, &mut driver, BlockRequest::OUT, 0, &[5; 512], 0), [0]);
    assert_eq!(host.board.nvme.platter.bytes.borrow()[..512], [5; 512]);
    assert_eq!(host.board.nvme.platter.flushes.get(), 0);
}

#[test]
fn a_driver_that_turns_the_cache_off_has_each_write_flushed() {
    let (mut host, mut driver) = running(Shape::default(), Settings::default());
    host.write(driver.config + 0x20, 1, 0);
    assert_eq!(once(&mut host, &mut driver, BlockRequest::OUT, 0, &[5; 512], 0), [0]);
    assert_eq!(host.board.nvme.platter.flushes.get(), 1);
}

#[test]
fn a_read_only_disk_is_not_written() {
    let (mut host, mut driver) = running_without(
        Shape::default(),
        Settings { read_only: true, partition: None },
        CACHE | Block::DISCARD | Block::WRITE_ZEROES,
    );
    assert_eq!(once(&mut host, &mut driver, BlockRequest::OUT, 0, &[5; 512], 0), [1]);
    assert!(host.board.nvme.platter.bytes.borrow().iter().all(|byte| *byte == 0));
}

/// A partition table with these partitions: first and last sector.
pub fn table(bytes: &mut [u8], partitions: &[(u64, u64)]) {
    let crc = Crc::<u32>::new(&CRC_32_ISO_HDLC);
    for (entry, (first, last)) in bytes[1024..].chunks_mut(128).zip(partitions) {
        entry[..16].fill(0x11);
        entry[16..32].fill(*first as u8);
        entry[32..40].copy_from_slice(&first.to_le_bytes());
        entry[40..48].copy_from_slice(&last.to_le_bytes());
    }
    let sum = crc.checksum(&bytes[1024..1024 + 128 * 128]);
    let header = &mut bytes[512..512 + 92];
    header[..8].copy_from_slice(b"EFI PART");
    for (at, value) in [(8, 0x1_0000), (12, 92), (80, 128), (84, 128), (88, sum)] {
        header[at..at + 4].copy_from_slice(&u32::to_le_bytes(value));
    }
    for (at, value) in [(24, 1), (32, SECTORS - 1), (40, 34), (48, SECTORS - 34), (72, 2)] {
        header[at..at + 8].copy_from_slice(&u64::to_le_bytes(value));
    }
    let sum = crc.checksum(header);
    header[16..20].copy_from_slice(&sum.to_le_bytes());
}

#[test]
fn a_guest_has_its_partition_and_no_more() {
    let settings = Settings { partition: Some(2), read_only: false };
    let mut host = Host::new(Shape::default(), settings, |nvme| {
        table(&mut nvme.platter.bytes.borrow_mut(), &[(40, 99), (100, 131)]);
    });
    let mut driver = driver(&mut host);
    assert!(driver.start(&mut host, FEATURES));
    assert_eq!(host.read(driver.config, 4), 32);
    assert_eq!(once(&mut host, &mut driver, BlockRequest::OUT, 31, &[7; 512], 0), [0]);
    for beyond in [32, u64::MAX / 512, u64::MAX - 99] {
        assert_eq!(once(&mut host, &mut driver, BlockRequest::OUT, beyond, &[7; 512], 0), [1]);
    }
    let range = BlockRange { sector: 0, sectors: 33, flags: 0 }.to_bytes();
    assert_eq!(once(&mut host, &mut driver, BlockRequest::WRITE_ZEROES, 0, &range, 0), [1]);
    let bytes = host.board.nvme.platter.bytes.borrow();
    assert!(
        bytes[131 * 512..132 * 512].iter().all(|byte| *byte == 7)
            && bytes[132 * 512..].iter().all(|byte| *byte == 0)
    );
}

#[test]
fn without_the_partition_there_is_no_disk() {
    let settings = Settings { partition: Some(3), read_only: false };
    let mut host = Host::new(Shape::default(), settings, |nvme| {
        table(&mut nvme.platter.bytes.borrow_mut(), &[(40, 99), (100, 131)]);
    });
    assert!(host.board.log.borrow().contains("there is no such partition"), "{}", host.board.log.borrow());
    let mut driver = driver(&mut host);
    assert!(host.driven && driver.start(&mut host, FEATURES));
    assert_eq!(host.read(driver.config, 4), 0);
    assert_eq!(once(&mut host, &mut driver, BlockRequest::IN, 0, &[], 512)[512], 1);
}
