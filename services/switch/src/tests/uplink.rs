// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A network card of the machine behind the switch.

use turnstile_rig::{CARD_FEATURES, Card, Request};
use turnstile_service_rt::{LATER, UNDRIVEN};
use turnstile_switch::patience::PATIENCE;
use turnstile_virtio::features::Features;

use super::driver::{Driver, packet, run};
use super::host::{Host, VMS, mac};
use crate::members::MEMBERS;
use crate::uplink::BUFFERS;

/// Nobody among the members.
const FAR: usize = 100;

fn linked(card: Card) -> (Host, [Driver; VMS]) {
    let mut host = Host::with_card([(0, 0); VMS], None, Some(card));
    let drivers = Driver::all(&mut host);
    (host, drivers)
}

fn plain() -> (Host, [Driver; VMS]) {
    linked(Card::new(CARD_FEATURES, 128, true))
}

fn got(drivers: &mut [Driver; VMS]) -> [usize; VMS] {
    drivers.each_mut().map(|driver| std::mem::take(&mut driver.got).len())
}

#[test]
fn packets_go_out_and_come_in() {
    for card in [
        Card::new(CARD_FEATURES, 128, true),
        Card::new(CARD_FEATURES, 128, false),
        Card::new(Features::empty(), 4, false),
    ] {
        let (mut host, mut drivers) = linked(card);
        let all = packet(0, None, 1, 100);
        assert!(drivers[0].send(&mut host, &all));
        run(&mut host, &mut drivers);
        assert_eq!((host.board.wire(), got(&mut drivers)), (vec![all], [0, 1, 1]), "to all");
        // Where 0 is is known by now.
        let answer = packet(FAR, Some(0), 2, 300);
        assert!(host.board.arrive(&answer));
        run(&mut host, &mut drivers);
        assert!(drivers[0].got == [answer]);
        assert_eq!(got(&mut drivers), [1, 0, 0]);
        // And so is who has answered.
        let back = packet(1, Some(FAR), 3, 1500);
        assert!(drivers[1].send(&mut host, &back));
        run(&mut host, &mut drivers);
        assert_eq!((host.board.wire(), got(&mut drivers)), (vec![back], [0, 0, 0]));
        // What is among members stays there.
        assert!(drivers[1].send(&mut host, &packet(1, Some(0), 4, 46)));
        run(&mut host, &mut drivers);
        assert_eq!((host.board.wire(), got(&mut drivers)), (vec![], [1, 0, 0]));
        let announced = packet(FAR + 1, None, 5, 46);
        assert!(host.board.arrive(&announced));
        run(&mut host, &mut drivers);
        assert_eq!((host.board.wire(), got(&mut drivers)), (vec![], [1, 1, 1]), "nothing goes back");
        assert_eq!(*host.board.log.borrow(), "");
        assert_eq!(host.board.card.as_ref().unwrap().strays.get(), 0);
    }
}

/// The packet is there as soon as the card has buffers, and no interrupt comes for it.
#[test]
fn what_comes_while_the_card_begins_waits_for_nothing() {
    let (mut host, mut drivers) = plain();
    let first = packet(FAR, None, 0, 100);
    host.board.card.as_ref().unwrap().waiting.borrow_mut().push(first.clone());
    host.kill();
    let card = host.board.card.as_ref().unwrap();
    assert!(card.waiting.borrow().is_empty());
    card.interrupts.set(0);
    run(&mut host, &mut drivers);
    assert!(drivers[0].got == [first]);
    got(&mut drivers);
}

/// The sum of a packet's bytes from `start`, which is right if it is 0xffff, with that of the pseudo header of TCP.
fn sum(packet: &[u8], start: usize) -> u32 {
    let word = |bytes: &[u8]| u32::from(bytes[0]) << 8 | bytes.get(1).map_or(0, |&byte| byte.into());
    let pseudo = 6 + (packet.len() - start) as u32;
    let bytes = packet[26..34].chunks(2).chain(packet[start..].chunks(2));
    let mut sum = pseudo + bytes.map(word).sum::<u32>();
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum
}

