// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where packets go, by a model that knows no hash.

use std::collections::HashMap;

use proptest::prelude::*;
use turnstile_rig::Random;
use turnstile_switch::address::Address;
use turnstile_switch::flow::{Steering, flow};
use turnstile_switch::patience::{PATIENCE, Patience};
use turnstile_switch::port::Rules;
use turnstile_switch::rate::Rate;
use turnstile_switch::switch::{AGE, Switch, Verdict};
use turnstile_switch::table::Table;

fn mac(number: u64) -> [u8; 6] {
    [2, 0, 0, 0, (number >> 8) as u8, number as u8]
}

fn head(to: [u8; 6], from: [u8; 6], vlan: Option<u16>) -> Vec<u8> {
    let mut head = [to, from].concat();
    if let Some(vlan) = vlan {
        head.extend([0x81, 0]);
        head.extend(vlan.to_be_bytes());
    }
    head.extend([8, 0, 0x45, 0]);
    head
}

proptest! {
    /// With few addresses, so that all have room: learning, ageing, moving, isolation, guards and VLANs are those of a plain map.
    #[test]
    fn packets_go_where_a_plain_map_says(seed in 1u64..) {
        let random = &mut Random(seed);
        let mut switch = Switch::<8, 64>::new();
        let mut rules = [Rules::default(); 8];
        let mut up = [false; 8];
        let mut known: HashMap<([u8; 6], u16), (usize, u64)> = HashMap::new();
        let mut now = 0;
        for _ in 0..300 {
            now += random.below(AGE / 20);
            let port = random.below(8) as usize;
            match random.below(10) {
                0 => {
                    let own = (random.below(3) == 0).then(|| mac(port as u64));
                    rules[port] = Rules { mac: own, isolated: random.below(2) == 0, ..Rules::default() };
                    switch.attach(port, rules[port]);
                    up[port] = true;
                    known.retain(|address, place| place.0 != port && Some(address.0) != own);
                }
                1 => {
                    switch.detach(port);
                    up[port] = false;
                    known.retain(|_, place| place.0 != port);
                }
                _ => {
                    let vlan = (random.below(2) == 0).then(|| random.below(3) as u16 | 0x2000);
                    let from = if random.below(2) == 0 { mac(port as u64) } else { mac(random.below(12)) };
                    let to = match random.below(8) {
                        0 => [0xff; 6],
                        1 => [1, 0, 0x5e, 0, 0, 1],
                        2 => [1, 0x80, 0xc2, 0, 0, 0x0e],
                        _ => mac(random.below(12)),
                    };
                    let verdict = switch.judge(port, &head(to, from, vlan), now);
                    let id = vlan.map_or(0, |vlan| vlan & 0xfff);
                    let expected = if !up[port] {
                        Verdict::To(0)
                    } else if to[..3] == [1, 0x80, 0xc2] {
                        Verdict::Malformed
                    } else if rules[port].mac.is_some_and(|own| own != from)
                        || (0..8).any(|other| other != port && up[other] && rules[other].mac == Some(from))
                    {
                        Verdict::Spoofed
                    } else {
                        known.insert((from, id), (port, now));
                        let may = |other: &usize| *other != port && up[*other] && !(rules[port].isolated && rules[*other].isolated);
                        let place = known.get(&(to, id)).filter(|place| now - place.1 <= AGE && to[0] & 1 == 0);
                        let ports = (0..8).filter(may).filter(|other| place.is_none_or(|place| place.0 == *other));
                        Verdict::To(ports.map(|other| 1 << other).sum())
                    };
                    prop_assert_eq!(verdict, expected);
                }
            }
        }
    }

    /// Whatever one port sends: others keep what was learned of them, up to its half of the table, and the table does not grow.
    #[test]
    fn a_flood_of_addresses_leaves_others_alone(seed in 1u64..) {
        let random = &mut Random(seed);
        let mut table = Table::<3, 16>::new(AGE);
        let address = |number| Address::new(mac(number), 0);
        for number in 0..400 {
            table.learn(address(random.below(1 << 16)), 1, number);
            prop_assert!(table.count(1) <= 32);
        }
        // Who speaks now finds a place, from the flood's if need be; and keeps it while the flood goes on.
        for number in 0..2 {
            table.learn(address(number), 2, 1000);
        }
        for number in 0..400 {
            table.learn(address(2 + random.below(1 << 15)), 1, 2000 + number);
            prop_assert!(table.count(1) <= 32 && table.count(2) <= 2);
        }
        let there = (0..2).filter(|&number| table.find(address(number), 3000) == Some(2)).count();
        prop_assert!(there as u32 == table.count(2));
        table.forget(1);
        prop_assert_eq!((table.count(1), table.count(2)), (0, there as u32));
    }
}

