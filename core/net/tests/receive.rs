// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How a packet comes into buffers that lie anywhere.

use std::cell::RefCell;

use proptest::prelude::*;
use turnstile_net::frame::Frame;
use turnstile_net::plain::Plain;
use turnstile_net::receive::{Delivery, Room};
use turnstile_net::settings::Accepts;
use turnstile_net::transfer::{End, Transfer};
use turnstile_rig::{Fuse, Ram, Random, Ring};
use turnstile_virtio::config::NetworkHeader;
use turnstile_virtio::device::{Queue, Span};
use turnstile_virtio::memory::{Memory, Outside};
use turnstile_virtio::ring::{Buffer, Options};

const OPTIONS: Options = Options { indirect: true, event_idx: false };
const NEXT: u16 = 1;
const WRITE: u16 = 2;
/// The device's header.
const HEADER: usize = 12;
/// What memory has where nothing was written.
const OLD: u8 = 0xaa;

/// Memory that knows where something was copied to.
struct Watched {
    ram: Ram,
    copied: RefCell<Vec<Span>>,
}

impl Watched {
    fn new() -> Self {
        Self { ram: Ram::new(0x2_0000, Fuse::default()), copied: RefCell::default() }
    }
}

impl Memory for Watched {
    fn contains(&self, address: u64, length: u64) -> bool {
        self.ram.contains(address, length)
    }

    fn together(&self, address: u64) -> u64 {
        self.ram.together(address)
    }

    fn load(&self, address: u64) -> Result<u16, Outside> {
        self.ram.load(address)
    }

    fn store(&self, address: u64, value: u16) -> Result<(), Outside> {
        self.ram.store(address, value)
    }

    fn read(&self, address: u64, bytes: &mut [u8]) -> Result<(), Outside> {
        self.ram.read(address, bytes)
    }

    fn write(&self, address: u64, bytes: &[u8]) -> Result<(), Outside> {
        self.ram.write(address, bytes)
    }

    fn fence(&self) {}
}

impl Transfer for Watched {
    fn transfer(&self, from: Span, to: &Self, address: u64) -> Result<(), End> {
        to.copied.borrow_mut().push(Span { address, length: from.length });
        self.ram.transfer(from, &to.ram, address)
    }
}

/// A driver's buffers: what each chain has, how many buffers that are, and what of them lies together.
#[derive(Default)]
struct Buffers {
    chains: Vec<u32>,
    counts: Vec<u16>,
    runs: Vec<Span>,
}

impl Buffers {
    /// Offers buffers, some of them one behind the other, some of no use, some two in a chain.
    fn offer(random: &mut Random, ram: &Ram, ring: &Ring) -> Self {
        let (mut buffers, mut at, mut index) = (Self::default(), ring.end, 0);
        let table = ring.layout.areas().descriptors;
        for _ in 0..12 {
            let (head, pieces) = (index, 1 + u16::from(random.below(5) == 0));
            let is_use = random.below(6) != 0;
            buffers.chains.push(0);
            buffers.counts.push(pieces);
            for piece in 0..pieces {
                at += if random.below(3) == 0 { random.below(20) } else { 0 };
                let length = if random.below(8) == 0 { 0 } else { 1 + random.below(400) as u32 };
                let next = if piece + 1 < pieces { NEXT } else { 0 };
                let flags = next | if is_use { WRITE } else { 0 };
                Ring::describe(ram, table, index.into(), (at, length), flags, index + 1);
                index += 1;
                if is_use && length != 0 {
                    buffers.add(Span { address: at, length });
                    at += u64::from(length);
                }
            }
            let entry = buffers.chains.len() as u16 - 1;
            ring.offer(ram, entry, head, entry + 1);
        }
        buffers
    }

    fn add(&mut self, span: Span) {
        *self.chains.last_mut().unwrap() += span.length;
        match self.runs.last_mut() {
            Some(last) if last.address + u64::from(last.length) == span.address => {
                last.length += span.length;
            }
            _ => self.runs.push(span),
        }
    }

    /// Where the bytes from `begin` to `end` go.
    fn part(&self, begin: u32, end: u32) -> Vec<Span> {
        let mut passed = 0;
        let part = self.runs.iter().filter_map(|run| {
            let (first, last) =
                (begin.max(passed) - passed, end.min(passed + run.length).saturating_sub(passed));
            passed += run.length;
            let address = run.address + u64::from(first);
            (first < last).then(|| Span { address, length: last - first })
        });
        part.collect()
    }
}

