// SPDX-License-Identifier: Apache-2.0 OR MIT
//! VMs that send each other packets.

mod common;

use common::{Net, OPTIONS, VMS, Vm, attach, mac, memories, packet, run};
use proptest::prelude::*;
use turnstile_net::control::Limits;
use turnstile_rig::{Fuse, Guest, Ram, Random, Request};
use turnstile_switch::flow::{Steering, flow};
use turnstile_switch::patience::PATIENCE;
use turnstile_switch::port::Rules;
use turnstile_switch::rate::Rate;
use turnstile_switch::relay::Rest;
use turnstile_virtio::config::NetworkHeader;
use turnstile_virtio::device::Queue;
use turnstile_virtio::violation::Violation;

const PLAIN: NetworkHeader = NetworkHeader::PLAIN;

fn vms(random: &mut Random, memories: &[Ram; VMS]) -> Vec<Vm> {
    let of = |ram| {
        let mut vm = Vm::new(ram, random.below(2) == 0, random.below(2) == 0);
        vm.simple = random.below(2) == 0;
        vm
    };
    memories.iter().map(of).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// However packets and buffers are cut: each arrives once, in order, unchanged, where it should; whoever waits is interrupted.
    #[test]
    fn packets_arrive(seed in 1u64..) {
        let random = &mut Random(seed);
        let memories = memories(&Fuse::default());
        let mut vms = vms(random, &memories);
        let mut net = Net::new();
        attach(&mut net, &vms, &memories, false);
        // By receiver and sender.
        let mut expected = [(); VMS].map(|()| [(); VMS].map(|()| std::collections::VecDeque::new()));
        // The switch learns where everybody is.
        for port in 0..VMS {
            let bytes = packet(random, port, None, 0, 0);
            vms[port].send(&memories[port], random, PLAIN, &bytes);
        }
        run(&mut net, &memories, 0);
        for (port, vm) in vms.iter_mut().enumerate() {
            vm.take(&memories[port]);
            vm.receive.arm(&memories[port]);
        }
        let mut now = 0;
        for number in 0..60 {
            now += 1000;
            let from = random.below(3) as usize;
            vms.iter_mut().zip(&memories).for_each(|(vm, ram)| vm.refill(ram, random, 10));
            let to = Some(random.below(3) as usize).filter(|_| random.below(4) > 0);
            let length = random.below(1500) as usize;
            let bytes = packet(random, from, to, number, length);
            if vms[from].send(&memories[from], random, PLAIN, &bytes) {
                for other in (0..VMS).filter(|&other| other != from && to.is_none_or(|to| to == other)) {
                    expected[other][from].push_back(bytes.clone());
                }
            }
            if random.below(3) == 0 {
                let interrupts = run(&mut net, &memories, now);
                for (port, vm) in vms.iter_mut().enumerate() {
                    let news = vm.receive.ring.used(&memories[port]);
                    vm.take(&memories[port]);
                    let came = std::mem::take(&mut vm.got);
                    prop_assert!(came.is_empty() || interrupts.contains(&(port, 0)), "{news}");
                    for (header, bytes) in came {
                        prop_assert_eq!((header.flags, header.gso_type), (0, 0));
                        let from = usize::from(bytes[11]);
                        prop_assert!(bytes == expected[port][from].pop_front().unwrap());
                    }
                    vm.receive.arm(&memories[port]);
                    vm.send.arm(&memories[port]);
                }
            }
        }
        vms.iter_mut().zip(&memories).for_each(|(vm, ram)| vm.refill(ram, random, 64));
        run(&mut net, &memories, now);
        for (port, vm) in vms.iter_mut().enumerate() {
            vm.take(&memories[port]);
            for (_, bytes) in vm.got.drain(..) {
                prop_assert!(bytes == expected[port][usize::from(bytes[11])].pop_front().unwrap());
            }
            prop_assert!(expected[port].iter().all(|list| list.is_empty()), "nothing is lost");
            prop_assert_eq!(vm.send.in_flight(), 0);
        }
    }

    /// Whatever rings hold, and however memory changes under the reader: calls end, and another pair of VMs is not disturbed by more than
    /// what it is sent.
    #[test]
    fn hostile_vms_do_no_harm(seed in 1u64..) {
        let random = &mut Random(seed);
        let memories = memories(&Fuse::default());
        let mut vms = vms(random, &memories);
        let mut net = Net::new();
        attach(&mut net, &vms, &memories, false);
        let is_of_several = random.below(2) == 0;
        for number in 0..60 {
            // VM 0 is hostile.
            memories[0].restless.set(0);
            let to = random.below(3) as usize;
            let bytes = packet(random, 0, Some(to), number, 100);
            let header = NetworkHeader::from_bytes(random.bytes(12)[..].try_into().unwrap());
            let _ = vms[0].send(&memories[0], random, header, &bytes);
            vms[0].refill(&memories[0], random, 2);
            for _ in 0..random.below(3) {
                let queue = [0, 0x4_0000][random.below(2) as usize];
                memories[0].put(Ram::BASE + queue + random.below(0x400), &[random.any() as u8]);
            }
            memories[0].restless.set(if random.below(2) == 0 { 0 } else { random.any() | 1 });
            vms[1].refill(&memories[1], random, 20);
            vms[2].refill(&memories[2], random, 20);
            let bytes = packet(random, 1, Some(2), number, 1000);
            prop_assert!(vms[1].send(&memories[1], random, PLAIN, &bytes));
            let now = u64::from(number) * PATIENCE;
            if let Some(device) = net.device(0) {
                device.control.pairs = 1 + random.below(2) as u16;
            }
            let mut fail = match is_of_several {
                true => net.pump_pair(&memories, (0, 0), now, 50).is_err(),
                false => net.pump(&memories, 0, now, 50).is_err(),
            };
            prop_assert!(matches!(net.pump(&memories, 1, now, 50), Ok(Rest::Idle)));
            net.interrupt(&memories, |_, _| {});
            while let Some(port) = net.broken() {
                prop_assert_eq!(port, 0);
                fail = true;
            }
            vms[2].take(&memories[2]);
            vms[1].take(&memories[1]);
            let arrived = vms[2].got.drain(..).filter(|got| got.1[6..12] == mac(1)).collect::<Vec<_>>();
            prop_assert!(arrived.len() == 1 && arrived[0].1 == bytes);
            if fail {
                memories[0].restless.set(0);
                vms[0] = Vm::new(&memories[0], true, true);
                net.set_device(0, Some(vms[0].device()));
                for (number, guest) in [(0, &vms[0].receive), (1, &vms[0].send)] {
                    let layout = Some((guest.ring.layout, OPTIONS));
                    net.set_queue((0, number), &memories[0], layout, false).unwrap();
                }
            }
        }
    }
}