#[test]
fn packets_that_go_nowhere_are_malformed() {
    let mut switch = Switch::<2, 4>::new();
    switch.attach(0, Rules::default());
    switch.attach(1, Rules::default());
    let good = head([0xff; 6], mac(1), None);
    assert_eq!(switch.judge(0, &good, 0), Verdict::To(2));
    assert_eq!(switch.judge(0, &good[..13], 0), Verdict::Malformed);
    assert_eq!(switch.judge(0, &head([0xff; 6], [0; 6], None), 0), Verdict::Malformed);
    assert_eq!(switch.judge(0, &head([0xff; 6], [0xff; 6], None), 0), Verdict::Malformed);
    assert_eq!(switch.judge(0, &head(mac(1), mac(1), None), 0), Verdict::To(0), "to where it comes from");
    assert_eq!(switch.judge(9, &good, 0), Verdict::To(0));
}

#[test]
fn a_rate_is_kept() {
    let mut rate = Rate::new(100_000_000, 15_000);
    let (mut now, mut sent) = (1_000_000_000u64, 0u64);
    let end = now + 1_000_000_000;
    while now < end {
        match rate.wait(now) {
            0 => {
                rate.pay(now, 1500);
                sent += 1500;
            }
            wait => now += wait,
        }
    }
    assert!((12_500_000..12_500_000 + 18_000).contains(&sent), "100 Mbit/s for a second: {sent}");
    let mut slow = Rate::new(0, 0);
    slow.pay(0, u32::MAX);
    assert!(slow.wait(0) > 0);
    assert_eq!(slow.wait(u64::MAX), 0);
    let mut switch = Switch::<2, 4>::new();
    switch.attach(0, Rules { rate: Some(Rate::new(8_000_000, 0)), ..Rules::default() });
    switch.attach(1, Rules::default());
    let good = head([0xff; 6], mac(1), None);
    assert_eq!(switch.judge(0, &good, 0), Verdict::To(2));
    switch.sent(0, 1000, 0);
    assert_eq!(switch.judge(0, &good, 0), Verdict::Wait(1_000_000));
    assert_eq!(switch.judge(0, &good, 1_000_000), Verdict::To(2));
}

#[test]
fn nobody_is_held_up_for_long() {
    let mut patience = Patience::NEW;
    assert_eq!(patience.left(5), PATIENCE);
    assert_eq!(patience.left(5 + PATIENCE / 2), PATIENCE / 2);
    patience.taken(5 + PATIENCE / 2);
    assert_eq!(patience.left(5 + PATIENCE / 2), PATIENCE / 2);
    // A driver that offers a buffer just in time, again and again.
    let (mut patience, mut now, mut held) = (Patience::NEW, 0, 0);
    while now < 1000 * PATIENCE {
        let left = patience.left(now);
        now += left.max(1000);
        held += left;
        patience.taken(now);
    }
    assert!(held < 1000 * PATIENCE / 6, "{held}");
}

#[test]
fn flows_keep_to_a_queue() {
    let mut packet = head(mac(1), mac(2), None);
    packet.resize(64, 0);
    packet[23] = 6;
    let before = flow(&packet);
    for at in [18, 19, 22, 24, 38, 40, 46, 50] {
        let mut same = packet.clone();
        same[at] ^= 0x55;
        assert_eq!(flow(&same), before, "byte {at} differs from packet to packet");
    }
    let numbers: std::collections::HashSet<_> = (0..64u8)
        .map(|port| {
            packet[35] = port;
            flow(&packet) % 4
        })
        .collect();
    assert_eq!(numbers.len(), 4);
}

/// Flows that differ in one end's address alone, however its last bytes do, or in a port, have different places and pairs: of the places, which are
/// fewer than the hosts of a network, about as many are used as by chance.
#[test]
fn flows_that_differ_little_are_spread() {
    let of_kind = |kind: [u8; 2], more: &[(usize, u8)]| {
        let mut packet = head(mac(1), mac(2), None);
        packet.resize(64, 0);
        packet[12..14].copy_from_slice(&kind);
        more.iter().for_each(|&(at, byte)| packet[at] = byte);
        packet
    };
    let (four, six) = (of_kind([8, 0], &[(14, 0x45), (23, 17)]), of_kind([0x86, 0xdd], &[(20, 17)]));
    let other = of_kind([0x88, 0xb5], &[]);
    let cases = [
        (&four, vec![28, 29, 32, 33, 34, 35, 36, 37]),
        (&six, vec![28, 29, 36, 37, 44, 45, 52, 53, 54, 55, 56, 57]),
        (&other, vec![4, 5, 10, 11]),
    ];
    for (packet, places) in cases {
        for at in places {
            let flows: Vec<_> = (0..=u8::MAX)
                .map(|byte| {
                    let mut packet = packet.clone();
                    packet[at] = byte;
                    flow(&packet)
                })
                .collect();
            let mut steering = Steering::NEW;
            let mut pairs = [0; 4];
            flows.iter().for_each(|flow| pairs[steering.pair(*flow, 4)] += 1);
            assert!(pairs.iter().all(|count| (32..=96).contains(count)), "byte {at}: {pairs:?}");
            // One that is known is alone in its place: few others go by its pair for that.
            let before: Vec<_> = flows.iter().map(|flow| steering.pair(*flow, 4)).collect();
            let first = (before[0] + 1) % 4;
            steering.sent(flows[0], first);
            let moved = flows
                .iter()
                .zip(&before)
                .filter(|(flow, before)| steering.pair(**flow, 4) != **before)
                .count();
            assert!((1..=16).contains(&moved), "byte {at}: {moved} have the same place");
        }
    }
}

