// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Several pairs of queues: where commands are, which pair a packet comes by, whose turn it is.

use turnstile_rig::Request;
use turnstile_virtio::config::{Network, NetworkHeader};

use super::driver::{ACCEPTED, COMMON, CONFIG, Driver, STATUS, packet, run};
use super::host::{Host, VMS, mac, pairs};

/// The command for a number of pairs.
const MQ: (u8, u8) = (4, 0);
/// All doorbells of the first member, and of all members.
const ALL: u64 = 0xf;
const EVERYBODY: u64 = 0xfff;

/// UDP over IPv4 with a port of the one side.
fn datagram(from: usize, to: usize, ports: [u8; 2]) -> Vec<u8> {
    let head = [&mac(to)[..], &mac(from), &[8, 0, 0x45], &[0; 8], &[17, 0, 0]].concat();
    let addresses = [[10, 0, 0, from as u8], [10, 0, 0, to as u8]].concat();
    [head, addresses, vec![0, ports[0], 0, ports[1]], vec![7; 30]].concat()
}

/// Two members with four pairs and one with one; the drivers of the first two use so many.
fn some(count: u8) -> (Host, [Driver; VMS]) {
    let mut host = Host::new([(pairs(4), 0), (pairs(4), 0), (0, 0)], None);
    let mut drivers = [
        Driver::running_pairs(&mut host, 0, 4),
        Driver::running_pairs(&mut host, 1, 4),
        Driver::running(&mut host, 2),
    ];
    for driver in &mut drivers[..2] {
        driver.command(&mut host, MQ.0, MQ.1, &[count, 0]);
    }
    run(&mut host, &mut drivers);
    assert_eq!((&drivers[0].done[..], &drivers[1].done[..]), (&[true][..], &[true][..]));
    (host, drivers)
}

/// By which queue one packet has come.
fn came_by(driver: &mut Driver) -> usize {
    let number = driver.came.iter().position(|count| *count != 0).expect("a packet has come");
    assert_eq!(driver.came.iter().sum::<usize>(), 1);
    driver.came.fill(0);
    number
}

#[test]
fn a_driver_finds_as_many_queues_as_the_port_has() {
    let mut host = Host::new([(pairs(4), 0), (pairs(2), 0), (0, 0)], None);
    for (member, count) in [4, 2, 1].into_iter().enumerate() {
        Driver::new(&mut host, member);
        host.write(member, COMMON, 4, 0);
        let offers = host.read(member, COMMON + 4, 4) & Network::MQ.bits() != 0;
        assert_eq!((offers, host.read(member, CONFIG + 8, 2)), (count > 1, count));
        assert_eq!(host.read(member, COMMON + 0x12, 2), 2 * count + 1);
        let mut sizes = vec![];
        for number in 0..10 {
            host.write(member, COMMON + 0x16, 2, number);
            sizes.push(host.read(member, COMMON + 0x18, 2));
            let place = host.read(member, COMMON + 0x1e, 2);
            assert_eq!(place, if number <= 2 * count { number % 4 } else { 0 });
        }
        let wanted = (0..10).map(|number| match 2 * count {
            commands if number < commands => 256,
            commands if number == commands => 64,
            _ => 0,
        });
        assert!(sizes.iter().copied().eq(wanted), "{sizes:?}");
    }
}

/// A driver that does not know of pairs has the queue of commands behind the first one.
#[test]
fn without_mq_there_is_one_pair() {
    let mut host = Host::new([(pairs(4), 0); VMS], None);
    let mut drivers = Driver::all(&mut host);
    drivers[0].command(&mut host, 0, 1, &[1]);
    drivers[0].command(&mut host, MQ.0, MQ.1, &[2, 0]);
    run(&mut host, &mut drivers);
    assert_eq!(drivers[0].done, [true, false]);
    for (from, to) in [(0, 1), (1, 0)] {
        assert!(drivers[from].send(&mut host, &packet(from, Some(to), 1, 60)));
        run(&mut host, &mut drivers);
        assert_eq!(came_by(&mut drivers[to]), 0);
    }
}

