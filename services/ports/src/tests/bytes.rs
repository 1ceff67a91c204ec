// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is said and passed on, kills, and drivers that break rules.

use turnstile_rig::{BlockDriver, Computer, ECAM, Random};
use turnstile_service_rt::{Answer, Attach, Event, ROOM, Service};
use turnstile_virtio::config::ConsoleControl;

use super::host::{Guest, Host, NAMES, Peers, host, receive, room, text, transmit};
use crate::Function;

const OPEN: u16 = ConsoleControl::PORT_OPEN;

fn running() -> (Host, Guest) {
    let mut host = host(None);
    let guest = Guest::new(&mut host);
    (host, guest)
}

/// What was said of a port being open.
fn opened(guest: &Guest, port: u32) -> Vec<u16> {
    let of_it = guest.heard.iter().filter(|(of, event, _)| (*of, *event) == (port, OPEN));
    of_it.map(|(_, _, value)| *value).collect()
}

#[test]
fn ports_have_names_and_open_and_close() {
    let (mut host, mut guest) = running();
    assert_eq!(host.read(ECAM + 8, 4), 0x0780_0001, "a communication controller");
    assert_eq!(host.read(guest.driver.config + 4, 4), 3, "and port 0, which is not there");
    let names: Vec<_> = NAMES.iter().zip(1..).map(|(name, port)| (port, name.as_bytes().to_vec())).collect();
    assert_eq!(guest.names, names);
    assert_eq!(guest.heard, [(1, ConsoleControl::DEVICE_ADD, 0), (2, ConsoleControl::DEVICE_ADD, 0)]);
    host.open(1, 10);
    guest.settle(&mut host);
    host.close(1);
    host.open(1, 10);
    guest.settle(&mut host);
    assert_eq!((opened(&guest, 1), opened(&guest, 2)), (vec![1, 0, 1], vec![]));
}

#[test]
fn bytes_go_both_ways_as_there_is_room() {
    let (mut host, mut guest) = running();
    host.open(2, 100);
    let bytes: Vec<u8> = (0..=255).collect();
    assert!(guest.driver.ask(&mut host, transmit(2), &text(&bytes)));
    guest.settle(&mut host);
    assert_eq!(host.text(2), bytes[..100], "as much as there is room for");
    host.make_room(2, 20);
    host.make_room(2, 1000);
    guest.settle(&mut host);
    assert_eq!((host.text(2), host.text(1)), (bytes.clone(), vec![]));
    assert_eq!(guest.driver.queues[transmit(2)].in_flight(), 0);
    guest.reads = [false, true];
    host.open(1, 0);
    host.bring(1, &bytes);
    guest.settle(&mut host);
    host.bring(2, &bytes);
    guest.settle(&mut host);
    assert_eq!(guest.read[1], bytes, "a port that nobody reads stops no other");
    guest.reads[0] = true;
    guest.settle(&mut host);
    assert_eq!(guest.read[0][..bytes.len().min(guest.read[0].len())], bytes[..guest.read[0].len()]);
}

#[test]
fn what_comes_waits_for_a_program() {
    let (mut host, mut guest) = running();
    guest.say(&mut host, 1, OPEN, 0);
    guest.settle(&mut host);
    host.open(1, 10);
    host.bring(1, b"who is there?");
    guest.settle(&mut host);
    assert!(guest.read[0].is_empty());
    guest.say(&mut host, 1, OPEN, 1);
    guest.settle(&mut host);
    assert_eq!(guest.read[0], b"who is there?");
}

#[test]
fn what_is_written_to_nobody_is_gone() {
    let (mut host, mut guest) = running();
    assert!(guest.driver.ask(&mut host, transmit(1), &text(&[1; 500])));
    guest.settle(&mut host);
    assert_eq!(guest.driver.queues[transmit(1)].in_flight(), 0, "the driver gets it back");
    host.open(1, 100);
    assert!(guest.driver.ask(&mut host, transmit(1), &text(&[2; 500])));
    assert!(guest.driver.ask(&mut host, transmit(1), &text(&[3; 500])));
    guest.settle(&mut host);
    assert_eq!(host.text(1), [2; 100]);
    host.bring(1, b"lost");
    host.close(1);
    // At once, before anything else happens.
    host.open(1, 1000);
    guest.settle(&mut host);
    assert_eq!(host.text(1), [2; 100], "who comes next gets nothing of it");
    assert!(guest.driver.ask(&mut host, transmit(1), &text(b"new")));
    guest.settle(&mut host);
    assert_eq!(host.text(1)[100..], *b"new");
}

