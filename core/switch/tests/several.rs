// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Packets of devices with several pairs of queues, and packets whose checksums are open, which Linux sends most.

mod common;

use common::{Net, OPTIONS, VMS, Vm, attach, mac, memories, run};
use turnstile_rig::{Fuse, Guest, Ram, Random, Request};
use turnstile_switch::flow::flow;
use turnstile_switch::port::Rules;
use turnstile_switch::relay::Rest;
use turnstile_virtio::config::NetworkHeader;

const PLAIN: NetworkHeader = NetworkHeader::PLAIN;

/// A datagram of UDP over IPv4 between two ports, whose checksum is zero.
fn datagram(from: usize, to: usize, ports: [u8; 2], payload: usize) -> Vec<u8> {
    let length = (20 + 8 + payload) as u16;
    let mut bytes = [&mac(to)[..], &mac(from)[..], &[8, 0, 0x45, 0], &length.to_be_bytes()].concat();
    bytes.extend([0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, from as u8, 10, 0, 0, to as u8]);
    bytes.extend([0x40, ports[0], 0x40, ports[1], 0, 0, 0, 0]);
    bytes.extend((0..payload).map(|byte| byte as u8));
    bytes
}

/// A frame of ARP, which ends before a flow's ports would.
fn arp(from: usize, to: usize) -> Vec<u8> {
    [&mac(to)[..], &mac(from)[..], &[8, 6], &[7; 28]].concat()
}

/// A packet of TCP over IPv6.
fn six(from: usize, to: usize) -> Vec<u8> {
    let ends = [[from as u8; 16], [to as u8; 16]].concat();
    let ports = [0, from as u8, 0, to as u8];
    let ip = [0x60, 0, 0, 0, 0, 20, 6, 64];
    [&mac(to)[..], &mac(from)[..], &[0x86, 0xdd], &ip[..], &ends, &ports, &[0; 16]].concat()
}

/// Three VMs; the last one has agreed to no offloads.
fn some(memories: &[Ram; VMS], random: &mut Random) -> (Net, Vec<Vm>) {
    let of = |(number, ram)| {
        let mut vm = Vm::new(ram, number != 2, true);
        vm.simple = true;
        vm.refill(ram, random, 30);
        vm
    };
    let vms = memories.iter().enumerate().map(of).collect::<Vec<Vm>>();
    let (mut net, mut vms) = (Net::new(), vms);
    attach(&mut net, &vms, memories, false);
    // Every VM has told the switch where it is.
    for port in 0..VMS {
        assert!(vms[port].send(&memories[port], random, PLAIN, &arp(port, port)));
    }
    run(&mut net, memories, 0);
    vms.iter_mut().zip(memories).for_each(|(vm, ram)| {
        vm.take(ram);
        vm.got.clear();
    });
    (net, vms)
}

/// Sends by the first pair, as a driver of one pair does or as one of several does.
fn pump(net: &mut Net, memories: &[Ram; VMS], port: usize, is_of_several: bool) {
    let rest = match is_of_several {
        true => net.pump_pair(memories, (port, 0), 0, 9),
        false => net.pump(memories, port, 0, 9),
    };
    assert_eq!(rest, Ok(Rest::Idle));
    net.interrupt(memories, |_, _| {});
}

/// A checksum that is open stays so for who takes it, with nothing else of the sender's header, and is closed for who does not.
#[test]
fn checksums_are_open_for_who_takes_them() {
    for is_of_several in [false, true] {
        let random = &mut Random(1);
        let memories = memories(&Fuse::default());
        let (mut net, mut vms) = some(&memories, random);
        let open = NetworkHeader { flags: 1, checksum_start: 34, checksum_offset: 6, ..PLAIN };
        let odd = NetworkHeader { flags: 0xf1, header_length: 7, gso_size: 9, buffers: 5, ..open };
        for (to, payload) in [(1, 22), (1, 1000), (2, 22), (2, 1000)] {
            let bytes = datagram(0, to, [1, 2], payload);
            assert!(vms[0].send(&memories[0], random, odd, &bytes));
            pump(&mut net, &memories, 0, is_of_several);
            vms[to].take(&memories[to]);
            let (header, came) = vms[to].got.pop_front().expect("it has come");
            match to {
                1 => assert_eq!((header, came), (NetworkHeader { buffers: 1, ..open }, bytes)),
                _ => {
                    assert_eq!(header, NetworkHeader { buffers: 1, ..PLAIN });
                    assert_eq!((&came[..40], &came[42..]), (&bytes[..40], &bytes[42..]));
                    assert_ne!(came[40..42], [0, 0], "the sum is there");
                }
            }
        }
    }
}

/// An address is behind the port that has sent from it last, also within a call, whatever kind of packet that was: where the packet before went does not
/// decide then.
#[test]
fn an_address_moves_within_a_call() {
    let open = NetworkHeader { flags: 1, checksum_start: 34, checksum_offset: 6, ..PLAIN };
    for (is_of_several, kind, is_simple) in [
        (false, PLAIN, true),
        (false, PLAIN, false),
        (false, open, true),
        (true, PLAIN, true),
        (true, PLAIN, false),
        (true, open, true),
    ] {
        let random = &mut Random(4);
        let memories = memories(&Fuse::default());
        let (mut net, mut vms) = some(&memories, random);
        (0..VMS).for_each(|port| net.switch().attach(port, Rules::default()));
        assert!(vms[1].send(&memories[1], random, PLAIN, &datagram(1, 0, [1, 2], 22)));
        pump(&mut net, &memories, 1, false);
        let before = net.switch().counters(0).unwanted;
        for (from, to, header, simple) in [(0, 1, PLAIN, true), (1, 2, kind, is_simple), (0, 1, PLAIN, true)]
        {
            vms[0].simple = simple;
            assert!(vms[0].send(&memories[0], random, header, &datagram(from, to, [1, 2], 22)));
        }
        pump(&mut net, &memories, 0, is_of_several);
        vms[1].take(&memories[1]);
        let came = vms[1].got.iter().filter(|(_, bytes)| bytes[..6] == mac(1)).count();
        let unwanted = net.switch().counters(0).unwanted - before;
        assert_eq!((came, unwanted), (1, 1), "{is_of_several} {is_simple} {kind:?}");
    }
}

