// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is printed and typed, sizes, kills, and drivers that break rules.

use turnstile_rig::{BlockDriver, Computer, ECAM, Random, Request};
use turnstile_service_rt::{Answer, Attach, Event, ROOM, Service};

use super::host::{ACCEPTED, Host, Typist, host, probe};
use crate::Function;
use crate::model::{RECEIVE, TRANSMIT};

const IN: usize = RECEIVE as usize;
const OUT: usize = TRANSMIT as usize;

fn running(left: Option<u64>) -> (Host, BlockDriver) {
    let mut host = host(left);
    let driver = started(&mut host);
    (host, driver)
}

fn started(host: &mut Host) -> BlockDriver {
    let mut driver = probe(host);
    driver.enable_messages(host);
    assert!(driver.start(host, ACCEPTED));
    driver
}

fn text(bytes: &[u8]) -> Request {
    Request { readable: bytes.to_vec(), readable_cuts: vec![bytes.len() as u32], ..Request::default() }
}

fn room(length: u32) -> Request {
    Request { writable: vec![length], ..Request::default() }
}

/// Lets everything that is due happen; returns what the guest has read.
fn settle(host: &mut Host, driver: &mut BlockDriver) -> Vec<u8> {
    let mut read = Vec::new();
    loop {
        host.offer();
        // Buffers for what nobody types stay with the device.
        for (queue, reply) in driver.interrupts(host) {
            if queue == IN {
                read.extend(&reply.bytes[..reply.written as usize]);
            }
        }
        if !host.wait() && !host.subject.room {
            return read;
        }
    }
}

fn size(host: &mut Host, driver: &BlockDriver) -> (u64, u64) {
    (host.read(driver.config, 2), host.read(driver.config + 2, 2))
}

#[test]
fn characters_go_both_ways() {
    let (mut host, mut driver) = running(None);
    assert_eq!(host.read(ECAM + 8, 4), 0x0780_0001, "a communication controller");
    let line = [b'x'; 80];
    assert!(driver.ask(&mut host, OUT, &text(&line)));
    settle(&mut host, &mut driver);
    assert_eq!(*host.subject.shown.text.borrow(), line, "a line, for which the driver has notified once");
    host.type_in(b"before there is a buffer");
    assert_eq!(host.subject.taken, 0);
    for length in [0, 5, 64, 64, 64, 64] {
        assert!(driver.ask(&mut host, IN, &room(length)));
    }
    assert_eq!(settle(&mut host, &mut driver), b"before there is a buffer");
    host.type_in(b"ls\r");
    assert!(host.subject.typed.is_empty(), "there is a buffer left");
    assert_eq!(settle(&mut host, &mut driver), b"ls\r");
}

#[test]
fn who_prints_without_end_has_turns() {
    let (mut host, mut driver) = running(None);
    settle(&mut host, &mut driver);
    host.board.tick.set(200_000);
    assert!(driver.ask(&mut host, OUT, &text(&[b'y'; 4000])));
    let now = host.subject.shown.text.borrow().len();
    assert!((128..=256).contains(&now), "{now} characters in an event");
    settle(&mut host, &mut driver);
    assert_eq!(host.subject.shown.text.borrow().len(), 4000);
}

#[test]
fn a_size_reaches_the_driver_and_a_new_life_begins_without_it() {
    let (mut host, mut driver) = running(None);
    settle(&mut host, &mut driver);
    assert_eq!(size(&mut host, &driver), (0, 0), "not known");
    host.resize(132, 50);
    assert_eq!(size(&mut host, &driver), (132, 50));
    host.resize(132, 50);
    assert_eq!(host.subject.told, 1, "once, as nothing has changed the second time");
    host.kill();
    assert_eq!(size(&mut host, &driver), (132, 50));
    host.type_in(b"waits");
    host.restart();
    let mut driver = started(&mut host);
    assert_eq!(size(&mut host, &driver), (0, 0), "until the hypervisor tells it");
    assert!(driver.ask(&mut host, IN, &room(64)));
    assert!(settle(&mut host, &mut driver).is_empty(), "nothing of the life before");
}

/// A life of a driver, in which the service is killed at one step. Returns whether it was.
fn killed_at(step: u64) -> bool {
    let (mut host, mut driver) = running(Some(step));
    let (mut written, mut read, typed) = (Vec::new(), Vec::new(), b"what somebody types into it\r");
    for (number, length) in [1_u8, 40, 0, 130, 16].into_iter().enumerate() {
        let line: Vec<u8> = (0..length).map(|at| b'A' + (at + number as u8) % 50).collect();
        assert!(driver.ask(&mut host, OUT, &text(&line)));
        written.extend(line);
        assert!(driver.ask(&mut host, IN, &room(3 + 4 * number as u32)));
        host.type_in(&typed[6 * number..(6 * number + 6).min(typed.len())]);
        host.resize(80, 20 + number as u16);
    }
    for _ in 0..4 {
        assert!(driver.ask(&mut host, IN, &room(8)));
    }
    read.extend(settle(&mut host, &mut driver));
    assert_eq!(*host.subject.shown.text.borrow(), written, "step {step}");
    assert_eq!(read, typed, "step {step}");
    assert_eq!(size(&mut host, &driver), (80, 24), "step {step}");
    host.kills.deaths != 0
}