#[test]
fn packets_come_by_the_pair_that_has_sent_their_flow() {
    let (mut host, mut drivers) = some(4);
    for round in 0..2 {
        for pair in 0..4 {
            let by = (pair + round) % 4;
            assert!(drivers[0].send_by(&mut host, by, &datagram(0, 1, [pair as u8, 80])));
            run(&mut host, &mut drivers);
            let number = came_by(&mut drivers[1]);
            assert!(drivers[1].send_by(&mut host, number / 2, &datagram(1, 0, [80, pair as u8])));
            run(&mut host, &mut drivers);
            assert_eq!(came_by(&mut drivers[0]), 2 * by, "round {round}");
        }
    }
    // From who has one pair, and to it, which had what was for an unknown address.
    drivers[2].came.fill(0);
    assert!(drivers[0].send_by(&mut host, 3, &datagram(0, 2, [1, 2])));
    run(&mut host, &mut drivers);
    assert_eq!(came_by(&mut drivers[2]), 0);
    assert!(drivers[2].send(&mut host, &datagram(2, 0, [2, 1])));
    run(&mut host, &mut drivers);
    assert_eq!(came_by(&mut drivers[0]), 6);
}

/// So many flows from the second member to the first one. Returns how many packets have come by each of its pairs.
fn spread(host: &mut Host, drivers: &mut [Driver]) -> Vec<usize> {
    drivers[0].came.fill(0);
    for port in 0..32 {
        assert!(drivers[1].send_by(host, usize::from(port) % 4, &datagram(1, 0, [port, 9])));
        run(host, drivers);
    }
    drivers[0].came.chunks(2).map(|queues| queues[0]).take(4).collect()
}

#[test]
fn only_pairs_in_use_receive_and_a_kill_changes_nothing_of_it() {
    let (mut host, mut drivers) = some(2);
    for _ in 0..2 {
        let came = spread(&mut host, &mut drivers);
        assert!(came[0] > 0 && came[1] > 0 && came[0] + came[1] == 32, "{came:?}");
        host.kill();
    }
    for (wrong, right) in [([0, 0], false), ([5, 0], false), ([0, 1], false), ([4, 0], true)] {
        drivers[0].done.clear();
        drivers[0].command(&mut host, MQ.0, MQ.1, &wrong);
        run(&mut host, &mut drivers);
        assert_eq!(drivers[0].done, [right], "{wrong:?}");
    }
    host.kill();
    assert!(spread(&mut host, &mut drivers).iter().all(|count| *count > 0));
    // After a reset there is one again.
    assert!(drivers[0].start(&mut host, ACCEPTED | Network::MQ));
    drivers[0].refill(&mut host, 8);
    assert_eq!(spread(&mut host, &mut drivers), [32, 0, 0, 0]);
    host.kill();
    assert_eq!(spread(&mut host, &mut drivers), [32, 0, 0, 0]);
}

/// What a pair whose queue was reset would receive others do.
#[test]
fn a_pair_that_is_not_set_up_receives_nothing() {
    let (mut host, mut drivers) = some(4);
    for number in [0, 4] {
        host.write(0, COMMON + 0x16, 2, number);
        host.write(0, COMMON + 0x3a, 2, 1);
    }
    let came = spread(&mut host, &mut drivers);
    assert!(came[1] > 0 && came[3] > 0 && came[1] + came[3] == 32, "{came:?}");
    assert_eq!(host.read(0, STATUS, 1), 15);
}

/// Offers a packet without a word to the device.
fn put(host: &Host, driver: &mut Driver, pair: usize, packet: &[u8]) {
    let readable = [&NetworkHeader::default().to_bytes(), packet].concat();
    let request = Request { readable_cuts: vec![readable.len() as u32], readable, ..Request::default() };
    let ram = &host.board.rams[driver.member];
    driver.queues[2 * pair + 1].ask(ram, &request).unwrap();
}

#[test]
fn many_pairs_have_no_more_turns_than_one() {
    let mut host = Host::new([(pairs(4), 0), (0, 0), (0, 0)], None);
    let mut drivers = [
        Driver::running_pairs(&mut host, 0, 4),
        Driver::running(&mut host, 1),
        Driver::running(&mut host, 2),
    ];
    let [many, one, _] = &mut drivers;
    for pair in 0..4 {
        put(&host, many, pair, &packet(0, Some(2), pair as u32, 60));
        put(&host, many, pair, &packet(0, Some(2), pair as u32, 60));
    }
    put(&host, one, 0, &packet(1, Some(2), 9, 60));
    host.ring(EVERYBODY);
    run(&mut host, &mut drivers);
    let from_one = drivers[2].got.iter().position(|bytes| bytes[6..12] == mac(1));
    assert_eq!(drivers[2].got.len(), 9);
    assert!(from_one.is_some_and(|at| at <= 2), "behind the turn of one pair: {from_one:?}");
}

