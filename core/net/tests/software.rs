// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Checksums and segments in software, against a receiver that knows nothing of how they were made.

use proptest::prelude::*;
use turnstile_net::checksum::Sum;
use turnstile_net::frame::{Frame, Malformed};
use turnstile_net::receive::{Delivery, Room};
use turnstile_net::settings::{Accepts, Settings};
use turnstile_net::software;
use turnstile_rig::{Fuse, Guest, Ram, Random, Request};
use turnstile_virtio::config::{Network, NetworkHeader};
use turnstile_virtio::device::Queue;
use turnstile_virtio::features::Features;
use turnstile_virtio::ring::Options;

/// RFC 1071, as it is said there: add with end-around carry, word by word.
fn ones(bytes: &[u8]) -> u16 {
    let mut sum = 0u16;
    for pair in bytes.chunks(2) {
        let word = u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or(0)]);
        let (wrapped, carry) = sum.overflowing_add(word);
        sum = wrapped + u16::from(carry);
    }
    sum
}

/// A segment of TCP as a driver sends it: headers with the sum of the pseudo header, payload, virtio's header.
struct Segment {
    header: NetworkHeader,
    bytes: Vec<u8>,
    payload: usize,
    ip: usize,
    tcp: usize,
}

const FLAGS: u8 = 0x80 | 0x10 | 0x08 | 0x01;

fn segment(
    random: &mut Random,
    is_v6: bool,
    vlan: bool,
    options: usize,
    payload: usize,
    size: u16,
) -> Segment {
    let mut bytes = random.bytes(12);
    if vlan {
        bytes.extend([0x81, 0, 0, 7]);
    }
    bytes.extend(if is_v6 { [0x86, 0xdd] } else { [8, 0] });
    let ip = bytes.len();
    let tcp_length = 20 + 4 * options + payload;
    if is_v6 {
        bytes.extend([0x60, 0, 0, 0]);
        bytes.extend((tcp_length as u16).to_be_bytes());
        bytes.extend([6, 64]);
        bytes.extend(random.bytes(32));
    } else {
        bytes.extend([0x45, 0]);
        bytes.extend(((20 + tcp_length) as u16).to_be_bytes());
        bytes.extend([0xff, 0xfe, 0x40, 0, 64, 6, 0, 0]);
        bytes.extend(random.bytes(8));
    }
    let tcp = bytes.len();
    bytes.extend(random.bytes(4));
    bytes.extend([0xff, 0xff, 0xff, 0x00]);
    bytes.extend(random.bytes(4));
    bytes.extend([((5 + options) << 4) as u8, FLAGS]);
    bytes.extend(random.bytes(6 + 4 * options));
    let addresses = if is_v6 { &bytes[ip + 8..ip + 40] } else { &bytes[ip + 12..ip + 20] };
    let mut pseudo = addresses.to_vec();
    pseudo.extend([0, 6]);
    pseudo.extend((tcp_length as u16).to_be_bytes());
    let sum = ones(&pseudo);
    bytes[tcp + 16..tcp + 18].copy_from_slice(&sum.to_be_bytes());
    let begin = bytes.len();
    bytes.extend(random.bytes(payload));
    let header = NetworkHeader {
        flags: 1,
        gso_type: if size == 0 { 0 } else { 0x80 | if is_v6 { 4 } else { 1 } },
        header_length: begin as u16,
        gso_size: size,
        checksum_start: tcp as u16,
        checksum_offset: 16,
        buffers: 0,
    };
    Segment { header, bytes, payload: begin, ip, tcp }
}

fn all() -> Accepts {
    Settings::new([2, 0, 0, 0, 0, 1]).features().into()
}