#[test]
fn a_segment_passes_as_one() {
    let random = &mut Random(3);
    let memories = [(); VMS].map(|()| Ram::new(0x90_0000, Fuse::default()));
    let mut vms = [true, true, false].map(|offloads| Vm::new(&memories[0], offloads, true));
    for (vm, ram) in vms.iter_mut().zip(&memories) {
        *vm = Vm::new(ram, vm.accepts.tso4[0], true);
        vm.pieces = 1;
        vm.refill(ram, random, 64);
    }
    let mut net = Net::new();
    attach(&mut net, &vms, &memories, false);
    let mut bytes = [mac(1), mac(0), [8, 0, 0x45, 0, 0xff, 0xff]].concat();
    bytes.extend([0, 1, 0, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    bytes.extend([0, 80, 0, 81, 0, 0, 0, 0, 0, 0, 0, 0, 0x50, 0x18, 1, 0, 0, 0, 0, 0]);
    bytes.extend(random.bytes(60_000));
    let header = NetworkHeader {
        flags: 1,
        gso_type: 1,
        header_length: 54,
        gso_size: 1400,
        checksum_start: 34,
        checksum_offset: 16,
        buffers: 0,
    };
    assert!(vms[0].send(&memories[0], random, header, &bytes));
    run(&mut net, &memories, 0);
    vms[1].take(&memories[1]);
    vms[2].take(&memories[2]);
    let (got, whole) = vms[1].got.pop_front().unwrap();
    assert!(whole == bytes && vms[1].got.is_empty());
    assert_eq!((got.gso_type, got.gso_size, got.flags), (1, 1400, 1));
    assert_eq!(vms[2].got.len(), 60_000usize.div_ceil(1400), "who does not take segments gets packets");
    assert_eq!(net.switch().counters(0).sent, 1);
    assert_eq!((net.switch().counters(1).received, net.switch().counters(1).received_bytes), (1, 60_054));
}

#[test]
fn without_buffers_packets_wait_a_while() {
    let random = &mut Random(4);
    let memories = memories(&Fuse::default());
    let mut vms = [(); VMS].map(|()| Vm::new(&memories[0], false, false));
    for (vm, ram) in vms.iter_mut().zip(&memories) {
        *vm = Vm::new(ram, false, false);
    }
    let mut net = Net::new();
    attach(&mut net, &vms, &memories, false);
    let bytes = packet(random, 1, None, 0, 10);
    vms[1].send(&memories[1], random, PLAIN, &bytes);
    run(&mut net, &memories, 0);
    for number in 1..4 {
        let bytes = packet(random, 0, Some(1), number, 10);
        vms[0].send(&memories[0], random, PLAIN, &bytes);
    }
    assert_eq!(net.pump(&memories, 0, 100, 9), Ok(Rest::Full(1, PATIENCE)));
    assert_eq!(net.arm(1, &memories[1]), Ok(false));
    vms[1].refill(&memories[1], random, 1);
    assert_eq!(net.arm(1, &memories[1]), Ok(true));
    assert_eq!(net.pump(&memories, 0, 100, 9), Ok(Rest::Full(1, PATIENCE)), "one has gone");
    assert_eq!(net.pump(&memories, 0, 100 + PATIENCE, 9), Ok(Rest::Idle));
    vms[1].take(&memories[1]);
    let got: Vec<_> = vms[1].got.iter().map(|got| got.1[18]).collect();
    assert_eq!((got, net.switch().counters(1).overrun), (vec![1], 2));
    assert_eq!(vms[0].take(&memories[0]), 3);
    assert_eq!(net.switch().counters(0).sent, 3);
}

/// A queue that its driver enables begins with its first entry, whatever its memory says of an earlier one.
#[test]
fn queues_begin_at_their_beginning() {
    let random = &mut Random(7);
    let memories = memories(&Fuse::default());
    let mut vms = simple(&memories, random);
    for (port, guest) in [(0, &vms[0].send), (1, &vms[1].receive)] {
        memories[port].put(guest.ring.layout.areas().device + 2, &5_u16.to_le_bytes());
    }
    let mut net = Net::new();
    attach(&mut net, &vms, &memories, false);
    let bytes = packet(random, 0, None, 0, 46);
    assert!(vms[0].send(&memories[0], random, PLAIN, &bytes));
    run(&mut net, &memories, 0);
    let (sent, came) = (vms[0].send.take(&memories[0]), vms[1].receive.take(&memories[1]));
    assert_eq!((sent.len(), came.len()), (1, 1));
}

/// A large packet waits for many buffers: those that are there are too few, and the next one is notified of.
#[test]
fn too_few_buffers_are_no_reason_not_to_notify() {
    let random = &mut Random(5);
    let memories = memories(&Fuse::default());
    let mut vms: Vec<_> = memories.iter().map(|ram| Vm::new(ram, false, true)).collect();
    let mut net = Net::new();
    attach(&mut net, &vms, &memories, false);
    let bytes = packet(random, 1, Some(0), 0, 10);
    assert!(vms[1].send(&memories[1], random, PLAIN, &bytes));
    run(&mut net, &memories, 0);
    let bytes = packet(random, 0, Some(1), 1, 1560);
    assert!(vms[0].send(&memories[0], random, PLAIN, &bytes));
    let request = Request { writable: vec![1536], ..Request::default() };
    vms[1].receive.ask(&memories[1], &request).unwrap();
    for at in 0..2 {
        assert_eq!(net.pump(&memories, 0, 100, 9), Ok(Rest::Full(1, PATIENCE)), "{at}");
        assert_eq!(net.arm(1, &memories[1]), Ok(true));
    }
    let (_, wanted) = vms[1].receive.ask(&memories[1], &request).unwrap();
    assert!(wanted);
    assert_eq!(net.pump(&memories, 0, 100, 9), Ok(Rest::Idle));
    vms[1].take(&memories[1]);
    assert!(vms[1].got.pop_front().unwrap().1 == bytes);
}

#[test]
fn who_lies_about_itself_is_counted() {
    let random = &mut Random(6);
    let memories = memories(&Fuse::default());
    let mut vms = vms(random, &memories);
    let mut net = Net::new();
    attach(&mut net, &vms, &memories, false);
    vms[1].refill(&memories[1], random, 8);
    vms[2].refill(&memories[2], random, 8);
    let spoofed = packet(random, 2, Some(1), 1, 5);
    vms[0].send(&memories[0], random, PLAIN, &spoofed);
    vms[0].send(&memories[0], random, PLAIN, &[1; 13]);
    let to_itself = packet(random, 0, Some(0), 1, 5);
    vms[0].send(&memories[0], random, PLAIN, &to_itself);
    run(&mut net, &memories, 0);
    let counters = net.switch().counters(0);
    assert_eq!((counters.spoofed, counters.malformed, counters.unwanted, counters.sent), (1, 1, 1, 0));
    assert_eq!(vms[0].take(&memories[0]), 3, "the driver has its buffers back");
    net.switch().attach(1, Rules { isolated: true, ..Rules::default() });
    net.switch().attach(0, Rules { isolated: true, ..Rules::default() });
    let bytes = packet(random, 0, Some(1), 1, 5);
    vms[0].send(&memories[0], random, PLAIN, &bytes);
    run(&mut net, &memories, 0);
    vms[1].take(&memories[1]);
    assert!(vms[1].got.is_empty());
    // A ring that breaks rules is its own VM's.
    vms[0].send.ring.offer(&memories[0], 4, 99, 5);
    assert_eq!(net.pump(&memories, 0, 0, 9), Err(Violation::Head(99)));
    net.set_device(0, None);
    assert_eq!(net.pump(&memories, 0, 0, 9), Ok(Rest::Idle));
}

/// The switch is killed at any step and started anew: each packet arrives; one may arrive twice, and none is damaged or out of order.
#[test]
fn a_switch_that_is_killed_at_any_step_loses_nothing() {
    let mut steps = 0;
    loop {
        let random = &mut Random(0x7377);
        let fuse = Fuse::default();
        let memories = memories(&fuse);
        let mut vms = vms(random, &memories);
        let mut net = Net::new();
        attach(&mut net, &vms, &memories, false);
        let mut expected = [(); VMS].map(|()| Vec::new());
        for number in 0..5 {
            let from = random.below(3) as usize;
            let to = Some(random.below(3) as usize).filter(|_| random.below(4) > 0);
            let bytes = packet(random, from, to, number, 150 * number as usize);
            assert!(vms[from].send(&memories[from], random, PLAIN, &bytes));
            // Who is not known yet is sent to as all are.
            (0..VMS)
                .filter(|&other| other != from)
                .for_each(|other| expected[other].push((to, from, bytes.clone())));
        }
        vms.iter_mut().zip(&memories).for_each(|(vm, ram)| vm.refill(ram, random, 64));
        fuse.arm(steps);
        run(&mut net, &memories, 0);
        let blown = fuse.is_blown();
        fuse.mend();
        if blown {
            let mut second = Net::new();
            attach(&mut second, &vms, &memories, true);
            let interrupts = run(&mut second, &memories, 0);
            let told: std::collections::BTreeSet<_> = interrupts.into_iter().collect();
            assert_eq!(told.len(), 6, "each queue is told");
        }
        for (port, vm) in vms.iter_mut().enumerate() {
            vm.take(&memories[port]);
            assert_eq!(vm.send.in_flight(), 0);
            let mut got: Vec<_> = vm.got.drain(..).map(|got| got.1).collect();
            let before = got.len();
            got.dedup();
            assert!(before <= got.len() + 1, "one packet may come again, at once");
            for sender in 0..VMS {
                let sent: Vec<_> = expected[port].iter().filter(|(_, from, _)| *from == sender).collect();
                let mut sent = sent.into_iter();
                for bytes in got.iter().filter(|bytes| bytes[6..12] == mac(sender)) {
                    // What is not for this port may have come here before the switch had learned.
                    let found = sent.by_ref().find(|(to, _, sent)| {
                        assert!(sent == bytes || to.is_some_and(|to| to != port), "step {steps}: lost");
                        sent == bytes
                    });
                    assert!(found.is_some(), "step {steps}: damaged or out of order");
                }
                assert!(sent.all(|(to, _, _)| to.is_some_and(|to| to != port)), "step {steps}: lost");
            }
        }
        if !blown {
            break;
        }
        steps += 1;
    }
    assert!(steps > 50, "{steps}");
}

/// VMs whose packets lie in one buffer, each of which has buffers.
fn simple(memories: &[Ram; VMS], random: &mut Random) -> Vec<Vm> {
    let of = |ram| {
        let mut vm = Vm::new(ram, false, true);
        vm.simple = true;
        vm.refill(ram, random, 30);
        vm
    };
    memories.iter().map(of).collect()
}

/// Every VM has told the switch where it is.
fn meet(net: &mut Net, vms: &mut [Vm], memories: &[Ram; VMS], random: &mut Random) {
    for port in 0..VMS {
        let bytes = packet(random, port, None, 0, 46);
        assert!(vms[port].send(&memories[port], random, PLAIN, &bytes));
    }
    run(net, memories, 0);
    vms.iter_mut().zip(memories).for_each(|(vm, ram)| {
        vm.take(ram);
        vm.got.clear();
    });
}

/// Where the packet before went does not decide alone: each is to wait for its time.
#[test]
fn a_limited_port_waits_within_a_call() {
    let random = &mut Random(4);
    let memories = memories(&Fuse::default());
    let mut vms = simple(&memories, random);
    let mut net = Net::new();
    attach(&mut net, &vms, &memories, false);
    // A microsecond for each byte, and 200 bytes at once.
    let rules = Rules { mac: Some(mac(0)), rate: Some(Rate::new(8_000_000, 200)), ..Rules::default() };
    net.switch().attach(0, rules);
    meet(&mut net, &mut vms, &memories, random);
    for number in 0..6 {
        let bytes = packet(random, 0, Some(1), number, 100);
        assert!(vms[0].send(&memories[0], random, PLAIN, &bytes));
    }
    assert!(matches!(net.pump(&memories, 0, 0, 64), Ok(Rest::Wait(_))));
    let sent = vms[0].take(&memories[0]);
    assert!((1..4).contains(&sent), "{sent} at once");
    assert_eq!(net.pump(&memories, 0, 1_000_000_000, 1), Ok(Rest::Spent));
    assert_eq!(vms[0].take(&memories[0]), 1);
}

/// One address may be behind two ports, in two VLANs.
#[test]
fn packets_of_one_call_go_by_their_vlans() {
    let random = &mut Random(5);
    let memories = memories(&Fuse::default());
    let mut vms = simple(&memories, random);
    let mut net = Net::new();
    attach(&mut net, &vms, &memories, false);
    (0..VMS).for_each(|port| net.switch().attach(port, Rules::default()));
    let tagged = |to: [u8; 6], from: [u8; 6], vlan: u8| {
        [&to[..], &from[..], &[0x81, 0, 0, vlan, 8, 0], &[vlan; 60]].concat()
    };
    for (port, vlan) in [(1, 5), (2, 6)] {
        assert!(vms[port].send(&memories[port], random, PLAIN, &tagged(mac(0), mac(7), vlan)));
    }
    run(&mut net, &memories, 0);
    for vlan in [5, 6, 5] {
        assert!(vms[0].send(&memories[0], random, PLAIN, &tagged(mac(7), mac(0), vlan)));
    }
    vms.iter_mut().zip(&memories).for_each(|(vm, ram)| {
        vm.take(ram);
        vm.got.clear();
    });
    run(&mut net, &memories, 0);
    for (port, vlans) in [(1, vec![5, 5]), (2, vec![6])] {
        vms[port].take(&memories[port]);
        let got: Vec<u8> = vms[port].got.iter().map(|(_, bytes)| bytes[15]).collect();
        assert_eq!(got, vlans, "port {port}");
    }
}

/// Packets in one buffer keep to the queue of their flow, too, and only wanted ones come.
#[test]
fn queues_and_wishes_hold_for_all_packets() {
    let random = &mut Random(6);
    let memories = memories(&Fuse::default());
    let mut vms = simple(&memories, random);
    let mut net = Net::new();
    attach(&mut net, &vms, &memories, false);
    // The sender's other queue serves as the receiver's second one.
    let mut second = Guest::new(&memories[1], Ram::BASE + 0xc_0000, 16, OPTIONS, 0x1000);
    while second.ask(&memories[1], &Request { writable: vec![1600], ..Request::default() }).is_some() {}
    let layout = Some((second.ring.layout, OPTIONS));
    assert_eq!(net.set_queue((1, 2), &memories[1], layout, false), Ok(true));
    net.device(1).unwrap().control.pairs = 2;
    meet(&mut net, &mut vms, &memories, random);
    second.take(&memories[1]);
    for port in 0..8 {
        let mut bytes =
            [&mac(1)[..], &mac(0)[..], &[8, 0, 0x45], &[0; 8], &[17], &[0; 10], &[port, 0, 0, 1]].concat();
        bytes.extend([port; 40]);
        assert!(vms[0].send(&memories[0], random, PLAIN, &bytes));
    }
    run(&mut net, &memories, 0);
    vms[1].take(&memories[1]);
    let (first, second) = (vms[1].got.len(), second.take(&memories[1]).len());
    assert!(first > 0 && second > 0 && first + second == 8, "{first} and {second}");
    vms[1].got.clear();
    // The command of section 5.1.6.5.1: not all packets any more, but those to the device's address.
    let mut commands = Guest::new(&memories[1], Ram::BASE + 0xe_0000, 4, OPTIONS, 0x100);
    let not_all =
        Request { readable: vec![0; 3], readable_cuts: vec![3], writable: vec![1], indirect: false };
    commands.ask(&memories[1], &not_all).unwrap();
    let mut queue = Queue::new(commands.ring.layout, OPTIONS, 8);
    let limits = Limits { may_change: false, pairs: 2 };
    assert_eq!(net.control(1, &mut queue, &memories[1], &limits, |_| {}), Ok((true, false)));
    net.device(1).unwrap().control.pairs = 1;
    for to in [mac(1), [0; 6]] {
        net.device(1).unwrap().control.mac = to;
        let bytes = packet(random, 0, Some(1), 1, 100);
        assert!(vms[0].send(&memories[0], random, PLAIN, &bytes));
        run(&mut net, &memories, 0);
        vms[1].take(&memories[1]);
        assert_eq!(vms[1].got.drain(..).count(), usize::from(to == mac(1)), "it is not for this address");
    }
}

/// A pair without buffers holds up who sends to it for as long as a device with one pair does, whatever the device's other pair takes meanwhile.
#[test]
fn what_another_pair_takes_prolongs_nobodys_wait() {
    const STEP: u64 = PATIENCE / 20;
    let random = &mut Random(7);
    let memories = memories(&Fuse::default());
    let mut vms = simple(&memories, random);
    let mut net = Net::new();
    attach(&mut net, &vms, &memories, false);
    let second = Guest::new(&memories[1], Ram::BASE + 0xe_0000, 4, OPTIONS, 0x100);
    assert_eq!(net.set_queue((1, 2), &memories[1], Some((second.ring.layout, OPTIONS)), false), Ok(true));
    meet(&mut net, &mut vms, &memories, random);
    net.device(1).unwrap().control.pairs = 2;
    let to_pair = |from: usize, pair: usize| {
        let of_port = |port: u8| {
            let ends = [mac(1), mac(from)].concat();
            [&ends[..], &[8, 0, 0x45], &[0; 8], &[17], &[0; 10], &[port, 0, 0, 1], &[0; 40]].concat()
        };
        (0..=u8::MAX).map(of_port).find(|bytes| Steering::NEW.pair(flow(bytes), 2) == pair).unwrap()
    };
    assert!(vms[0].send(&memories[0], random, PLAIN, &to_pair(0, 1)));
    // It looks again when its wait is over.
    let mut now = 0;
    while let Ok(Rest::Full(1, left)) = net.pump(&memories, 0, now, 9) {
        assert!(now < 4 * PATIENCE, "it waits for ever");
        assert!(vms[2].send(&memories[2], random, PLAIN, &to_pair(2, 0)));
        assert_eq!(net.pump(&memories, 2, now + STEP, 9), Ok(Rest::Idle));
        vms[1].take(&memories[1]);
        now += left;
    }
    assert_eq!(now, PATIENCE, "then the packet is lost");
}

/// Packets in one buffer are counted as all are, and none is longer than it may be.
#[test]
fn plain_packets_are_counted_and_bounded() {
    let random = &mut Random(8);
    let memories = memories(&Fuse::default());
    let mut vms = simple(&memories, random);
    let mut net = Net::new();
    attach(&mut net, &vms, &memories, false);
    meet(&mut net, &mut vms, &memories, random);
    let before = [0, 1].map(|port| net.switch().counters(port));
    // A device takes 1600 bytes.
    for length in [100, 1600 - 22, 1600] {
        let bytes = packet(random, 0, Some(1), 1, length);
        assert!(vms[0].send(&memories[0], random, PLAIN, &bytes));
    }
    run(&mut net, &memories, 0);
    vms[1].take(&memories[1]);
    let lengths: Vec<_> = vms[1].got.iter().map(|(_, bytes)| bytes.len() as u64).collect();
    let [from, to] = [0, 1].map(|port| net.switch().counters(port));
    assert_eq!(lengths.len(), 2, "{lengths:?}");
    assert_eq!((from.sent - before[0].sent, from.malformed - before[0].malformed), (2, 1));
    assert_eq!(to.received - before[1].received, 2);
    assert_eq!(to.received_bytes - before[1].received_bytes, lengths.iter().sum());
}

/// What does not fit a plain packet goes the long way: buffers that are too short or not to be written, checksums that are open.
#[test]
fn what_is_not_plain_arrives_all_the_same() {
    let random = &mut Random(7);
    let memories = memories(&Fuse::default());
    let mut vms: Vec<_> = memories.iter().map(|ram| Vm::new(ram, true, true)).collect();
    vms.iter_mut().for_each(|vm| (vm.simple, vm.buffer) = (true, 300));
    vms.iter_mut().zip(&memories).for_each(|(vm, ram)| vm.refill(ram, random, 20));
    let mut net = Net::new();
    attach(&mut net, &vms, &memories, false);
    meet(&mut net, &mut vms, &memories, random);
    let open = NetworkHeader { flags: 1, checksum_start: 34, checksum_offset: 6, ..PLAIN };
    let read_only = Request { readable: vec![1; 400], readable_cuts: vec![400], ..Request::default() };
    for (number, (length, header)) in
        [(1000, PLAIN), (100, open), (100, PLAIN), (1400, PLAIN)].into_iter().enumerate()
    {
        let bytes = packet(random, 0, Some(1), number as u32, length);
        assert!(vms[0].send(&memories[0], random, header, &bytes));
        run(&mut net, &memories, 0);
        vms[1].take(&memories[1]);
        let (got, came) = vms[1].got.pop_front().expect("it has come");
        assert_eq!(
            (came, got.flags, got.checksum_start),
            (bytes, header.flags, header.checksum_start),
            "{number}"
        );
    }
    // A buffer that the device may not write is no room, however long it is.
    let mut vm = Vm::new(&memories[2], true, true);
    vm.receive.ask(&memories[2], &read_only).unwrap();
    (vm.simple, vm.buffer) = (true, 300);
    vm.refill(&memories[2], random, 20);
    net.set_device(2, Some(vm.device()));
    assert_eq!(net.set_queue((2, 0), &memories[2], Some((vm.receive.ring.layout, OPTIONS)), false), Ok(true));
    let bytes = packet(random, 0, Some(2), 9, 200);
    assert!(vms[0].send(&memories[0], random, PLAIN, &bytes));
    run(&mut net, &memories, 0);
    let replies = vm.receive.take(&memories[2]);
    assert_eq!((replies[0].written, replies.len()), (0, 2), "nothing was written to what is to be read");
    assert_eq!(replies[1].bytes[12..bytes.len() + 12], bytes);
}

/// Whoever receives cannot hold up all others in one call, by buffers that are many and have no room.
#[test]
fn buffers_of_no_use_count() {
    let random = &mut Random(1);
    let memories = memories(&Fuse::default());
    let mut vms: Vec<_> = memories.iter().map(|ram| Vm::new(ram, false, true)).collect();
    let mut net = Net::new();
    attach(&mut net, &vms, &memories, false);
    let useless = Request { writable: vec![0; 80], indirect: true, ..Request::default() };
    while vms[1].receive.ask(&memories[1], &useless).is_some() {}
    for number in 0..4 {
        let bytes = packet(random, 0, None, number, 46);
        assert!(vms[0].send(&memories[0], random, PLAIN, &bytes));
        assert_eq!(net.pump(&memories, 0, 0, 64), Ok(Rest::Spent));
        assert_eq!(net.pump(&memories, 0, 0, 64), Ok(Rest::Idle));
        assert_eq!(vms[0].take(&memories[0]), 1);
    }
}
