// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a driver finds, what requests do, and what hostile drivers cannot do.

use turnstile_rig::{ACCEPTED, BlockDriver, Computer, ECAM, Ram, Random, WINDOW, request};
use turnstile_service_rig::FIRMWARE;
use turnstile_service_rt::{Answer, Attach, Event, Service};
use turnstile_virtio::config::{Block, BlockRange, BlockRequest};
use turnstile_virtio::features::Features;

use super::host::{Host, MEMORY, OTHER, host, probe};
use crate::Function;
use turnstile_service_block::QUEUES;

const SECTORS: u64 = 512;

fn disk() -> Vec<u8> {
    Random(0x1d15c).bytes(512 * SECTORS as usize)
}

fn running(writable: bool) -> (Host, BlockDriver) {
    let mut host = host(disk(), writable, None);
    let mut driver = probe(&mut host);
    driver.enable_messages(&mut host);
    let lacks = if writable {
        Features::empty()
    } else {
        Block::FLUSH | Block::CONFIG_WCE | Block::DISCARD | Block::WRITE_ZEROES
    };
    let has = if writable { Features::empty() } else { Block::RO };
    assert!(driver.start(&mut host, (ACCEPTED - lacks) | has));
    (host, driver)
}

/// Asks for one thing and returns what comes back: what was read, and the status.
fn once(
    host: &mut Host,
    driver: &mut BlockDriver,
    kind: u32,
    sector: u64,
    data: &[u8],
    room: u32,
) -> (Vec<u8>, u8) {
    assert!(driver.ask(host, 1, &request(kind, sector, data, room)));
    let mut replies = driver.finish(host);
    let (_, mut reply) = replies.pop().expect("it has answered");
    assert!(replies.is_empty());
    let status = reply.bytes.pop().expect("there is a status");
    (reply.bytes, status)
}

#[test]
fn a_driver_finds_a_disk() {
    let (mut host, driver) = running(true);
    let mut field = |at, size| host.read(driver.config + at, size);
    assert_eq!((field(0, 4), field(4, 4)), (SECTORS, 0), "capacity");
    assert_eq!((field(12, 4), field(20, 4), field(0x22, 2)), (126, 512, QUEUES as u64));
    host.write(driver.common, 4, 0);
    let low = host.read(driver.common + 4, 4);
    host.write(driver.common, 4, 1);
    let offered = Features::from_bits_retain(host.read(driver.common + 4, 4) << 32 | low);
    assert_eq!(offered, ACCEPTED);
    assert!(!probe(&mut host).start(&mut host, ACCEPTED | Features::RING_PACKED));
}

#[test]
fn bars_are_where_software_puts_them() {
    let mut host = host(disk(), true, None);
    assert!(host.board.decoded.borrow().iter().all(Option::is_none), "firmware has not enabled them");
    let placed = [host.read(ECAM + 0x20, 4), host.read(ECAM + 0x14, 4)];
    assert_eq!(placed, [FIRMWARE, FIRMWARE + 0x4000]);
    host.write(ECAM + 4, 2, 2);
    let firmware = [None, Some((FIRMWARE + 0x4000, 0x1000)), None, None, Some((FIRMWARE, 0x4000)), None];
    assert_eq!(*host.board.decoded.borrow(), firmware);
    host.kill();
    assert_eq!(*host.board.decoded.borrow(), firmware, "whoever begins anew says it again");
    // Where another function is, and outside: nowhere; then it is tried again, with the next change.
    for bad in [OTHER.start, WINDOW.end, 0] {
        host.write(ECAM + 0x20, 4, bad);
        assert_eq!(host.board.decoded.borrow()[4], None);
    }
    host.write(ECAM + 0x20, 4, FIRMWARE + 0x4000);
    assert_eq!(host.board.decoded.borrow()[4], None, "the other BAR is there");
    host.write(ECAM + 0x14, 4, FIRMWARE);
    let swapped = [None, Some((FIRMWARE, 0x1000)), None, None, Some((FIRMWARE + 0x4000, 0x4000)), None];
    assert_eq!(*host.board.decoded.borrow(), swapped);
    host.board.decoded.replace(firmware);
    host.kill();
    assert_eq!(*host.board.decoded.borrow(), swapped, "it was killed before it had said so");
    host.write(ECAM + 4, 2, 0);
    assert!(host.board.decoded.borrow().iter().all(Option::is_none));
}

