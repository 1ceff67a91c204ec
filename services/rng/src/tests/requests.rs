// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a guest asks for, and what becomes of it.

use std::collections::HashSet;

use turnstile_rig::{BlockDriver, Computer, ECAM, Random, Reply, Request};
use turnstile_service_rt::{Answer, Attach, Event, Service};

use super::host::{ACCEPTED, Host, host, probe, word};
use crate::Function;

/// Words that are more than any test needs.
pub const ENOUGH: u64 = 1 << 15;

/// A driver that works.
fn running(there: u64, left: Option<u64>) -> (Host, BlockDriver) {
    let mut host = host(there, left);
    let driver = started(&mut host);
    (host, driver)
}

fn started(host: &mut Host) -> BlockDriver {
    let mut driver = probe(host);
    driver.enable_messages(host);
    assert!(driver.start(host, ACCEPTED));
    driver
}

/// A request for so many bytes.
pub fn room(length: u32) -> Request {
    Request { writable: vec![length], ..Request::default() }
}

/// The whole words of a reply, none of which anybody had before.
pub fn news(had: &mut HashSet<u64>, reply: &Reply) -> usize {
    let bytes = &reply.bytes[..reply.written as usize];
    for piece in bytes.chunks_exact(8) {
        let word = u64::from_le_bytes(piece.try_into().unwrap());
        assert!(had.insert(word), "{word:#x} was there before");
    }
    bytes.len()
}

#[test]
fn a_guest_gets_what_the_generator_gives() {
    let (mut host, mut driver) = running(ENOUGH, None);
    assert_eq!(host.read(ECAM + 8, 4), 0xff00_0001, "no class of its own");
    driver.finish(&mut host);
    assert!(driver.ask(&mut host, 0, &room(20)));
    let replies = driver.finish(&mut host);
    let wanted: Vec<u8> = (1..=3).flat_map(|number| word(number).to_le_bytes()).take(20).collect();
    assert_eq!((replies.len(), replies[0].1.written, &replies[0].1.bytes), (1, 20, &wanted));
    assert!(driver.ask(&mut host, 0, &room(300)));
    let (_, reply) = driver.finish(&mut host).remove(0);
    assert_eq!((reply.written, &reply.bytes[256..]), (256, &[0xee; 44][..]), "the driver asks again");
    assert_eq!(reply.bytes[..8], word(4).to_le_bytes(), "what is left of a word goes to nobody");
}

#[test]
fn who_asks_without_end_has_turns() {
    let (mut host, mut driver) = running(ENOUGH, None);
    driver.finish(&mut host);
    for (tick, most) in [(200_000, 4), (0, 16)] {
        // As many as the queue has, shown before anybody looks.
        for _ in 0..16 {
            driver.queues[0].ask(&host.board.ram, &room(256)).unwrap();
        }
        host.board.tick.set(tick);
        host.subject.counter.asked.set(0);
        host.event(Event::Doorbell { queues: 1, now: 0 });
        assert_eq!(host.subject.counter.asked.get(), 32 * most, "requests of one event");
        driver.finish(&mut host);
        assert_eq!(host.subject.counter.asked.get(), 32 * 16);
    }
}

#[test]
fn requests_wait_for_a_generator_that_is_dry() {
    let (mut host, mut driver) = running(40, None);
    driver.finish(&mut host);
    let mut had = HashSet::new();
    for _ in 0..2 {
        assert!(driver.ask(&mut host, 0, &room(256)));
    }
    let replies = driver.interrupts(&mut host);
    assert_eq!(replies.len(), 1);
    assert_eq!(news(&mut had, &replies[0].1), 256);
    for _ in 0..3 {
        host.subject.counter.asked.set(0);
        assert!(host.wait(), "it looks again by itself");
        assert!(driver.interrupts(&mut host).is_empty());
        assert!((1..100).contains(&host.subject.counter.asked.get()), "not without end");
    }
    host.kill();
    host.subject.counter.there.set(ENOUGH);
    let replies = driver.finish(&mut host);
    assert_eq!((replies.len(), news(&mut had, &replies[0].1)), (1, 256));
    assert!(!host.wait(), "nobody looks where nothing is asked for");
}

/// A life of a driver, in which the service is killed at one step. Returns whether it was.
fn killed_at(step: u64) -> bool {
    let (mut host, mut driver) = running(ENOUGH, Some(step));
    let mut had = HashSet::new();
    for length in [8, 256, 24, 0, 264] {
        assert!(driver.ask(&mut host, 0, &room(length)));
    }
    let lengths: Vec<usize> =
        driver.finish(&mut host).iter().map(|(_, reply)| news(&mut had, reply)).collect();
    assert_eq!(lengths, [8, 256, 24, 0, 256], "step {step}");
    host.kills.deaths != 0
}