/// A port with its share of the table learns: what it has used last is there.
#[test]
fn a_port_with_its_share_takes_from_itself() {
    let mut table = Table::<3, 1>::new(AGE);
    let address = |number| Address::new(mac(number), 0);
    table.learn(address(9), 2, 0);
    for number in 1..6 {
        table.learn(address(number), 1, number);
        let there = (1..6).filter(|other| table.find(address(*other), 9) == Some(1)).collect::<Vec<_>>();
        assert_eq!(there, (number.saturating_sub(1).max(1)..=number).collect::<Vec<_>>());
        assert_eq!((table.count(1), table.find(address(9), 9)), (number.min(2) as u32, Some(2)));
    }
}

/// Who moves addresses of others to itself has them of its own share.
#[test]
fn an_address_counts_for_the_port_where_it_is() {
    let mut table = Table::<3, 4>::new(AGE);
    let address = |number| Address::new(mac(number), 0);
    (1..6).for_each(|number| table.learn(address(number), 0, 0));
    assert_eq!([0, 1, 2].map(|port| table.count(port)), [5, 0, 0]);
    for (number, port, counts) in [(1, 1, [4, 1, 0]), (1, 1, [4, 1, 0]), (2, 2, [3, 1, 1]), (1, 0, [4, 0, 1])]
    {
        table.learn(address(number), port, 1);
        assert_eq!([0, 1, 2].map(|port| table.count(port)), counts, "{number} is at {port}");
    }
    table.forget(0);
    assert_eq!([0, 1, 2].map(|port| table.count(port)), [0, 0, 1]);
}

/// A packet with its ends exchanged is of the same flow, whatever it is.
#[test]
fn both_directions_are_one_flow() {
    let exchange = |packet: &[u8], ends: &[(usize, usize)]| {
        let mut other = packet.to_vec();
        for &(at, length) in ends {
            other[at..at + 2 * length].rotate_left(length);
        }
        other
    };
    let of_kind = |kind: [u8; 2], more: &[(usize, u8)]| {
        let mut packet = head(mac(1), mac(2), None);
        packet.resize(64, 0);
        packet[12..14].copy_from_slice(&kind);
        packet.iter_mut().enumerate().skip(22).for_each(|(at, byte)| *byte = (at * 37) as u8);
        more.iter().for_each(|&(at, byte)| packet[at] = byte);
        packet
    };
    let tcp4 = of_kind([8, 0], &[(14, 0x45), (20, 0), (21, 0), (23, 6)]);
    let udp6 = of_kind([0x86, 0xdd], &[(20, 17)]);
    let others = [
        (of_kind([8, 0], &[(14, 0x46), (23, 6)]), &[(26, 4)][..]),
        (of_kind([0x86, 0xdd], &[(20, 44)]), &[(22, 16)]),
        (of_kind([0x88, 0xb5], &[]), &[(0, 6)]),
    ];
    let with_ports = [(tcp4, &[(26, 4), (34, 2)][..]), (udp6, &[(22, 16), (54, 2)])];
    for (packet, ends) in with_ports.iter().chain(&others) {
        assert_eq!(flow(&exchange(packet, ends)), flow(packet));
    }
    for (packet, ends) in with_ports {
        let mut other = packet.clone();
        other[ends[1].0] ^= 1;
        assert_ne!(flow(&other), flow(&packet), "ports tell flows apart");
    }
}

/// What a receiver has sent of a flow comes back by the same pair, as long as that is in use.
#[test]
fn steering_follows_what_was_sent() {
    let mut steering = Steering::NEW;
    let spread: std::collections::HashSet<_> =
        (0..64_u64).map(|flow| steering.pair(flow << 16 | flow, 3)).collect();
    assert_eq!(spread.len(), 3);
    for pair in [3, 1, 2] {
        steering.sent(7, pair);
        assert_eq!((steering.pair(7, 4), steering.pair(7 + 64, 4)), (pair, pair), "a place is shared");
        assert!(steering.pair(7, 1) == 0 && steering.pair(7, 0) == 0, "it is not in use");
    }
    steering.sent(8, 3);
    assert_eq!(steering.pair(7, 4), 2);
}
