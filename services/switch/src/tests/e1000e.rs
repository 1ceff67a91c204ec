// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The other card behind the switch: what differs from the one of virtio.

use turnstile_rig::{E1000e, Lie};
use turnstile_service_rt::UNDRIVEN;

use super::driver::{Driver, packet, run};
use super::host::{Host, VMS};
use crate::members::MEMBERS;
use crate::uplink::BUFFERS;

/// Nobody among the members.
const FAR: usize = 100;
const MILLISECOND: u64 = 1_000_000;

fn linked(card: E1000e) -> (Host, [Driver; VMS]) {
    let mut host = Host::with_cards([(0, 0); VMS], None, (None, Some(card)));
    let drivers = Driver::all(&mut host);
    (host, drivers)
}

fn card(host: &Host) -> &E1000e {
    host.board.intel.as_ref().unwrap()
}

fn got(drivers: &mut [Driver; VMS]) -> [usize; VMS] {
    drivers.each_mut().map(|driver| std::mem::take(&mut driver.got).len())
}

#[test]
fn packets_go_out_and_come_in() {
    for by_messages in [true, false] {
        let (mut host, mut drivers) = linked(E1000e::new(by_messages));
        for number in 0..3 * BUFFERS as u32 {
            let all = packet(0, None, number, 100);
            assert!(drivers[0].send(&mut host, &all));
            run(&mut host, &mut drivers);
            assert_eq!((host.board.wire(), got(&mut drivers)), (vec![all], [0, 1, 1]), "to all");
            let answer = packet(FAR, Some(0), number, 1500);
            assert!(host.board.arrive(&answer), "{number}: its buffers are the card's again");
            run(&mut host, &mut drivers);
            assert_eq!(drivers[0].got, [answer]);
            assert_eq!(got(&mut drivers), [1, 0, 0]);
        }
        let mut arrived = 0;
        while host.board.arrive(&packet(FAR, None, arrived, 60)) {
            arrived += 1;
        }
        assert_eq!(arrived as usize, BUFFERS - 1, "one descriptor of a ring is never used");
        run(&mut host, &mut drivers);
        assert_eq!((host.board.log.borrow().as_str(), card(&host).strays.get()), ("", 0));
    }
}

/// The card sends as fast as it can, and has all packets in their order; who sends waits for it.
#[test]
fn a_card_that_sends_nothing_is_waited_for() {
    let (mut host, mut drivers) = linked(E1000e::new(true));
    assert!(host.board.arrive(&packet(FAR, None, 0, 60)));
    run(&mut host, &mut drivers);
    card(&host).holds.set(true);
    let mut sent = 0;
    while drivers[0].send(&mut host, &packet(0, Some(FAR), sent, 60)) {
        sent += 1;
        run(&mut host, &mut drivers);
        assert!(sent < 1000);
    }
    assert!(sent as usize > BUFFERS, "{sent}");
    card(&host).holds.set(false);
    card(&host).run(&host.board.rams[MEMBERS]);
    run(&mut host, &mut drivers);
    let expected: Vec<_> = (0..sent).map(|number| packet(0, Some(FAR), number, 60)).collect();
    assert!(host.board.wire() == expected);
    assert_eq!((drivers[0].sent, host.board.alarm.get()), (sent as usize, u64::MAX));
}

/// Members go on, and what they have sent goes out then.
#[test]
fn a_card_that_loads_its_nvm_is_waited_for_by_alarms() {
    for by_messages in [true, false] {
        let new = E1000e::new(by_messages);
        new.loads.set(20 * MILLISECOND);
        let (mut host, mut drivers) = linked(new);
        assert!(host.board.clock.get() < 5 * MILLISECOND, "{}", host.board.clock.get());
        let all = packet(0, None, 1, 100);
        assert!(drivers[0].send(&mut host, &all));
        run(&mut host, &mut drivers);
        assert_eq!((host.board.wire(), got(&mut drivers)), (vec![], [0, 1, 1]));
        for _ in 0..30 {
            let alarm = host.board.alarm.get();
            if alarm != u64::MAX {
                host.board.clock.update(|clock| clock.max(alarm));
            }
            run(&mut host, &mut drivers);
        }
        assert_eq!((host.board.wire(), host.board.alarm.get()), (vec![all], u64::MAX));
        assert!(host.board.arrive(&packet(FAR, Some(0), 2, 60)));
        run(&mut host, &mut drivers);
        assert_eq!((got(&mut drivers), card(&host).strays.get()), ([1, 0, 0], 0));
    }
}