/// A driver whose buffers are small: what needs more of them than a packet may have is not waited for, and what needs more than there are is.
#[test]
fn a_packet_of_too_many_buffers_is_no_packet_that_waits() {
    let offered = |count: u16| {
        let [from, to] = [(); 2].map(|()| Watched::new());
        let [sender, receiver] = [&from, &to].map(|memory| Ring::new(&memory.ram, Ram::BASE, 32, OPTIONS));
        for index in 0..count {
            let buffer = (receiver.end + 0x100 * u64::from(index), 64);
            Ring::describe(&to.ram, receiver.layout.areas().descriptors, index.into(), buffer, 2, 0);
            receiver.offer(&to.ram, index, index, index + 1);
        }
        from.ram.put(sender.end, &[0; HEADER + 200]);
        Ring::describe(
            &from.ram,
            sender.layout.areas().descriptors,
            0,
            (sender.end, HEADER as u32 + 200),
            0,
            0,
        );
        sender.offer(&from.ram, 0, 0, 1);
        let [mut queue, mut target] = [sender, receiver].map(|ring| Queue::new(ring.layout, OPTIONS, 16));
        let mut frame = Frame::<32>::new();
        let mut chain = queue.pop(&from).unwrap().unwrap();
        frame.read(&from, &mut chain, &Accepts::default(), 10_000).unwrap().unwrap();
        queue.complete(&from, chain.finish(), 0).unwrap();
        Room::<3>::new().deliver((&mut target, &to), true, &from, frame.packet()).unwrap()
    };
    assert_eq!([2, 3, 4].map(offered), [Delivery::Full, Delivery::TooLong, Delivery::TooLong]);
}

proptest! {
    /// Each byte comes where it belongs, no other byte changes, and buffers that lie one behind the other are copied to at once.
    #[test]
    fn buffers_behind_each_other_are_one(seed in 1u64..) {
        let random = &mut Random(seed);
        let [from, to] = [(); 2].map(|()| Watched::new());
        let [sender, receiver] = [&from, &to].map(|memory| Ring::new(&memory.ram, Ram::BASE, 32, OPTIONS));
        to.ram.put(receiver.end, &[OLD; 0x4000]);
        let buffers = Buffers::offer(random, &to.ram, &receiver);
        let room: u32 = buffers.chains.iter().sum();
        prop_assume!(room >= 200);
        let length = 100 + random.below(u64::from(room) - 199) as u32;
        let packet = random.bytes(length as usize);
        from.ram.put(sender.end, &[&[0; HEADER][..], &packet].concat());
        let table = sender.layout.areas().descriptors;
        Ring::describe(&from.ram, table, 0, (sender.end, HEADER as u32 + length), 0, 0);
        sender.offer(&from.ram, 0, 0, 1);

        let [mut queue, mut target] = [sender, receiver].map(|ring| Queue::new(ring.layout, OPTIONS, 16));
        let (mut frame, mut place) = (Frame::<32>::new(), Room::<80>::new());
        let mut chain = queue.pop(&from).unwrap().unwrap();
        frame.read(&from, &mut chain, &Accepts::default(), 10_000).unwrap().unwrap();
        let delivery = place.deliver((&mut target, &to), true, &from, frame.packet()).unwrap();
        prop_assert_eq!(delivery, Delivery::Done);
        queue.complete(&from, chain.finish(), 0).unwrap();

        let all = HEADER as u32 + length;
        let copied = to.copied.take();
        let front = all - copied.iter().map(|span| span.length).sum::<u32>();
        prop_assert_eq!(copied, buffers.part(front, all));
        let mut left = all;
        let mut chains = Vec::new();
        while left != 0 {
            let written = left.min(buffers.chains[chains.len()]);
            chains.push(written);
            left -= written;
        }
        prop_assert_eq!(usize::from(receiver.used(&to.ram)), chains.len());
        let read: u16 = buffers.counts[..chains.len()].iter().sum();
        prop_assert_eq!((place.take_read(), place.take_read()), (read.into(), 0));
        for (entry, written) in chains.iter().enumerate() {
            let at = receiver.layout.areas().device + 4 + 8 * entry as u64 + 4;
            prop_assert_eq!(to.ram.get(at, 4), written.to_le_bytes());
        }
        let mut expected = vec![OLD; 0x4000];
        let count = (chains.len() as u16).to_le_bytes();
        let mut bytes = [&[0; HEADER - 2][..], &count, &packet].concat().into_iter();
        for span in buffers.part(0, all) {
            let at = (span.address - receiver.end) as usize;
            expected[at..at + span.length as usize].fill_with(|| bytes.next().unwrap());
        }
        prop_assert!(to.ram.get(receiver.end, 0x4000) == expected, "bytes are elsewhere");
    }
}

/// Of a packet that ends with the memory of its sender, no more is read than there is.
#[test]
fn a_flow_is_told_by_what_a_packet_has() {
    let (size, random) = (0x1_0000, &mut Random(4));
    let ram = Ram::new(size, Fuse::default());
    for length in [21, 42, 57, 58, 59, 1000] {
        let (bytes, end) = (random.bytes(length), Ram::BASE + size as u64);
        let address = end - length as u64 - 12;
        ram.put(address, &NetworkHeader::PLAIN.to_bytes());
        ram.put(address + 12, &bytes);
        let buffer = Buffer { address, length: length as u32 + 12, writable: false };
        let plain = Plain::read::<_, true>(&ram, buffer, 1600).unwrap().unwrap();
        let mut head = [0; 58];
        assert_eq!(plain.longer_head(&ram, &mut head), Ok(length.min(58)));
        assert_eq!(head[..length.min(58)], bytes[..length.min(58)]);
    }
}