#[test]
fn who_writes_without_end_has_turns() {
    let (mut host, mut guest) = running();
    host.open(1, 1 << 14);
    guest.settle(&mut host);
    host.board.tick.set(200_000);
    assert!(guest.driver.ask(&mut host, transmit(1), &text(&[7; 4000])));
    let now = host.text(1).len();
    assert!((128..=256).contains(&now), "{now} bytes in an event");
    guest.settle(&mut host);
    assert_eq!(host.text(1).len(), 4000);
}

#[test]
fn a_new_life_begins_with_nothing() {
    let (mut host, mut guest) = running();
    guest.reads = [false; 2];
    host.open(1, 10);
    host.bring(1, &[5; 600]);
    assert!(guest.driver.ask(&mut host, transmit(1), &text(&[2; 500])));
    guest.settle(&mut host);
    host.restart();
    let mut guest = Guest::new(&mut host);
    guest.settle(&mut host);
    assert!(guest.read[0].is_empty() && host.text(1).is_empty());
    assert_eq!(opened(&guest, 1), []);
}

/// A life of a driver, in which the service is killed at one step behind the driver's start. Returns whether it was.
fn killed_at(step: u64) -> bool {
    let mut host = host(None);
    let mut guest = Guest::before_ports(&mut host);
    host.kills.left = Some(step);
    guest.find_ports(&mut host);
    let (mut written, mut brought) = ([const { Vec::new() }; 2], [const { Vec::new() }; 2]);
    host.open(1, 40);
    host.open(2, 300);
    for (number, length) in [1_u8, 40, 0, 130, 16].into_iter().enumerate() {
        for port in 1..=2 {
            let bytes: Vec<u8> = (0..length).map(|at| at + 50 * port as u8 + number as u8).collect();
            assert!(guest.driver.ask(&mut host, transmit(port), &text(&bytes)));
            written[port - 1].extend(bytes);
            let bytes = [number as u8 + 10 * port as u8; 11];
            host.bring(port, &bytes);
            brought[port - 1].extend(bytes);
        }
        host.make_room(1, 70);
        guest.turn(&mut host);
    }
    guest.settle(&mut host);
    assert_eq!([host.text(1), host.text(2)], written, "step {step}");
    assert_eq!(guest.read, brought, "step {step}");
    host.close(2);
    host.open(2, 10);
    guest.settle(&mut host);
    assert_eq!((opened(&guest, 1), opened(&guest, 2)), (vec![1], vec![1, 0, 1]), "step {step}");
    let adds = guest.heard.iter().filter(|(_, event, _)| *event == ConsoleControl::DEVICE_ADD);
    assert_eq!((adds.count(), guest.names.len()), (2, 2), "step {step}");
    host.kills.deaths != 0
}

#[test]
fn killed_at_any_step_it_loses_nothing_and_repeats_nothing() {
    let mut step = 0;
    while killed_at(step) {
        step += 1;
    }
    assert!(step > 400, "{step}");
}

#[test]
fn killed_while_the_driver_starts_it_is_there() {
    let mut step = 0;
    loop {
        let mut host = host(Some(step));
        let mut guest = Guest::new(&mut host);
        host.open(1, 10);
        host.bring(1, b"there");
        guest.settle(&mut host);
        assert_eq!((&guest.read[0][..], guest.names.len()), (&b"there"[..], 2), "step {step}");
        if host.kills.deaths == 0 {
            break;
        }
        step += 797;
    }
    assert!(step > 20_000, "{step}");
}

#[test]
fn killed_again_and_again_it_goes_on() {
    let random = &mut Random(0x706f_7274);
    let (mut host, mut guest) = running();
    (host.kills.most, host.kills.left) = (Some(Random(99)), Some(100));
    let (mut written, mut brought) = ([const { Vec::new() }; 2], [const { Vec::new() }; 2]);
    host.open(1, 100);
    host.open(2, 100);
    for _ in 0..300 {
        let port = 1 + random.below(2) as usize;
        let length = random.below(300) as usize;
        let bytes = random.bytes(length);
        if guest.driver.ask(&mut host, transmit(port), &text(&bytes)) {
            written[port - 1].extend(bytes);
        }
        let count = random.below(30) as usize;
        let bytes = random.bytes(count);
        host.bring(port, &bytes);
        brought[port - 1].extend(bytes);
        guest.reads[port - 1] = random.below(3) != 0;
        host.make_room(port, random.below(400));
        if random.below(10) == 0 {
            host.kill();
        }
        guest.turn(&mut host);
        host.wait();
    }
    (host.kills.most, host.kills.left) = (None, None);
    guest.reads = [true; 2];
    (1..=2).for_each(|port| host.make_room(port, 1 << 20));
    guest.settle(&mut host);
    assert!([host.text(1), host.text(2)] == written && guest.read == brought);
    assert!(host.kills.deaths > 20, "{}", host.kills.deaths);
}