/// Sends a packet to a driver that takes no offloads. Returns what it has received.
fn send(
    random: &mut Random,
    header: NetworkHeader,
    bytes: &[u8],
    buffers: &[u32],
) -> Result<(Delivery, Vec<Vec<u8>>), Malformed> {
    let [from, to] = [0, 0].map(|_| Ram::new(0x20_0000, Fuse::default()));
    let options = Options { indirect: true, event_idx: false };
    let mut sender = Guest::new(&from, Ram::BASE, 4, options, 0x1_2000);
    let mut receiver = Guest::new(&to, Ram::BASE, 128, options, 0x1000);
    let mut readable = header.to_bytes().to_vec();
    readable.extend(bytes);
    let readable_cuts = random.cut(readable.len() as u32, 8);
    sender.ask(&from, &Request { readable, readable_cuts, writable: vec![], indirect: true }).unwrap();
    for &length in buffers {
        receiver
            .ask(&to, &Request { writable: random.cut(length, 3), indirect: true, ..Request::default() })
            .unwrap();
    }
    let mut queue = Queue::new(sender.ring.layout, options, 32);
    let mut target = Queue::new(receiver.ring.layout, options, 80);
    let (mut frame, mut room) = (Frame::<32>::new(), Room::<80>::new());
    let mut chain = queue.pop(&from).unwrap().unwrap();
    frame.read(&from, &mut chain, &all(), 1600).unwrap()?;
    assert!(!frame.suits(&Accepts::default()) && frame.suits(&all()));
    let delivery = software::deliver(&mut room, (&mut target, &to), false, &from, &mut frame).unwrap();
    queue.complete(&from, chain.finish(), 0).unwrap();
    target.publish(&to).unwrap();
    let packets = receiver.take(&to).into_iter().map(|reply| {
        assert_eq!(reply.bytes[..12], [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0], "nothing is open");
        reply.bytes[12..reply.written as usize].to_vec()
    });
    Ok((delivery, packets.collect()))
}