#[test]
fn requests_are_done() {
    let (mut host, mut driver) = running(true);
    let ask = &mut |kind, sector, data: &[u8], room| once(&mut host, &mut driver, kind, sector, data, room);
    let data = Random(3).bytes(0x3000);
    assert_eq!(ask(BlockRequest::OUT, 8, &data, 0), (vec![], 0));
    assert_eq!(ask(BlockRequest::IN, 8, &[], 0x3000), (data, 0));
    assert_eq!(ask(BlockRequest::FLUSH, 0, &[], 0).1, 0);
    assert_eq!(ask(BlockRequest::GET_ID, 0, &[], 20), (b"root\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0".to_vec(), 0));
    let range = BlockRange { sector: 8, sectors: 8, flags: 1 }.to_bytes();
    assert_eq!(ask(BlockRequest::WRITE_ZEROES, 0, &range, 0).1, 0);
    assert_eq!(ask(BlockRequest::IN, 8, &[], 0x1000), (vec![0; 0x1000], 0));
    let range = BlockRange { sector: 8, sectors: 8, flags: 0 }.to_bytes();
    assert_eq!(ask(BlockRequest::DISCARD, 0, &range, 0).1, 0);
    assert_eq!(ask(BlockRequest::IN, SECTORS, &[], 512).1, BlockRequest::IOERR);
    assert_eq!(ask(BlockRequest::OUT, u64::MAX, &[0; 512], 0).1, BlockRequest::IOERR);
    assert_eq!(ask(77, 0, &[], 0).1, BlockRequest::UNSUPP);
}

#[test]
fn a_disk_that_cannot_be_written_is_not() {
    let (mut host, mut driver) = running(false);
    let ask = &mut |kind, sector, data: &[u8], room| once(&mut host, &mut driver, kind, sector, data, room);
    assert_eq!(ask(BlockRequest::OUT, 8, &[1; 512], 0).1, BlockRequest::IOERR);
    let range = BlockRange { sector: 0, sectors: 8, flags: 0 }.to_bytes();
    assert_eq!(ask(BlockRequest::WRITE_ZEROES, 0, &range, 0).1, BlockRequest::IOERR);
    let original = disk();
    assert_eq!(ask(BlockRequest::IN, 8, &[], 512), (original[4096..4608].to_vec(), 0));
    assert!(host.subject.into_disk() == original);
}

/// With EVENT_IDX, what is asked for while the service works needs neither a doorbell nor an interrupt of its own.
#[test]
fn one_event_does_what_waits_and_interrupts_once() {
    let (mut host, mut driver) = running(true);
    driver.finish(&mut host);
    let rings: usize = (0..8)
        .filter(|at| {
            driver.queues[2].ask(&host.board.ram, &request(BlockRequest::IN, *at, &[], 512)).unwrap().1
        })
        .count();
    assert_eq!(rings, 1, "the first one alone is to be rung for");
    host.write(driver.notify + 8, 2, 2);
    assert_eq!(*host.board.messages.borrow(), [0x53]);
    assert_eq!(driver.interrupts(&mut host).len(), 8);
}

#[test]
fn what_is_long_is_done_in_pieces() {
    let (mut host, mut driver) = running(true);
    driver.finish(&mut host);
    // As on a slow machine: each slice takes long.
    host.board.tick.set(200_000);
    for queue in [0, 3] {
        for _ in 0..12 {
            driver.queues[queue].ask(&host.board.ram, &request(BlockRequest::IN, 0, &[], 0x3000)).unwrap();
        }
    }
    host.event(Event::Doorbell { queues: 0b1001, now: 0 });
    let (mut events, mut done) = (0, 0);
    loop {
        let some = driver.interrupts(&mut host).len();
        assert!(some <= 10, "two slices are 128 KiB, {some}");
        done += some;
        if !host.wait() {
            break;
        }
        events += 1;
    }
    assert_eq!(done, 24);
    assert!(events >= 1, "{events}");
}

/// A driver that resets device or queue has its memory for itself from then on.
#[test]
fn after_a_reset_no_memory_is_touched() {
    for whole in [true, false] {
        let (mut host, mut driver) = running(true);
        driver.finish(&mut host);
        host.board.tick.set(1_000_000);
        for _ in 0..15 {
            driver.queues[0].ask(&host.board.ram, &request(BlockRequest::IN, 0, &[], 0x3c00)).unwrap();
        }
        host.write(driver.notify, 2, 0);
        assert!(std::mem::take(&mut host.again), "it is in the middle of them");
        host.read(driver.common + 0x14, 1);
        assert!(!host.again, "who reads does not put the alarm off");
        if whole {
            host.write(driver.common + 0x14, 1, 0);
        } else {
            host.write(driver.common + 0x16, 2, 0);
            host.write(driver.common + 0x3a, 2, 1);
            assert_eq!(host.read(driver.common + 0x1c, 2), 0);
        }
        let before = host.board.ram.get(Ram::BASE, MEMORY);
        host.kill();
        host.write(driver.notify, 2, 0);
        while host.wait() {}
        assert!(host.board.ram.get(Ram::BASE, MEMORY) == before);
        host.board.messages.take();
        assert!(driver.start(&mut host, ACCEPTED));
        assert_eq!(once(&mut host, &mut driver, BlockRequest::IN, 0, &[], 512), (disk()[..512].to_vec(), 0));
    }
}

