// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The service is killed at any step and started anew: nobody loses anything.

use turnstile_rig::{ACCEPTED, Computer, Random, request};
use turnstile_virtio::config::{BlockRange, BlockRequest};

use super::host::{host, probe};
use turnstile_service_block::QUEUES;

/// Sectors of the disk that belong to each queue: whoever asks two queues for the same ones knows no order.
const SHARE: u64 = 64;

/// A request to a queue's share, and what must come back: done at once on `disk`.
struct Asked {
    bytes: Vec<u8>,
}

fn any(random: &mut Random, queue: usize, disk: &mut [u8]) -> (turnstile_rig::Request, Asked) {
    let sectors = 1 + random.below(8);
    let sector = queue as u64 * SHARE + random.below(SHARE - sectors);
    let place = 512 * sector as usize..512 * (sector + sectors) as usize;
    let length = place.len();
    match random.below(5) {
        0 | 1 => {
            let data = random.bytes(length);
            disk[place].copy_from_slice(&data);
            (request(BlockRequest::OUT, sector, &data, 0), Asked { bytes: vec![0] })
        }
        2 | 3 => {
            let mut bytes = disk[place].to_vec();
            bytes.push(0);
            (request(BlockRequest::IN, sector, &[], length as u32), Asked { bytes })
        }
        _ => {
            disk[place].fill(0);
            let range = BlockRange { sector, sectors: sectors as u32, flags: 0 }.to_bytes();
            (request(BlockRequest::WRITE_ZEROES, 0, &range, 0), Asked { bytes: vec![0] })
        }
    }
}

/// A life of a driver, in which the service is killed at one step. Returns whether it was.
fn killed_at(step: u64) -> bool {
    let random = &mut Random(0x6b69_6c6c);
    let mut disk = random.bytes(512 * SHARE as usize * QUEUES);
    let mut host = host(disk.clone(), true, Some(step));
    let mut driver = probe(&mut host);
    driver.enable_messages(&mut host);
    assert!(driver.start(&mut host, ACCEPTED), "step {step}");
    let mut expected: Vec<Vec<Asked>> = (0..QUEUES).map(|_| Vec::new()).collect();
    for number in 0..6 {
        let queue = number % 2;
        let (request, asked) = any(random, queue, &mut disk);
        assert!(driver.ask(&mut host, queue, &request));
        expected[queue].push(asked);
    }
    for (queue, reply) in driver.finish(&mut host) {
        assert!(
            reply.bytes == expected[queue][reply.number].bytes,
            "step {step}, queue {queue}, {}",
            reply.number
        );
    }
    let dead = host.kills.deaths != 0;
    assert!(host.subject.into_disk() == disk, "step {step}");
    dead
}

#[test]
fn killed_at_any_step_it_loses_nothing() {
    let mut step = 0;
    while killed_at(step) {
        // Each step of a write of registers is like those of others; all are in the first and the last ones.
        step += if (400..5000).contains(&step) { 7 } else { 1 };
    }
    assert!(step > 1000, "{step}");
}

#[test]
fn killed_again_and_again_it_loses_nothing() {
    let random = &mut Random(0x6167_6169);
    let mut disk = random.bytes(512 * SHARE as usize * QUEUES);
    let mut host = host(disk.clone(), true, None);
    let mut driver = probe(&mut host);
    driver.enable_messages(&mut host);
    assert!(driver.start(&mut host, ACCEPTED));
    host.kills.most = Some(Random(77));
    host.kills.left = Some(100);
    let mut expected: Vec<Vec<Asked>> = (0..QUEUES).map(|_| Vec::new()).collect();
    let mut done = 0;
    while done < 3000 {
        for _ in 0..random.below(6) {
            let queue = random.below(QUEUES as u64) as usize;
            if driver.queues[queue].in_flight() < 14 {
                let (request, asked) = any(random, queue, &mut disk);
                assert!(driver.ask(&mut host, queue, &request));
                expected[queue].push(asked);
            }
        }
        host.board.tick.set(if random.below(2) == 0 { 1000 } else { 200_000 });
        if random.below(10) == 0 {
            host.kill();
        }
        let resets = random.below(60) == 0;
        let replies = if resets { driver.finish(&mut host) } else { driver.interrupts(&mut host) };
        for (queue, reply) in replies {
            assert!(reply.bytes == expected[queue][reply.number].bytes, "queue {queue}, {}", reply.number);
            done += 1;
        }
        if resets {
            assert!(driver.start(&mut host, ACCEPTED));
            expected.iter_mut().for_each(Vec::clear);
        } else {
            host.wait();
        }
    }
    for (queue, reply) in driver.finish(&mut host) {
        assert!(reply.bytes == expected[queue][reply.number].bytes);
    }
    assert!(host.kills.deaths > 100, "{}", host.kills.deaths);
    assert!(host.subject.into_disk() == disk);
}