#[test]
fn killed_at_any_step_it_loses_no_request_and_repeats_no_number() {
    let mut step = 0;
    while killed_at(step) {
        step += 1;
    }
    assert!(step > 500, "{step}");
}

#[test]
fn killed_again_and_again_it_goes_on() {
    let random = &mut Random(0x6167_6169);
    let (mut host, mut driver) = running(ENOUGH, None);
    (host.kills.most, host.kills.left) = (Some(Random(77)), Some(100));
    let (mut had, mut done, mut asked) = (HashSet::new(), 0, 0);
    while done < 500 {
        for _ in 0..random.below(6) {
            asked += usize::from(driver.ask(&mut host, 0, &room(8 * random.below(40) as u32)));
        }
        if random.below(10) == 0 {
            host.kill();
        }
        // Some are dry for a while.
        let there = host.subject.counter.drawn.get() + random.below(200);
        host.subject.counter.there.set(there);
        for (_, reply) in driver.interrupts(&mut host) {
            news(&mut had, &reply);
            done += 1;
        }
        host.wait();
    }
    host.subject.counter.there.set(ENOUGH);
    done += driver.finish(&mut host).len();
    assert_eq!(done, asked);
    assert!(host.kills.deaths > 20, "{}", host.kills.deaths);
}

/// Whatever is written anywhere: no event does more than so much, nothing panics, and the device works after a reset.
#[test]
fn hostile_drivers_get_nowhere() {
    for seed in 1..60_u64 {
        let random = &mut Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let (mut host, mut driver) = running(u64::MAX, None);
        host.board.tick.set(200_000);
        for _ in 0..200 {
            host.subject.counter.asked.set(0);
            match random.below(7) {
                0 => host.write(ECAM + random.below(0x1100), 1 << random.below(4), random.any()),
                1 => host.write(driver.common + random.below(0x40), 1 << random.below(4), random.any()),
                2 => host.write(driver.table + random.below(0x1000), 1 << random.below(4), random.any()),
                3 => drop(host.read(driver.common + random.below(0x4000), 1 << random.below(4))),
                4 => drop(host.event(Event::Doorbell { queues: random.any(), now: 0 })),
                5 => drop(driver.queues[0].ask(&host.board.ram, &room(random.below(0x1000) as u32))),
                _ => {
                    host.board.ram.disturb(random, 0x2000);
                    host.event(Event::Doorbell { queues: random.any(), now: 0 });
                    host.event(Event::Alarm(0));
                }
            }
            assert!(host.subject.counter.asked.get() <= 32 * 4 * 2, "two events of two slices");
            if random.below(20) == 0 {
                host.kill();
            }
        }
        host.board.ram.restless.set(0);
        host.again = false;
        let mut driver = started(&mut host);
        host.board.messages.take();
        assert!(driver.ask(&mut host, 0, &room(64)));
        assert_eq!(driver.finish(&mut host)[0].1.written, 64);
    }
}

/// A driver that breaks a rule is told that the device needs a reset, which mends it.
#[test]
fn a_broken_ring_needs_a_reset() {
    let (mut host, mut driver) = running(ENOUGH, None);
    driver.finish(&mut host);
    driver.queues[0].ring.offer(&host.board.ram, 0, 500, 1);
    host.write(driver.notify, 2, 0);
    assert_eq!(host.board.messages.take(), [0x50]);
    assert_eq!(host.read(driver.common + 0x14, 1), 15 | 64);
    assert_eq!(host.subject.counter.drawn.get(), 0);
    assert!(driver.start(&mut host, ACCEPTED));
    assert!(driver.ask(&mut host, 0, &room(8)));
    assert_eq!(driver.finish(&mut host)[0].1.written, 8);
}

/// The program itself, where no hypervisor is.
#[test]
fn the_program_is_an_entropy_device() {
    let mut function = Function::NEW;
    assert_eq!(function.attach(Attach::default()), Answer::default());
    let mut read = |device, offset, size| function.event(Event::Read { device, offset, size }).value;
    assert_eq!((read(0, 0, 4), read(0, 0x1_0000, 4)), (0x1044_1af4, 0xffff_ffff));
    assert_eq!(function.event(Event::Unknown), Answer::default());
}