/// A pair whose receiver has no buffers does not hold up the others, and each goes on when its receiver has some.
#[test]
fn a_pair_waits_alone() {
    for first in [1, 2] {
        let mut host = Host::new([(pairs(4), 0), (0, 0), (0, 0)], None);
        let mut many = Driver::running_pairs(&mut host, 0, 4);
        let others = [1, 2].map(|member| {
            let mut driver = Driver::new(&mut host, member);
            assert!(driver.start(&mut host, ACCEPTED));
            driver
        });
        // Who has sent nothing is not known.
        let mut others = others;
        for driver in &mut others {
            assert!(driver.send(&mut host, &packet(driver.member, Some(0), 0, 60)));
        }
        for (pair, to) in [(0, 1), (1, 2), (2, 1), (3, 0)] {
            put(&host, &mut many, pair, &packet(0, Some(to), pair as u32, 60));
        }
        host.ring(ALL);
        while std::mem::take(&mut host.again) {
            host.again = true;
            host.alarm();
        }
        many.interrupts(&mut host);
        assert_eq!(many.sent, 1, "the last one has gone nowhere");
        let until = host.board.alarm.get();
        assert!(until != u64::MAX, "the others wait");
        for member in [first, 3 - first] {
            others[member - 1].refill(&mut host, 16);
            while std::mem::take(&mut host.again) {
                host.again = true;
                host.alarm();
            }
            let driver = &mut others[member - 1];
            driver.interrupts(&mut host);
            let mut numbers: Vec<u8> = driver.got.iter().map(|bytes| bytes[14]).collect();
            // Each pair has an order of its own.
            numbers.sort_unstable();
            assert_eq!(numbers, if member == 1 { vec![0, 2] } else { vec![1] });
        }
        many.interrupts(&mut host);
        assert_eq!(many.sent, 4);
        assert!(host.board.clock.get() < until, "nobody has waited for the time");
    }
}

/// The driver has been told that so many pairs receive: that holds, whenever the service is killed.
#[test]
fn killed_at_any_step_of_a_command_it_knows_how_many_pairs_receive() {
    for step in 0.. {
        let mut host = Host::new([(pairs(4), 0); VMS], None);
        let mut drivers = [0, 1].map(|member| Driver::running_pairs(&mut host, member, 4));
        host.kills.left = Some(step);
        drivers[0].command(&mut host, MQ.0, MQ.1, &[4, 0]);
        run(&mut host, &mut drivers);
        host.kills.left = None;
        let is_last = host.kills.deaths == 0;
        assert_eq!(drivers[0].done, [true], "step {step}");
        host.kill();
        assert!(spread(&mut host, &mut drivers).iter().all(|count| *count > 0), "step {step}");
        if is_last {
            assert!(step > 50, "{step}");
            break;
        }
    }
}

/// A ring that breaks a rule is its own member's, whichever queue it is.
#[test]
fn a_broken_ring_of_any_pair_needs_a_reset() {
    for number in 0..9 {
        let (mut host, mut drivers) = some(4);
        assert!(drivers[0].start(&mut host, ACCEPTED | Network::MQ));
        if number < 8 {
            drivers[0].command(&mut host, MQ.0, MQ.1, &[4, 0]);
        }
        let [bad, others @ ..] = &mut drivers;
        bad.queues[number].ring.offer(&host.board.rams[0], 0, 500, 1);
        bad.ring(&mut host, number);
        for port in 0..32 {
            assert!(others[0].send_by(&mut host, 1, &datagram(1, 0, [port, 9])));
            run(&mut host, others);
        }
        assert_eq!(host.read(0, STATUS, 1), 15 | 64, "queue {number}");
        host.kill();
        assert_eq!(host.read(0, STATUS, 1), 15 | 64, "queue {number}");
        others[1].got.clear();
        assert!(others[0].send_by(&mut host, 3, &packet(1, Some(2), 4, 46)));
        run(&mut host, others);
        assert_eq!(others[1].got, [packet(1, Some(2), 4, 46)]);
    }
}