/// Whatever is written and said: no event passes on more than so much, nothing panics, and the device works after a reset.
#[test]
fn hostile_drivers_get_nowhere() {
    for seed in 1..40_u64 {
        let random = &mut Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let (mut host, mut guest) = running();
        host.board.tick.set(200_000);
        host.open(1, 1 << 20);
        for _ in 0..200 {
            let before = host.text(1).len();
            let driver = &mut guest.driver;
            match random.below(9) {
                0 => host.write(ECAM + random.below(0x1100), 1 << random.below(4), random.any()),
                1 => host.write(driver.common + random.below(0x40), 1 << random.below(4), random.any()),
                2 => host.write(driver.table + random.below(0x1000), 1 << random.below(4), random.any()),
                3 => host.write(driver.config + random.below(0x20), 1 << random.below(4), random.any()),
                4 => drop(host.event(Event::Doorbell { queues: random.any(), now: 0 })),
                5 => drop(driver.queues[transmit(1)].ask(&host.board.ram, &text(&[7; 4000]))),
                6 => host.bring(1 + random.below(2) as usize, b"brought"),
                7 => say_anything(&mut host, driver, random),
                _ => {
                    host.board.ram.disturb(random, 0x2000);
                    host.event(Event::Doorbell { queues: random.any(), now: 0 });
                    host.event(Event::Alarm(0));
                }
            }
            let passed = host.text(1).len() - before;
            assert!(passed <= 4 * 128 * 2, "{passed} bytes in two events of a few slices");
            if random.below(20) == 0 {
                host.kill();
            }
        }
        host.board.ram.restless.set(0);
        host.restart();
        let mut guest = Guest::before_ports(&mut host);
        host.board.messages.take();
        guest.find_ports(&mut host);
        host.open(1, 100);
        assert!(guest.driver.ask(&mut host, transmit(1), &text(b"it works")));
        host.bring(1, b"again");
        guest.settle(&mut host);
        assert_eq!((host.text(1), &guest.read[0]), (b"it works".to_vec(), &b"again".to_vec()));
    }
}

/// Messages that make no sense, of ports that are not there, and again and again.
fn say_anything(host: &mut Host, driver: &mut BlockDriver, random: &mut Random) {
    for _ in 0..8 {
        let port = if random.below(2) == 0 { random.below(20) as u32 } else { random.any() as u32 };
        let (event, value) = (random.below(10) as u16, random.below(3) as u16);
        let message = ConsoleControl { port, event, value }.to_bytes();
        let length = random.below(12) as usize;
        let _ = driver.queues[3].ask(&host.board.ram, &text(message.get(..length).unwrap_or(&message)));
        let _ = driver.queues[receive(1)].ask(&host.board.ram, &room(random.below(10) as u32));
    }
    host.event(Event::Doorbell { queues: 1 << 3, now: 0 });
}

#[test]
fn events_of_ports_that_are_not_there_are_ignored() {
    let (mut host, _guest) = running();
    let typed = turnstile_service_rt::Characters { count: 3, words: [7, 0] };
    for device in [0, 3, 14, 64, u64::MAX] {
        assert_eq!(host.event(Event::Input { device, typed, position: 0, size: 0 }), 0);
        let typed = Default::default();
        assert_eq!(host.event(Event::Input { device, typed, position: 0, size: 0 }), 0);
    }
}

/// The program itself, where no hypervisor is.
#[test]
fn the_program_is_ports() {
    let mut function = Function::NEW;
    assert_eq!(function.attach(Attach::default()), Answer { lines: ROOM, ..Answer::default() });
    let read = |function: &mut Function, device, offset| {
        function.event(Event::Read { device, offset, size: 4 }).value
    };
    assert_eq!(read(&mut function, 0, 0), 0x1043_1af4);
    assert_eq!(function.event(Event::Unknown), Answer::default());
}