#[test]
fn killed_at_any_step_it_loses_nothing_and_repeats_nothing() {
    let mut step = 0;
    while killed_at(step) {
        step += 1;
    }
    assert!(step > 500, "{step}");
}

#[test]
fn killed_again_and_again_it_goes_on() {
    let random = &mut Random(0x636f_6e73);
    let (mut host, mut driver) = running(None);
    (host.kills.most, host.kills.left) = (Some(Random(99)), Some(100));
    let (mut written, mut typed, mut read) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..400 {
        let length = random.below(300) as usize;
        let line = random.bytes(length);
        if driver.ask(&mut host, OUT, &text(&line)) {
            written.extend(line);
        }
        driver.ask(&mut host, IN, &room(random.below(20) as u32));
        let count = random.below(8) as usize;
        let keys = random.bytes(count);
        host.type_in(&keys);
        typed.extend(keys);
        if random.below(10) == 0 {
            host.kill();
        }
        for (queue, reply) in driver.interrupts(&mut host) {
            if queue == IN {
                read.extend(&reply.bytes[..reply.written as usize]);
            }
        }
        host.wait();
    }
    (host.kills.most, host.kills.left) = (None, None);
    while read.len() < typed.len() {
        read.extend(settle(&mut host, &mut driver));
        driver.ask(&mut host, IN, &room(100));
    }
    settle(&mut host, &mut driver);
    assert!(*host.subject.shown.text.borrow() == written && read == typed);
    assert!(host.kills.deaths > 20, "{}", host.kills.deaths);
}

/// Whatever is written anywhere: no event prints more than so much, nothing panics, and the device works after a reset.
#[test]
fn hostile_drivers_get_nowhere() {
    for seed in 1..60_u64 {
        let random = &mut Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let (mut host, mut driver) = running(None);
        host.board.tick.set(200_000);
        for _ in 0..200 {
            let before = host.subject.shown.text.borrow().len();
            match random.below(8) {
                0 => host.write(ECAM + random.below(0x1100), 1 << random.below(4), random.any()),
                1 => host.write(driver.common + random.below(0x40), 1 << random.below(4), random.any()),
                2 => host.write(driver.table + random.below(0x1000), 1 << random.below(4), random.any()),
                3 => host.write(driver.config + random.below(0x20), 1 << random.below(4), random.any()),
                4 => drop(host.event(Event::Doorbell { queues: random.any(), now: 0 })),
                5 => drop(driver.queues[OUT].ask(&host.board.ram, &text(&[7; 4000]))),
                6 => host.type_in(b"typed"),
                _ => {
                    host.board.ram.disturb(random, 0x2000);
                    host.event(Event::Doorbell { queues: random.any(), now: 0 });
                    host.event(Event::Alarm(0));
                }
            }
            let printed = host.subject.shown.text.borrow().len() - before;
            assert!(printed <= 4 * 128 * 2, "{printed} characters in two events of a few slices");
            host.subject.typed.truncate(100);
            if random.below(20) == 0 {
                host.kill();
            }
        }
        host.board.ram.restless.set(0);
        (host.again, host.subject.room) = (false, false);
        host.subject.typed.clear();
        let mut driver = started(&mut host);
        host.board.messages.take();
        settle(&mut host, &mut driver);
        host.subject.shown.text.borrow_mut().clear();
        assert!(driver.ask(&mut host, OUT, &text(b"it works")));
        assert!(driver.ask(&mut host, IN, &room(8)));
        host.type_in(b"again");
        assert_eq!(settle(&mut host, &mut driver), b"again");
        assert_eq!(*host.subject.shown.text.borrow(), b"it works");
    }
}

/// The program itself, where no hypervisor is.
#[test]
fn the_program_is_a_console() {
    let mut function = Function::NEW;
    assert_eq!(function.attach(Attach::default()), Answer { lines: ROOM, ..Answer::default() });
    let read = |function: &mut Function, device, offset| {
        function.event(Event::Read { device, offset, size: 4 }).value
    };
    assert_eq!(read(&mut function, 0, 0), 0x1043_1af4);
    assert_eq!(function.event(Event::Unknown), Answer::default());
}
