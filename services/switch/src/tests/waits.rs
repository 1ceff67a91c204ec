// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Who waits for whom, and how long.

use turnstile_switch::patience::PATIENCE;

use super::driver::{ACCEPTED, Driver, packet, run};
use super::host::{Host, VMS};

/// A receiver without buffers, of which the switch knows where it is.
fn without_buffers() -> (Host, [Driver; VMS]) {
    let mut host = Host::new([(0, 0); VMS], None);
    let mut drivers = Driver::all(&mut host);
    assert!(drivers[1].start(&mut host, ACCEPTED));
    assert!(drivers[1].send(&mut host, &packet(1, None, 0, 46)));
    while host.alarm() {}
    drivers.iter_mut().for_each(|driver| driver.interrupts(&mut host));
    (host, drivers)
}

#[test]
fn a_packet_waits_for_buffers() {
    let (mut host, mut drivers) = without_buffers();
    // Two buffers for this one.
    let long = packet(0, Some(1), 1, 2000);
    assert!(drivers[0].send(&mut host, &long));
    assert!(drivers[2].send(&mut host, &packet(2, Some(0), 2, 46)), "others go on");
    assert!(!host.again, "it does not spin");
    drivers[0].interrupts(&mut host);
    assert_eq!((drivers[0].got.len(), drivers[0].sent), (2, 0));
    let alarm = host.board.alarm.get();
    assert!((PATIENCE..2 * PATIENCE).contains(&alarm), "{alarm}");
    for left in [1, 0] {
        drivers[1].refill(&mut host, 1);
        drivers[1].interrupts(&mut host);
        assert_eq!(drivers[1].got.len(), 1 - left, "the driver rings for each of them");
    }
    assert!(drivers[1].got == [long] && host.board.alarm.get() == u64::MAX);
    drivers[0].interrupts(&mut host);
    assert_eq!(drivers[0].sent, 1);
}

#[test]
fn patience_has_an_end() {
    let (mut host, mut drivers) = without_buffers();
    assert!(drivers[0].send(&mut host, &packet(0, Some(1), 1, 46)));
    assert!(!host.alarm());
    host.board.clock.set(host.board.alarm.get());
    assert!(host.alarm());
    drivers[0].interrupts(&mut host);
    assert_eq!((drivers[0].sent, host.board.alarm.get()), (1, u64::MAX), "it is lost");
}

/// Its buffers of before are of no use, and those of after are notified of.
#[test]
fn a_receiver_that_resets_lets_its_senders_go() {
    let (mut host, mut drivers) = without_buffers();
    assert!(drivers[0].send(&mut host, &packet(0, Some(1), 1, 46)));
    drivers[1].start(&mut host, ACCEPTED);
    run(&mut host, &mut drivers[..1]);
    assert_eq!(drivers[0].sent, 1, "who is not ready gets nothing");
    assert!(drivers[0].send(&mut host, &packet(0, Some(1), 2, 46)));
    drivers[1].refill(&mut host, 1);
    drivers[1].interrupts(&mut host);
    assert_eq!(drivers[1].got.len(), 1);
}

#[test]
fn a_rate_holds() {
    // A megabyte in a second.
    let mut host = Host::new([(0, 8_000_000), (0, 0), (0, 0)], None);
    let mut drivers = Driver::all(&mut host);
    let begin = host.board.clock.get();
    let (mut sent, mut bytes) = (0, 0);
    while sent < 300 {
        let packet = packet(0, None, sent, 1000);
        while drivers[0].send(&mut host, &packet) {
            sent += 1;
            bytes += packet.len() as u64;
        }
        run(&mut host, &mut drivers);
        let alarm = host.board.alarm.get();
        if alarm != u64::MAX {
            host.board.clock.set(alarm);
        }
    }
    let took = host.board.clock.get() - begin;
    let expected = (bytes - 0x1_0000 - 16 * 1100) * 1000;
    assert!(took >= expected && took < bytes * 1000, "{took} for {bytes} bytes");
}

#[test]
fn what_is_long_is_done_in_pieces() {
    let mut host = Host::new([(0, 0); VMS], None);
    let mut drivers = Driver::all(&mut host);
    // As on a slow machine: each turn takes long.
    host.board.tick.set(200_000);
    for from in [0, 2] {
        for number in 0..4 {
            let (_, notify) = ask(&mut host, &mut drivers[from], &packet(from, None, number, 46));
            assert!(notify || number > 0);
        }
    }
    host.ring(0x202);
    assert!(host.again, "one of both has had its turn");
    run(&mut host, &mut drivers);
    assert_eq!(drivers.each_ref().map(|driver| driver.got.len()), [4, 8, 4]);
}

fn ask(host: &mut Host, driver: &mut Driver, packet: &[u8]) -> (usize, bool) {
    let readable = [&[0; 12], packet].concat();
    let readable_cuts = vec![readable.len() as u32];
    let request = turnstile_rig::Request { readable, readable_cuts, writable: vec![], indirect: true };
    driver.queues[1].ask(&host.board.rams[driver.member], &request).unwrap()
}

#[test]
fn a_receiver_that_stops_lets_its_senders_go() {
    let (mut host, mut drivers) = without_buffers();
    assert!(drivers[0].send(&mut host, &packet(0, Some(1), 1, 46)));
    assert!(!host.alarm(), "it waits");
    host.detach(1);
    while host.alarm() {}
    drivers[0].interrupts(&mut host);
    assert_eq!((drivers[0].sent, host.board.alarm.get()), (1, u64::MAX));
}