/// What is open in a way that makes no sense, or was not agreed on, is dropped and counted.
#[test]
fn senseless_checksums_are_dropped() {
    for is_of_several in [false, true] {
        let random = &mut Random(2);
        let memories = memories(&Fuse::default());
        let (mut net, mut vms) = some(&memories, random);
        let bytes = datagram(0, 1, [1, 2], 22);
        let length = bytes.len() as u16;
        let cases = [
            (0, 34, 6, true),
            (0, 14, length - 16, true),
            (0, 14, length - 15, false),
            // Where the VLAN of a packet would be, and its type.
            (0, 14, 0, false),
            (0, 14, 5, false),
            (0, 14, 6, true),
            (0, 13, 6, false),
            (0, u16::MAX, u16::MAX, false),
            (2, 34, 6, false),
        ];
        for (from, checksum_start, checksum_offset, is_right) in cases {
            let header = NetworkHeader { flags: 1, checksum_start, checksum_offset, ..PLAIN };
            let before = net.switch().counters(from);
            assert!(vms[from].send(&memories[from], random, header, &datagram(from, 1, [1, 2], 22)));
            pump(&mut net, &memories, from, is_of_several);
            vms[1].take(&memories[1]);
            let malformed = net.switch().counters(from).malformed - before.malformed;
            let came = vms[1].got.drain(..).count();
            assert_eq!((came, malformed), (usize::from(is_right), u64::from(!is_right)), "{header:?}");
        }
    }
}

/// A flow comes by the pair by which its receiver has sent some of it, in however many buffers its packets lie, whoever of the two has one
/// pair or several.
#[test]
fn a_flow_keeps_to_its_pair() {
    let random = &mut Random(3);
    let memories = memories(&Fuse::default());
    let (mut net, mut vms) = some(&memories, random);
    // Another pair of the second VM.
    let mut receive = Guest::new(&memories[1], Ram::BASE + 0xc_0000, 16, OPTIONS, 0x1000);
    let mut send = Guest::new(&memories[1], Ram::BASE + 0xe_8000, 16, OPTIONS, 0x1000);
    let pairs = [(2, &receive), (3, &send)].map(|(number, guest)| (number, guest.ring.layout));
    for (number, layout) in pairs {
        assert_eq!(net.set_queue((1, number), &memories[1], Some((layout, OPTIONS)), false), Ok(true));
    }
    net.device(1).unwrap().control.pairs = 2;
    let room = Request { writable: vec![1600], ..Request::default() };
    for bytes in
        [arp, six, |from, to| datagram(from, to, [5, 5], 22), |from, to| datagram(from, to, [9, 9], 9)]
    {
        for pair in [1, 0, 1] {
            let mut readable = PLAIN.to_bytes().to_vec();
            readable.extend(bytes(1, 0));
            let readable_cuts = vec![readable.len() as u32];
            let request = Request { readable, readable_cuts, ..Request::default() };
            let sender = if pair == 1 { &mut send } else { &mut vms[1].send };
            assert!(sender.ask(&memories[1], &request).is_some());
            assert_eq!(net.pump_pair(&memories, (1, pair), 0, 9), Ok(Rest::Idle));
            for (is_of_several, is_simple) in [(false, true), (false, false), (true, true), (true, false)] {
                if is_simple && !is_of_several {
                    while receive.ask(&memories[1], &room).is_some() {}
                }
                vms[0].simple = is_simple;
                assert!(vms[0].send(&memories[0], random, PLAIN, &bytes(0, 1)));
                pump(&mut net, &memories, 0, is_of_several);
                let second = receive.take(&memories[1]).len();
                vms[1].take(&memories[1]);
                let first = vms[1].got.drain(..).count();
                let expected = if pair == 1 { (0, 1) } else { (1, 0) };
                assert_eq!((first, second), expected, "{is_of_several} {is_simple}");
                vms[0].take(&memories[0]);
            }
            send.take(&memories[1]);
            vms[1].refill(&memories[1], random, 4);
        }
    }
    run(&mut net, &memories, 0);
}

/// Only the first fragment of a datagram has its ports: all of them go by addresses. So does what has options, or is no TCP or UDP.
#[test]
fn flows_have_ports_where_all_their_packets_do() {
    let changed = |place: usize, byte: u8, ports: [u8; 2]| {
        let mut bytes = datagram(0, 1, ports, 22);
        bytes[place] = byte;
        flow(&bytes)
    };
    let has_ports = |place, byte| changed(place, byte, [1, 2]) != changed(place, byte, [3, 4]);
    assert!(has_ports(20, 0x40), "it may not be cut");
    for (place, byte) in [(20, 0x20), (20, 0x01), (21, 1), (14, 0x46), (23, 1)] {
        assert!(!has_ports(place, byte), "{byte:#x} at {place}");
    }
    assert_ne!(flow(&datagram(0, 1, [1, 2], 22)), flow(&datagram(0, 2, [1, 2], 22)));
    assert_eq!(flow(&datagram(0, 1, [1, 2], 22)), flow(&datagram(1, 0, [2, 1], 22)));
}
