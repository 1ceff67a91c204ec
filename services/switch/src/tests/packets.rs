// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Who gets which packets.

use turnstile_service_rt::{Answer, Attach, Event, Service};
use turnstile_virtio::features::Features;

use super::driver::{ACCEPTED, CONFIG, Driver, STATUS, packet, run};
use super::host::{Host, VMS, mac, settings};
use crate::Program;

const GUARD: u64 = 1 << 48;
const ISOLATED: u64 = 1 << 49;

fn plain() -> (Host, [Driver; VMS]) {
    let mut host = Host::new([(0, 0); VMS], None);
    let drivers = Driver::all(&mut host);
    (host, drivers)
}

/// What each has got since then.
fn got(drivers: &mut [Driver; VMS]) -> [Vec<Vec<u8>>; VMS] {
    drivers.each_mut().map(|driver| std::mem::take(&mut driver.got))
}

#[test]
fn packets_go_to_all_and_then_to_one() {
    let (mut host, mut drivers) = plain();
    let first = packet(0, Some(1), 1, 100);
    assert!(drivers[0].send(&mut host, &first));
    run(&mut host, &mut drivers);
    assert_eq!(got(&mut drivers), [vec![], vec![first.clone()], vec![first]], "nobody knows where 1 is");
    let long = packet(1, Some(0), 2, 3000);
    assert!(drivers[1].send(&mut host, &long));
    run(&mut host, &mut drivers);
    assert!(got(&mut drivers) == [vec![long], vec![], vec![]]);
    let all = packet(2, None, 3, 46);
    assert!(drivers[2].send(&mut host, &all));
    run(&mut host, &mut drivers);
    assert_eq!(got(&mut drivers), [vec![all.clone()], vec![all], vec![]]);
    assert!(drivers.iter().all(|driver| driver.sent == 1), "their buffers are theirs again");
}

#[test]
fn a_driver_finds_a_network_device() {
    let mut host = Host::new([(0, 0); VMS], None);
    let mut driver = Driver::new(&mut host, 2);
    let address: Vec<_> = (0..6).map(|at| host.read(2, CONFIG + at, 1) as u8).collect();
    assert_eq!(
        (address, host.read(2, CONFIG + 6, 2)),
        (mac(2).to_vec(), 1),
        "its address, and its link is up"
    );
    assert!(!driver.start(&mut host, ACCEPTED | Features::RING_PACKED));
    assert!(driver.start(&mut host, ACCEPTED));
}

#[test]
fn who_is_guarded_has_one_address_for_itself() {
    let mut host = Host::new([(GUARD, 0), (0, 0), (0, 0)], None);
    let mut drivers = Driver::all(&mut host);
    for (from, lie) in [(0, 1), (1, 0), (0, 0)] {
        assert!(drivers[from].send(&mut host, &packet(lie, None, 1, 46)));
        run(&mut host, &mut drivers);
        let arrived = got(&mut drivers).iter().map(Vec::len).sum::<usize>();
        assert_eq!(arrived, if from == lie { 2 } else { 0 }, "{from} says that it is {lie}");
    }
}

#[test]
fn who_is_isolated_reaches_those_who_are_not() {
    let mut host = Host::new([(ISOLATED, 0), (0, 0), (ISOLATED, 0)], None);
    let mut drivers = Driver::all(&mut host);
    for (from, expected) in [(0, [0, 1, 0]), (1, [1, 0, 1]), (2, [0, 1, 0])] {
        assert!(drivers[from].send(&mut host, &packet(from, None, 1, 46)));
        run(&mut host, &mut drivers);
        assert_eq!(got(&mut drivers).map(|got| got.len()), expected);
    }
}

#[test]
fn a_driver_says_what_it_wants_to_receive() {
    let (mut host, mut drivers) = plain();
    let commands: [(u8, u8, &[u8], bool); 4] =
        [(0, 0, &[0], true), (0, 5, &[1], true), (9, 9, &[1], false), (1, 1, &[2, 0, 0, 0, 0, 9], false)];
    for (class, command, data, _) in commands {
        drivers[1].command(&mut host, class, command, data);
        run(&mut host, &mut drivers);
    }
    assert_eq!(drivers[1].done, commands.map(|command| command.3));
    for to in [None, Some(2), Some(1)] {
        assert!(drivers[0].send(&mut host, &packet(0, to, 1, 46)));
    }
    run(&mut host, &mut drivers);
    assert_eq!(got(&mut drivers).map(|got| got.len()), [0, 1, 3], "no broadcast, nothing for others");
    // Whoever begins anew has forgotten that, and loses nothing.
    host.kill();
    assert!(drivers[0].send(&mut host, &packet(0, None, 1, 46)));
    run(&mut host, &mut drivers);
    assert_eq!(got(&mut drivers).map(|got| got.len()), [0, 1, 1]);
    drivers[1].command(&mut host, 0, 0, &[0]);
    run(&mut host, &mut drivers);
    assert_eq!(drivers[1].done.last(), Some(&true));
}

/// The others go on without it; its device begins as after a reset, whatever the service knew of it.
#[test]
fn a_member_stops_and_starts() {
    let (mut host, mut drivers) = plain();
    assert!(drivers[1].send(&mut host, &packet(1, None, 1, 46)));
    run(&mut host, &mut drivers);
    got(&mut drivers);
    let before = host.board.rams[1].get(turnstile_rig::Ram::BASE, super::host::MEMORY);
    for told in [true, false] {
        if told {
            host.detach(1);
            assert_eq!(host.read(1, super::host::ECAM, 4), u64::MAX, "nothing is there");
        } else {
            host.attach(1, [settings(1, 0), 0]);
            assert_eq!(host.read(1, STATUS, 1), 0xff, "its BARs are not decoded");
        }
        for to in [Some(1), Some(2), None] {
            assert!(drivers[0].send(&mut host, &packet(0, to, 2, 46)));
        }
        while host.alarm() {}
        host.kill();
        while host.alarm() {}
        drivers[2].interrupts(&mut host);
        assert_eq!(std::mem::take(&mut drivers[2].got).len(), 3, "nobody knows where 1 is");
        drivers[2].refill(&mut host, 16);
    }
    assert!(host.board.rams[1].get(turnstile_rig::Ram::BASE, super::host::MEMORY) == before);
    host.board.messages.borrow_mut()[1].clear();
    drivers[1] = Driver::running(&mut host, 1);
    assert!(drivers[0].send(&mut host, &packet(0, Some(1), 3, 46)));
    run(&mut host, &mut drivers);
    assert_eq!(got(&mut drivers)[1].len(), 1);
}

/// The program itself, where no hypervisor is: its members have no memory.
#[test]
fn without_anything_it_is_eight_idle_functions() {
    let mut program = Program::NEW;
    let read = Event::Read { device: 7 << 8, offset: 0, size: 4 };
    assert_eq!(program.event(read).value, u64::MAX, "before it is attached");
    let attach = Attach { member: 7, ..Attach::default() };
    assert_eq!(program.attach(attach), Answer::default());
    assert_eq!(program.event(read).value, 0x1041_1af4);
    assert_eq!(program.event(Event::Doorbell { queues: u64::MAX, now: 0 }), Answer::default());
    assert_eq!(program.attach(Attach { member: 8, ..attach }), Answer::default());
    assert_eq!(program.event(Event::Read { device: 8 << 8, offset: 0, size: 4 }).value, u64::MAX);
    program.detach(7);
    program.detach(u64::MAX);
    assert_eq!(program.event(read).value, u64::MAX);
}