/// A packet of TCP over IPv4 with its checksum open, as Linux leaves it, behind its header.
fn tcp(payload: usize, gso: bool) -> Vec<u8> {
    let mut bytes = vec![1, if gso { 1 } else { 0 }, 54, 0];
    bytes.extend(if gso { 1460_u16 } else { 0 }.to_le_bytes());
    bytes.extend([34, 0, 16, 0, 0, 0]);
    let mut packet = packet(0, Some(FAR), 0, 0);
    packet.truncate(12);
    packet.extend([8, 0]);
    let length = (40 + payload) as u16;
    packet.extend([0x45, 0]);
    packet.extend(length.to_be_bytes());
    packet.extend([0, 7, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    packet.extend([0x12, 0x34, 0, 80, 0, 0, 0, 9, 0, 0, 0, 1, 0x50, 0x18, 1, 0, 0, 0, 0, 0]);
    // The field has the sum of the pseudo header.
    let mut pseudo = 6 + 20 + payload as u32 + 0x0a00 + 1 + 0x0a00 + 2;
    pseudo = (pseudo & 0xffff) + (pseudo >> 16);
    packet[50..52].copy_from_slice(&(pseudo as u16).to_be_bytes());
    packet.extend((0..payload).map(|at| (at * 13) as u8));
    bytes.extend(packet);
    bytes
}

fn send_raw(host: &mut Host, driver: &mut Driver, bytes: &[u8]) {
    let readable_cuts = bytes.chunks(4000).map(|chunk| chunk.len() as u32).collect();
    let request = Request { readable: bytes.to_vec(), readable_cuts, writable: vec![], indirect: true };
    let (_, notify) = driver.queues[1].ask(&host.board.rams[driver.member], &request).unwrap();
    if notify {
        driver.ring(host, 1);
    }
}

#[test]
fn what_goes_out_is_whole() {
    let (mut host, mut drivers) = plain();
    send_raw(&mut host, &mut drivers[0], &tcp(777, false));
    run(&mut host, &mut drivers);
    let wire = host.board.wire();
    assert_eq!((wire.len(), wire[0].len(), sum(&wire[0], 34)), (1, 54 + 777, 0xffff));
    drivers.iter_mut().for_each(|driver| driver.got.clear());
}

#[test]
fn a_segment_goes_out_as_packets() {
    let (mut host, _) = plain();
    let mut driver = Driver::running_with(&mut host, 0, 0x1_1000);
    let payload = 65535 - 40;
    send_raw(&mut host, &mut driver, &tcp(payload, true));
    run(&mut host, std::slice::from_mut(&mut driver));
    let wire = host.board.wire();
    assert_eq!(wire.len(), payload.div_ceil(1460));
    let mut bytes = Vec::<u8>::new();
    for packet in &wire {
        assert!(packet.len() <= 1514 && sum(packet, 34) == 0xffff);
        assert_eq!(packet[38..42], (9 + bytes.len() as u32).to_be_bytes());
        bytes.extend(&packet[54..]);
    }
    assert!(bytes == tcp(payload, true)[12 + 54..]);
}

/// Who has too many for the card waits, and then loses what is too much; the card has all others, in their order.
#[test]
fn a_card_that_sends_nothing_is_waited_for() {
    let (mut host, mut drivers) = plain();
    assert!(host.board.arrive(&packet(FAR, None, 0, 60)));
    run(&mut host, &mut drivers);
    got(&mut drivers);
    host.board.card.as_ref().unwrap().holds.set(true);
    let mut sent = 0;
    while drivers[0].send(&mut host, &packet(0, Some(FAR), sent, 60)) {
        sent += 1;
        run(&mut host, &mut drivers);
        assert!(sent < 1000);
    }
    assert!(sent as usize > BUFFERS, "{sent}");
    let alarm = host.board.alarm.get();
    assert!(alarm < host.board.clock.get() + 2 * PATIENCE, "{alarm}");
    let card = host.board.card.as_ref().unwrap();
    card.holds.set(false);
    card.run(&host.board.rams[MEMBERS]);
    run(&mut host, &mut drivers);
    let expected: Vec<_> = (0..sent).map(|number| packet(0, Some(FAR), number, 60)).collect();
    assert!(host.board.wire() == expected);
    assert_eq!((drivers[0].sent, host.board.alarm.get()), (sent as usize, u64::MAX));

    host.board.card.as_ref().unwrap().holds.set(true);
    for number in 0..2 * BUFFERS as u32 {
        assert!(drivers[0].send(&mut host, &packet(0, Some(FAR), number, 60)));
        run(&mut host, &mut drivers);
        host.board.clock.update(|clock| clock + PATIENCE);
        run(&mut host, &mut drivers);
    }
    assert_eq!((drivers[0].sent, host.board.wire().len()), (sent as usize + 2 * BUFFERS, 0));
    assert!(drivers[1].send(&mut host, &packet(1, Some(2), 0, 60)));
    run(&mut host, &mut drivers);
    assert_eq!(got(&mut drivers), [1, 0, 1], "others go on, and nobody knows 2");
}

/// Two members have more than the card sends, all the time.
#[test]
fn members_take_turns_at_a_slow_card() {
    for first in [0, 1] {
        let (mut host, mut drivers) = plain();
        assert!(host.board.arrive(&packet(FAR, None, 0, 60)));
        run(&mut host, &mut drivers);
        host.board.card.as_ref().unwrap().holds.set(true);
        let mut number = 0;
        for _ in 0..100 {
            for member in [first, first + 1] {
                while drivers[member].send(&mut host, &packet(member, Some(FAR), number, 60)) {
                    number += 1;
                }
            }
            run(&mut host, &mut drivers);
            host.board.card.as_ref().unwrap().send_some(&host.board.rams[MEMBERS], 16);
            run(&mut host, &mut drivers);
        }
        let wire = host.board.wire();
        let of = |member| wire.iter().filter(|packet| packet[6..12] == mac(member)).count();
        assert!(
            3 * of(first) > wire.len() && 3 * of(first + 1) > wire.len(),
            "{}, {}",
            of(first),
            of(first + 1)
        );
    }
}

/// One member takes nothing; what comes for others comes at once.
#[test]
fn who_takes_nothing_holds_up_nothing_that_comes() {
    let (mut host, mut drivers) = plain();
    for (member, driver) in drivers.iter_mut().enumerate() {
        assert!(driver.send(&mut host, &packet(member, None, 0, 60)));
    }
    run(&mut host, &mut drivers);
    got(&mut drivers);
    // It offers no buffer again.
    let mut others = drivers;
    let mut came = [0; VMS];
    for number in 0..64 {
        for member in [0, 1] {
            assert!(host.board.arrive(&packet(FAR, Some(member), number, 60)));
        }
        let now = host.board.clock.get();
        run(&mut host, &mut others[1..]);
        assert!(host.board.clock.get() - now < PATIENCE / 2, "nobody has waited");
        came[1] += std::mem::take(&mut others[1].got).len();
    }
    assert_eq!(came[1], 64);
}

/// More come at once than the card has buffers for.
#[test]
fn a_burst_comes_in() {
    let (mut host, mut drivers) = plain();
    let mut arrived = 0;
    while host.board.arrive(&packet(FAR, None, arrived, 60)) {
        arrived += 1;
    }
    assert_eq!(arrived as usize, BUFFERS);
    run(&mut host, &mut drivers);
    let counts = got(&mut drivers);
    assert!(counts.iter().all(|&count| count >= 16), "{counts:?}");
    for number in 0..3 * BUFFERS as u32 {
        assert!(
            host.board.arrive(&packet(FAR, Some(1), number, 60)),
            "{number}: its buffers are the card's again"
        );
        run(&mut host, &mut drivers);
    }
}

/// Lengths and headers that no card has.
#[test]
fn what_is_no_packet_goes_nowhere() {
    let (mut host, mut drivers) = plain();
    let good = packet(FAR, None, 1, 60);
    let bytes = [&[0; 12][..], &good].concat();
    let ram = MEMBERS;
    for claims in [0, 11, 12, 25, 1531, 2048] {
        let card = host.board.card.as_ref().unwrap();
        assert!(card.receive(&host.board.rams[ram], &bytes, claims));
        run(&mut host, &mut drivers);
        assert_eq!(got(&mut drivers), [0; VMS], "{claims}");
    }
    for header in [[1, 0], [1, 1], [0, 4], [3, 0x81]] {
        let bytes = [&header[..], &bytes[2..]].concat();
        let card = host.board.card.as_ref().unwrap();
        assert!(card.receive(&host.board.rams[ram], &bytes, bytes.len() as u32));
        run(&mut host, &mut drivers);
        assert_eq!(got(&mut drivers), [0; VMS], "{header:?}");
    }
    for _ in 0..2 * BUFFERS {
        assert!(host.board.arrive(&good), "no buffer is lost");
        run(&mut host, &mut drivers);
    }
    assert_eq!(*host.board.log.borrow(), "");
}

#[test]
fn a_card_that_cannot_be_begun_is_reported() {
    let reset = Card::new(CARD_FEATURES, 128, true);
    reset.stuck.borrow_mut().insert(0x14, 1);
    let disk = Card::new(CARD_FEATURES, 128, true);
    disk.patches.borrow_mut().insert(2, 0x42);
    for (card, why) in [(reset, "it does not end its reset"), (disk, "there is no driver for it")] {
        let (mut host, mut drivers) = linked(card);
        assert_eq!(*host.board.log.borrow(), format!("no uplink: {why}\n"));
        assert!(drivers[0].send(&mut host, &packet(0, None, 1, 100)));
        run(&mut host, &mut drivers);
        host.board.card.as_ref().unwrap().interrupts.set(1);
        run(&mut host, &mut drivers);
        assert_eq!((host.board.wire(), got(&mut drivers)), (vec![], [0, 1, 1]));
        // Nobody would ever silence it.
        assert_eq!(host.stray(), UNDRIVEN);
    }
}

#[test]
fn a_card_that_is_driven_may_interrupt_again() {
    let (mut host, mut drivers) = plain();
    run(&mut host, &mut drivers);
    assert_eq!(host.stray(), 0);
}

/// Interrupts that come at once, until one is answered by "later".
fn strays(host: &mut Host) -> usize {
    (0..100).take_while(|_| host.stray() != LATER).count()
}

/// Its pin stays high: it is looked at from time to time, and that costs time alone.
#[test]
fn a_card_that_interrupts_for_nothing_takes_nobodys_cpu() {
    let (mut host, mut drivers) = plain();
    run(&mut host, &mut drivers);
    // From here on the switch knows where that one is.
    assert!(drivers[1].send(&mut host, &packet(1, None, 0, 60)));
    run(&mut host, &mut drivers);
    got(&mut drivers);
    assert!(strays(&mut host) < 20);
    for number in 0..20 {
        assert!(host.board.arrive(&packet(FAR, None, number, 60)));
        let (alarm, now) = (host.board.alarm.get(), host.board.clock.get());
        assert!((1..=1_000_000).contains(&alarm.saturating_sub(now)), "soon, and not at once: {alarm} {now}");
        host.board.clock.set(alarm);
        // Who sends when the alarm is due does not put it off: before it the card interrupts no more.
        assert!(drivers[0].send(&mut host, &packet(0, Some(1), number, 60)));
        assert!(host.alarm());
        drivers.iter_mut().for_each(|driver| {
            driver.interrupts(&mut host);
            driver.refill(&mut host, 16);
        });
        assert_eq!(got(&mut drivers), [1, 2, 1]);
        assert!(strays(&mut host) < 3, "it is known");
    }
    assert_eq!(host.board.log.borrow().matches("for nothing").count(), 1);
    // One whose interrupts bring something again is not looked at.
    for number in 0..40 {
        assert!(host.board.arrive(&packet(FAR, None, number, 60)));
        host.stray();
        drivers.iter_mut().for_each(|driver| {
            driver.interrupts(&mut host);
            driver.refill(&mut host, 16);
        });
    }
    host.board.clock.set(host.board.alarm.get());
    while host.alarm() {}
    assert_eq!((host.stray(), host.board.alarm.get()), (0, u64::MAX));
}

#[test]
fn a_card_that_filters_is_reported() {
    let card = Card::new(CARD_FEATURES, 128, true);
    card.answer.set(1);
    let (mut host, mut drivers) = linked(card);
    run(&mut host, &mut drivers);
    assert_eq!(*host.board.log.borrow(), "no uplink: it receives packets for its own address alone\n");
    assert!(!host.board.card.as_ref().unwrap().runs());
}

#[test]
fn a_card_that_breaks_is_reset_and_reported() {
    for msix in [true, false] {
        let (mut host, mut drivers) = linked(Card::new(CARD_FEATURES, 128, msix));
        run(&mut host, &mut drivers);
        host.board.card.as_ref().unwrap().fail();
        // An interrupt of the configuration, if it has that; and whatever else may come.
        host.board.card.as_ref().unwrap().interrupts.set(1);
        run(&mut host, &mut drivers);
        assert_eq!(*host.board.log.borrow(), "no uplink: it needs a reset\n", "{msix}");
        assert!(!host.board.card.as_ref().unwrap().runs() && !host.board.arrive(&packet(FAR, None, 1, 60)));
        assert!(drivers[0].send(&mut host, &packet(0, None, 1, 100)));
        run(&mut host, &mut drivers);
        assert_eq!(got(&mut drivers), [0, 1, 1]);
    }
}

/// What lies in the shared memory is written by the card, though it should not: members notice nothing.
#[test]
fn shared_memory_that_is_overwritten_is_borne() {
    let mut random = turnstile_rig::Random(0x5eed);
    let mut lost = 0;
    for _ in 0..150 {
        let (mut host, mut drivers) = plain();
        for number in 0..6 {
            // Of any of the five rings: anything, or an index or an entry of the used ring.
            let (page, number_of) = (0x1000 * random.below(5), random.below(8));
            let (at, bytes) = match random.below(4) {
                0 => (random.below(0x1000), random.bytes(8)),
                1 => (0x802, random.bytes(1)),
                2 => (0x90a, vec![random.below(64) as u8]),
                _ => (0x90c + 8 * number_of, vec![random.below(140) as u8]),
            };
            host.board.rams[MEMBERS].put(turnstile_rig::Ram::BASE + page + at, &bytes);
            drivers[0].send(&mut host, &packet(0, None, number, 60));
            run(&mut host, &mut drivers[..2]);
            host.board.card.as_ref().unwrap().interrupts.set(1);
            run(&mut host, &mut drivers[..2]);
            assert_eq!(std::mem::take(&mut drivers[1].got), [packet(0, None, number, 60)]);
        }
        lost += u32::from(!host.board.log.borrow().is_empty());
    }
    assert!(lost > 10, "{lost}");
}

/// Its life after begins with the card as it finds it: what was in flight is lost, or comes twice.
#[test]
fn killed_at_any_step_it_begins_with_the_card_again() {
    let mut step = 0;
    loop {
        let mut host = Host::with_card([(0, 0); VMS], Some(step), Some(Card::new(CARD_FEATURES, 128, true)));
        let mut drivers = Driver::all(&mut host);
        for number in 0..3 {
            assert!(drivers[0].send(&mut host, &packet(0, None, number, 60)));
            host.board.arrive(&packet(FAR, None, 100 + number, 60));
        }
        run(&mut host, &mut drivers);
        let known = |got: &Vec<u8>| {
            (0..3).any(|number| {
                *got == packet(0, None, number, 60) || *got == packet(FAR, None, 100 + number, 60)
            })
        };
        assert!(host.board.wire().iter().all(known), "step {step}: damaged");
        assert!(drivers.iter().all(|driver| driver.got.iter().all(known)), "step {step}: damaged");
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