#[test]
fn masked_messages_wait_over_a_crash() {
    let (mut host, mut driver) = running(true);
    driver.finish(&mut host);
    let entry = driver.table + 16 * 2 + 12;
    host.write(entry, 4, 1);
    assert!(driver.ask(&mut host, 1, &request(BlockRequest::IN, 0, &[], 512)));
    assert!(host.board.messages.borrow().is_empty());
    assert_eq!(host.read(driver.table + 0x800, 4), 1 << 2);
    host.kill();
    while host.wait() {}
    assert!(!host.board.messages.borrow().contains(&0x52), "the others are owed");
    assert_eq!(host.read(driver.table + 0x800, 4), 1 << 2);
    host.write(entry, 4, 0);
    assert_eq!(driver.interrupts(&mut host).len(), 1);
}

/// What the driver wrote to the configuration stays over a crash, and goes with a reset.
#[test]
fn the_cache_is_as_the_driver_wants_it() {
    let (mut host, driver) = running(true);
    assert_eq!(host.read(driver.config + 0x20, 1), 1);
    host.write(driver.config + 0x20, 1, 0);
    host.kill();
    assert_eq!(host.read(driver.config + 0x20, 1), 0);
    host.write(driver.common + 0x14, 1, 0);
    assert_eq!(host.read(driver.config + 0x20, 1), 1);
}

/// A driver that breaks a rule is told that the device needs a reset, which mends it.
#[test]
fn a_broken_ring_needs_a_reset() {
    let (mut host, mut driver) = running(true);
    driver.finish(&mut host);
    let ring = driver.queues[0].ring;
    ring.offer(&host.board.ram, 0, 500, 1);
    host.write(driver.notify, 2, 0);
    assert_eq!(host.board.messages.take(), [0x50]);
    assert_eq!(host.read(driver.common + 0x14, 1), 15 | 64);
    host.kill();
    assert_eq!(host.read(driver.common + 0x14, 1), 15 | 64);
    assert_eq!(host.board.messages.take(), [0x50], "whoever begins anew says it again");
    assert!(driver.start(&mut host, ACCEPTED));
    assert_eq!(once(&mut host, &mut driver, BlockRequest::FLUSH, 0, &[], 0).1, 0);
}

/// Whatever is written anywhere: no event does more than so much, nothing panics, and the device works after a reset.
#[test]
fn hostile_drivers_get_nowhere() {
    for seed in 1..60_u64 {
        let random = &mut Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let (mut host, mut driver) = running(true);
        host.board.tick.set(200_000);
        for _ in 0..200 {
            match random.below(8) {
                0 => {
                    let offset = random.below(0x1100);
                    host.write(ECAM + offset, 1 << random.below(4), random.any());
                }
                1 => host.write(driver.common + random.below(0x40), 1 << random.below(4), random.any()),
                2 => host.write(driver.table + random.below(0x1000), 1 << random.below(4), random.any()),
                3 => drop(host.read(driver.common + random.below(0x4000), 1 << random.below(4))),
                4 => drop(host.read(ECAM + random.below(0x1000), 1 << random.below(4))),
                5 => drop(host.event(Event::Doorbell { queues: random.any(), now: 0 })),
                6 => {
                    let queue = random.below(QUEUES as u64) as usize;
                    let _ = driver.queues[queue]
                        .ask(&host.board.ram, &request(random.below(14) as u32, random.below(600), &[], 512));
                }
                _ => {
                    host.board.ram.disturb(random, 0x2000);
                    host.event(Event::Doorbell { queues: random.any(), now: 0 });
                    host.event(Event::Alarm(0));
                }
            }
            if random.below(20) == 0 {
                host.kill();
            }
        }
        host.board.ram.restless.set(0);
        host.again = false;
        let mut driver = probe(&mut host);
        driver.enable_messages(&mut host);
        assert!(driver.start(&mut host, ACCEPTED));
        host.board.messages.take();
        assert_eq!(once(&mut host, &mut driver, BlockRequest::FLUSH, 0, &[], 0).1, 0);
    }
}

/// The program itself, where no hypervisor is: it has no disk and no memory.
#[test]
fn without_anything_it_is_an_empty_disk() {
    let mut function = Function::NEW;
    assert_eq!(
        function.event(Event::Read { device: 0, offset: 0, size: 4 }).value,
        u64::MAX,
        "before it is attached"
    );
    assert_eq!(function.attach(Attach::default()), Answer::default());
    let mut read = |device, offset, size| function.event(Event::Read { device, offset, size }).value;
    assert_eq!((read(0, 0, 4), read(0, 0x10, 4), read(5, 0x2000, 8)), (0x1042_1af4, 0, 0));
    assert_eq!((read(0, 0, 8), read(0, 0x1_0000, 4), read(99, 0, 4)), (0xffff_ffff, 0xffff_ffff, 0));
    assert_eq!(function.event(Event::Unknown), Answer::default());
}