proptest! {
    #[test]
    fn sums_are_those_of_words(bytes in prop::collection::vec(any::<u8>(), 0..400), cuts in prop::collection::vec(0usize..400, 0..5)) {
        let mut cuts: Vec<_> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
        cuts.push(bytes.len());
        cuts.sort_unstable();
        let (mut sum, mut begin) = (Sum::default(), 0);
        for end in cuts {
            sum.add(&bytes[begin..end]);
            begin = end;
        }
        prop_assert_eq!(sum.finish(), !ones(&bytes));
    }

    /// What arrives is the payload, in packets whose lengths, sums, numbers and flags are right.
    #[test]
    fn segments_become_packets(
        seed in 1u64.., is_v6: bool, vlan: bool, options in 0usize..11, payload in 0usize..60_000, size in 500u16..1400,
    ) {
        let random = &mut Random(seed);
        let size = size.max((payload / 100) as u16);
        let Segment { header, bytes, payload: begin, ip, tcp } = segment(random, is_v6, vlan, options, payload, size);
        let (delivery, packets) = send(random, header, &bytes, &[1600; 128]).unwrap();
        prop_assert_eq!(delivery, Delivery::Done);
        prop_assert_eq!(packets.len(), payload.div_ceil(size.into()).max(1));
        let mut whole: Vec<u8> = Vec::new();
        for (index, packet) in packets.iter().enumerate() {
            let (is_first, is_last) = (index == 0, index + 1 == packets.len());
            prop_assert_eq!(&packet[..ip], &bytes[..ip]);
            let (length, addresses) = if is_v6 {
                (40 + usize::from(packet[ip + 4]) * 256 + usize::from(packet[ip + 5]), &packet[ip + 8..ip + 40])
            } else {
                prop_assert_eq!(ones(&packet[ip..ip + 20]), 0xffff, "the sum of IPv4's header");
                let id = u16::from_be_bytes([packet[ip + 4], packet[ip + 5]]);
                prop_assert_eq!(id, 0xfffeu16.wrapping_add(index as u16));
                (usize::from(packet[ip + 2]) * 256 + usize::from(packet[ip + 3]), &packet[ip + 12..ip + 20])
            };
            prop_assert_eq!(ip + length, packet.len());
            let mut summed = addresses.to_vec();
            summed.extend([0, 6]);
            summed.extend(((packet.len() - tcp) as u16).to_be_bytes());
            summed.extend(&packet[tcp..]);
            prop_assert_eq!(ones(&summed), 0xffff, "the sum of TCP");
            let sequence = u32::from_be_bytes(packet[tcp + 4..tcp + 8].try_into().unwrap());
            prop_assert_eq!(sequence, 0xffff_ff00u32.wrapping_add(whole.len() as u32));
            let flags = 0x10 | if is_first { 0x80 } else { 0 } | if is_last { 9 } else { 0 };
            prop_assert_eq!(packet[tcp + 13], flags);
            prop_assert_eq!(&packet[tcp + 18..begin], &bytes[tcp + 18..begin]);
            whole.extend(&packet[begin..]);
        }
        prop_assert!(whole == bytes[begin..]);
    }

    #[test]
    fn open_checksums_are_closed(seed in 1u64.., is_v6: bool, payload in 0usize..1400) {
        let random = &mut Random(seed);
        let Segment { header, bytes, tcp, ip, .. } = segment(random, is_v6, false, 0, payload, 0);
        let (_, packets) = send(random, header, &bytes, &[1600]).unwrap();
        let addresses = if is_v6 { ip + 8..ip + 40 } else { ip + 12..ip + 20 };
        let mut summed = packets[0][addresses].to_vec();
        summed.extend([0, 6]);
        summed.extend(((bytes.len() - tcp) as u16).to_be_bytes());
        summed.extend(&packets[0][tcp..]);
        prop_assert_eq!(ones(&summed), 0xffff);
        prop_assert!(packets[0][..tcp + 16] == bytes[..tcp + 16] && packets[0][tcp + 18..] == bytes[tcp + 18..]);
    }

    /// Whatever the headers say: an answer, in bounds.
    #[test]
    fn any_header_is_answered(seed in 1u64.., changes in prop::collection::vec((0usize..90, any::<u8>()), 1..6)) {
        let random = &mut Random(seed);
        let Segment { header, bytes, .. } = segment(random, seed % 2 == 0, seed % 3 == 0, 3, 3000, 600);
        let mut all = header.to_bytes().to_vec();
        all.extend(&bytes);
        changes.iter().for_each(|&(at, byte)| all[at] = byte);
        let (header, bytes) = all.split_at(12);
        let header = NetworkHeader::from_bytes(header.try_into().unwrap());
        if header.flags & 1 == 1 && let Ok((_, packets)) = send(random, header, bytes, &[1600; 128]) {
            prop_assert!(packets.len() <= 128);
        }
    }
}

#[test]
fn packets_that_make_no_sense_are_dropped() {
    let random = &mut Random(5);
    let Segment { header, bytes, .. } = segment(random, false, false, 0, 5000, 1000);
    let sent = |change: &dyn Fn(&mut NetworkHeader, &mut Vec<u8>)| {
        let (mut header, mut bytes) = (header, bytes.clone());
        change(&mut header, &mut bytes);
        send(&mut Random(9), header, &bytes, &[1600; 128]).map(|(_, packets)| packets.len())
    };
    assert_eq!(sent(&|_, _| {}), Ok(5));
    let wrong = Err(Malformed::Offload);
    assert_eq!(sent(&|header, _| header.flags = 0), wrong, "a segment whose checksum is not open");
    assert_eq!(sent(&|header, _| header.gso_size = 0), wrong);
    assert_eq!(sent(&|header, _| header.gso_size = 39), wrong, "more than 128 packets");
    assert_eq!(sent(&|header, _| header.gso_size = 40), Ok(125));
    for gso_type in [2, 3, 4, 5, 0x7f] {
        assert_eq!(sent(&|header, _| header.gso_type = gso_type), wrong, "{gso_type}");
    }
    assert_eq!(sent(&|header, _| header.checksum_offset = 15), wrong);
    assert_eq!(sent(&|header, _| header.checksum_start = 35), wrong);
    assert_eq!(sent(&|header, _| header.checksum_start = 65535), wrong);
    assert_eq!(sent(&|_, bytes| bytes[12] = 9), wrong, "no IP");
    assert_eq!(sent(&|_, bytes| bytes[14] = 0x55), wrong, "another version");
    assert_eq!(sent(&|_, bytes| bytes[14] = 0x44), wrong, "a header that is too short");
    assert_eq!(sent(&|_, bytes| bytes[23] = 17), wrong, "no TCP");
    assert_eq!(sent(&|_, bytes| bytes[46] = 0x40), wrong, "a header of TCP that is too short");
    assert_eq!(sent(&|_, bytes| bytes.truncate(13)), Err(Malformed::Length));
    assert_eq!(sent(&|_, bytes| bytes.resize(65554, 0)), Err(Malformed::Length));
    assert_eq!(sent(&|header, _| header.gso_type = 0), Err(Malformed::Length), "longer than a packet may be");
    for (length, is_right) in [(65549, true), (65550, false)] {
        let large = |header: &mut NetworkHeader, bytes: &mut Vec<u8>| {
            header.gso_size = u16::MAX;
            bytes.resize(length, 0);
        };
        assert_eq!(sent(&large).is_ok(), is_right, "as long as IP can say");
    }
}