#[test]
fn a_card_that_never_loads_its_nvm_is_reported() {
    let new = E1000e::new(true);
    new.loads.set(u64::MAX / 2);
    let (mut host, mut drivers) = linked(new);
    for _ in 0..100 {
        let alarm = host.board.alarm.get();
        host.board.clock.update(|clock| if alarm == u64::MAX { clock } else { clock.max(alarm) });
        run(&mut host, &mut drivers);
    }
    assert_eq!(*host.board.log.borrow(), "no uplink: it does not end its reset\n");
    assert_eq!((host.board.alarm.get(), host.stray()), (u64::MAX, UNDRIVEN));
}

/// Whatever the card says of a packet, no buffer is lost, and the members hear of no other.
#[test]
fn what_is_no_whole_packet_goes_nowhere() {
    let (mut host, mut drivers) = linked(E1000e::new(false));
    let good = packet(FAR, None, 1, 60);
    let part = Lie { goes_on: true, ..Lie::default() };
    let bad = Lie { errors: 1, ..Lie::default() };
    let short = Lie { length: Some(13), ..Lie::default() };
    let long = Lie { length: Some(1519), ..Lie::default() };
    for lie in [part, Lie::default(), bad, short, long].repeat(BUFFERS) {
        assert!(card(&host).receive_as(&host.board.rams[MEMBERS], &good, lie));
        run(&mut host, &mut drivers);
        assert_eq!(got(&mut drivers), [0; VMS], "{lie:?}");
    }
    assert!(host.board.arrive(&good));
    run(&mut host, &mut drivers);
    assert_eq!((got(&mut drivers), host.board.log.borrow().as_str()), ([1; VMS], ""));
    let beyond = Lie { length: Some(2037), ..Lie::default() };
    assert!(card(&host).receive_as(&host.board.rams[MEMBERS], &good, beyond));
    run(&mut host, &mut drivers);
    assert_eq!(*host.board.log.borrow(), "no uplink: it has broken a rule of its queues\n");
    assert!(!card(&host).runs());
}

#[test]
fn killed_at_any_step_it_begins_with_the_card_again() {
    let mut step = 0;
    loop {
        let cards = (None, Some(E1000e::new(step % 2 == 0)));
        let mut host = Host::with_cards([(0, 0); VMS], Some(step), cards);
        let mut drivers = Driver::all(&mut host);
        for number in 0..3 {
            assert!(drivers[0].send(&mut host, &packet(0, None, number, 60)));
            host.board.arrive(&packet(FAR, None, 100 + number, 60));
        }
        run(&mut host, &mut drivers);
        let was_killed = host.kills.deaths != 0;
        // It works whatever was.
        host.kills.left = None;
        assert_eq!(*host.board.log.borrow(), "", "step {step}");
        assert!(drivers[0].send(&mut host, &packet(0, None, 9, 60)));
        assert!(host.board.arrive(&packet(FAR, None, 9, 60)), "step {step}");
        run(&mut host, &mut drivers);
        assert!(host.board.wire().contains(&packet(0, None, 9, 60)), "step {step}");
        assert!(drivers[1].got.contains(&packet(FAR, None, 9, 60)), "step {step}");
        if !was_killed {
            break;
        }
        step += if step < 100 { 7 } else { 97 };
    }
    assert!(step > 1000, "{step}");
}