/// What each kind of segment needs that its sender has agreed to.
#[test]
fn who_has_not_agreed_sends_nothing_open() {
    let read = |is_v6: bool, gso_type: u8, sender: Accepts| {
        let (random, ram) = (&mut Random(3), Ram::new(0x2_0000, Fuse::default()));
        let Segment { header, bytes, .. } = segment(random, is_v6, false, 0, 1000, 500);
        let options = Options { indirect: true, event_idx: false };
        let mut driver = Guest::new(&ram, Ram::BASE, 4, options, 0x1000);
        let header = NetworkHeader { gso_type, ..header };
        let readable = [&header.to_bytes()[..], &bytes].concat();
        let readable_cuts = vec![readable.len() as u32];
        driver.ask(&ram, &Request { readable, readable_cuts, ..Request::default() }).unwrap();
        let mut queue = Queue::new(driver.ring.layout, options, 32);
        let mut chain = queue.pop(&ram).unwrap().unwrap();
        let read = Frame::<32>::new().read(&ram, &mut chain, &sender, 1600).unwrap();
        queue.complete(&ram, chain.finish(), 0).unwrap();
        read
    };
    let none = [false, true];
    for (is_v6, gso_type) in [(false, 0), (false, 1), (false, 0x81), (true, 4), (true, 0x84)] {
        assert_eq!(read(is_v6, gso_type, all()), Ok(()));
        let changes = [
            (true, Accepts { checksum: none, ..all() }),
            (gso_type & 0x7f == 1, Accepts { tso4: none, ..all() }),
            (gso_type & 0x7f == 4, Accepts { tso6: none, ..all() }),
            (gso_type & 0x80 != 0, Accepts { ecn: none, ..all() }),
        ];
        for (is_needed, sender) in changes {
            let expected = if is_needed { Err(Malformed::Offload) } else { Ok(()) };
            assert_eq!(read(is_v6, gso_type, sender), expected, "{gso_type:#x} {sender:?}");
        }
    }
}

#[test]
fn what_was_not_agreed_on_is_dropped() {
    let settings = Settings { offloads: false, pairs: 2, mtu: 1400, ..Settings::new([2; 6]) };
    let features = settings.features();
    assert!(!features.intersects(Network::CSUM | Network::GUEST_TSO4 | Network::HOST_TSO6));
    assert!(features.contains(Network::MQ | Network::MTU | Network::MAC | Network::CTRL_VQ));
    assert_eq!(settings.longest(), 1418);
    let config = settings.configuration(true);
    assert_eq!((config.mtu, config.max_pairs, config.link_up), (1400, 2, true));
    assert!(turnstile_virtio::features::acceptable(
        features | Features::VERSION_1,
        features | Features::VERSION_1,
        Network::REQUIREMENTS
    ));
    assert_eq!(Accepts::from(features), Accepts { merge: true, ..Accepts::default() });
}
