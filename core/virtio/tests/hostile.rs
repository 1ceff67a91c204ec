// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Rings of a hostile driver or device: each broken rule by its name, and anything at all against a simple reading of the
//! specification.

mod common;
#[path = "hostile/reference.rs"]
mod reference;

use common::{BASE, Ram, Random, areas};
use proptest::prelude::*;
use turnstile_virtio::device::Cursor;
use turnstile_virtio::memory::Memory;
use turnstile_virtio::ring::{Areas, Buffer, Layout, Options};
use turnstile_virtio::violation::Violation;
use turnstile_virtio::{device, driver};

const SIZE: u16 = 8;
const LENGTH: usize = 0x20_0000;
const INDIRECT: Options = Options { indirect: true, event_idx: false };

/// A ring whose driver is this test: it writes bytes where the specification has fields.
struct Ring {
    ram: Ram,
    areas: Areas,
    heap: u64,
    queue: device::Queue,
}

impl Ring {
    fn new(options: Options) -> Self {
        let ram = Ram::new(LENGTH);
        let (areas, heap) = areas(SIZE);
        let layout = Layout::new(&ram, SIZE, areas).unwrap();
        Self {
            queue: device::Queue::new(layout, options, 1 << 10),
            ram,
            areas,
            heap: heap.next_multiple_of(16),
        }
    }

    fn describe(&self, table: u64, index: u64, address: u64, length: u32, flags: u16, next: u16) {
        let at = table + 16 * index;
        self.ram.put(at, &address.to_le_bytes());
        self.ram.put(at + 8, &length.to_le_bytes());
        self.ram.put(at + 12, &flags.to_le_bytes());
        self.ram.put(at + 14, &next.to_le_bytes());
    }

    fn direct(&self, index: u64, length: u32, flags: u16, next: u16) {
        self.describe(self.areas.descriptors, index, self.heap, length, flags, next);
    }

    fn offer(&self, entry: u16, head: u16, index: u16) {
        self.ram.put(self.areas.driver + 4 + 2 * u64::from(entry), &head.to_le_bytes());
        self.ram.put(self.areas.driver + 2, &index.to_le_bytes());
    }

    /// All buffers of the next chain.
    fn all(&mut self) -> Result<Vec<Buffer>, Violation> {
        let mut chain = self.queue.pop(&self.ram)?.expect("there is a chain");
        let mut buffers = Vec::new();
        let result = loop {
            match chain.next(&self.ram) {
                Ok(Some(buffer)) => buffers.push(buffer),
                Ok(None) => break Ok(buffers),
                Err(violation) => break Err(violation),
            }
        };
        assert_eq!(chain.next(&self.ram), Ok(None), "behind the end or an error is nothing");
        let token = chain.finish();
        self.queue.complete(&self.ram, token, 0).unwrap();
        result
    }

    fn only(mut self) -> Result<Vec<Buffer>, Violation> {
        self.offer(0, 0, 1);
        self.all()
    }
}

#[test]
fn chains_that_break_rules_are_named() {
    let ring = || Ring::new(INDIRECT);
    let check = |expected: Violation, options: Options, make: &dyn Fn(&Ring)| {
        let ring = Ring::new(options);
        make(&ring);
        assert_eq!(ring.only(), Err(expected));
    };
    check(Violation::Loop, INDIRECT, &|ring| ring.direct(0, 1, 1, 0));
    check(Violation::Next(8), INDIRECT, &|ring| ring.direct(0, 1, 1, 8));
    check(Violation::Order, INDIRECT, &|ring| {
        ring.direct(0, 1, 3, 1);
        ring.direct(1, 1, 0, 0);
    });
    check(Violation::Outside(BASE + LENGTH as u64 - 1), INDIRECT, &|ring| {
        ring.describe(BASE, 0, BASE + LENGTH as u64 - 1, 2, 0, 0);
    });
    check(Violation::Outside(u64::MAX), INDIRECT, &|ring| ring.describe(BASE, 0, u64::MAX, u32::MAX, 2, 0));
    check(Violation::Outside(0), INDIRECT, &|ring| ring.describe(BASE, 0, 0, 1, 0, 0));
    check(Violation::IndirectFeature, Options::default(), &|ring| ring.direct(0, 16, 4, 0));
    check(Violation::IndirectNext, INDIRECT, &|ring| ring.direct(0, 16, 5, 1));
    for length in [0, 8, 17, (1 << 20) + 16, u32::MAX] {
        check(Violation::IndirectLength(length), INDIRECT, &|ring| ring.direct(0, length, 4, 0));
    }
    check(Violation::Outside(u64::MAX - 15), INDIRECT, &|ring| {
        ring.describe(BASE, 0, u64::MAX - 15, 32, 4, 0)
    });
    check(Violation::IndirectNested, INDIRECT, &|ring| {
        ring.direct(0, 32, 4, 0);
        ring.describe(ring.heap, 0, ring.heap, 16, 4, 0);
    });
    check(Violation::IndirectNested, INDIRECT, &|ring| {
        ring.direct(0, 32, 4, 0);
        ring.describe(ring.heap, 0, ring.heap, 16, 1, 1);
        ring.describe(ring.heap, 1, ring.heap, 16, 4, 0);
    });
    check(Violation::Next(2), INDIRECT, &|ring| {
        ring.direct(0, 32, 4, 0);
        ring.describe(ring.heap, 0, ring.heap, 16, 1, 2);
    });
    // Without the length of a table a device would follow these for ever.
    check(Violation::Loop, INDIRECT, &|ring| {
        ring.direct(0, 32, 4, 0);
        ring.describe(ring.heap, 0, ring.heap, 16, 1, 1);
        ring.describe(ring.heap, 1, ring.heap, 16, 1, 0);
    });
    // 2^16 descriptors are a table; this device accepts 2^10.
    check(Violation::Long, INDIRECT, &|ring| {
        let table = BASE + 0x10_0000 - 0x1_0000;
        ring.describe(BASE, 0, table, 1 << 20, 4, 0);
        (0..1u32 << 16).for_each(|at| ring.describe(table, at.into(), BASE, 1, 1, (at + 1) as u16));
    });
    // Four bytes more than 2^32, in pieces that each are memory.
    check(Violation::Long, INDIRECT, &|ring| {
        ring.describe(BASE, 0, ring.heap, 16 * 1025, 4, 0);
        (0..1025u16)
            .for_each(|at| ring.describe(ring.heap, at.into(), BASE, 0, u16::from(at != 1024), at + 1));
    });
    let mut good = ring();
    good.describe(BASE, 0, good.heap, 16 * 1024, 6, 7);
    (0..1024u16).for_each(|at| good.describe(good.heap, at.into(), BASE, 0, u16::from(at != 1023), at + 1));
    good.offer(0, 0, 1);
    assert_eq!(
        good.all().map(|buffers| buffers.len()),
        Ok(1024),
        "writable tables and lengths of 0 are allowed"
    );
    // An indirect table may follow ordinary descriptors.
    let mut mixed = ring();
    mixed.direct(0, 5, 1, 3);
    mixed.direct(3, 16, 4, 0);
    mixed.describe(mixed.heap, 0, BASE, 7, 2, 0);
    mixed.offer(0, 0, 1);
    let lengths = mixed.all().map(|buffers| buffers.iter().map(|buffer| buffer.length).collect::<Vec<_>>());
    assert_eq!(lengths, Ok(vec![5, 7]));
}

/// Memory that says that it is everywhere: for lengths that no test's memory has.
struct Everywhere(Ram);

impl Memory for Everywhere {
    fn contains(&self, _: u64, _: u64) -> bool {
        true
    }

    fn load(&self, address: u64) -> Result<u16, turnstile_virtio::memory::Outside> {
        self.0.load(address)
    }

    fn store(&self, address: u64, value: u16) -> Result<(), turnstile_virtio::memory::Outside> {
        self.0.store(address, value)
    }

    fn read(&self, address: u64, bytes: &mut [u8]) -> Result<(), turnstile_virtio::memory::Outside> {
        self.0.read(address, bytes)
    }

    fn write(&self, address: u64, bytes: &[u8]) -> Result<(), turnstile_virtio::memory::Outside> {
        self.0.write(address, bytes)
    }

    fn fence(&self) {}
}

#[test]
fn a_chain_has_at_most_four_gib() {
    for (last, good) in [(1, true), (2, false)] {
        let mut ring = Ring::new(INDIRECT);
        ring.direct(0, u32::MAX, 3, 1);
        ring.direct(1, last, 2, 0);
        ring.offer(0, 0, 1);
        let memory = Everywhere(ring.ram);
        let mut cursor = Cursor::new(ring.queue.pop(&memory).unwrap().unwrap());
        assert_eq!(cursor.piece(&memory, true, u32::MAX).unwrap().unwrap().length, u32::MAX);
        let second = cursor.piece(&memory, true, u32::MAX);
        assert_eq!(
            second.map(|piece| piece.unwrap().length),
            if good { Ok(1) } else { Err(Violation::Bytes) }
        );
        assert_eq!(cursor.written(), u32::MAX, "as much as the field can say");
        let _ = cursor.finish();
    }
}

#[test]
fn rings_that_break_rules_are_named() {
    let mut ring = Ring::new(INDIRECT);
    assert!(ring.queue.pop(&ring.ram).unwrap().is_none());
    ring.offer(0, 0, 9);
    let jump = Violation::AvailableJump { next: 0, found: 9 };
    assert_eq!(ring.queue.pop(&ring.ram).unwrap_err(), jump);
    assert_eq!(ring.queue.arm(&ring.ram), Err(jump));
    ring.offer(0, 0, u16::MAX);
    assert!(ring.queue.pop(&ring.ram).is_err(), "backwards is a jump, too");
    ring.offer(0, 8, 1);
    assert_eq!(ring.queue.pop(&ring.ram).unwrap_err(), Violation::Head(8));
    // The same head again and again: the device never holds more chains than there are descriptors.
    ring.offer(0, 0, 8);
    let tokens: Vec<_> = (0..8).map(|_| ring.queue.pop(&ring.ram).unwrap().unwrap().finish()).collect();
    ring.offer(0, 0, 9);
    assert_eq!(ring.queue.pop(&ring.ram).unwrap_err(), Violation::TooMany);
    tokens.into_iter().for_each(|token| ring.queue.complete(&ring.ram, token, 0).unwrap());
    assert!(ring.queue.pop(&ring.ram).is_ok());
}

#[test]
fn devices_that_break_rules_are_named() {
    let ram = Ram::new(LENGTH);
    let (areas, heap) = areas(SIZE);
    let layout = Layout::new(&ram, SIZE, areas).unwrap();
    let mut queue: driver::Queue<8> = driver::Queue::new(&ram, layout, INDIRECT).unwrap();
    let buffer = |length, writable| Buffer { address: heap, length, writable };
    let used = |entry: u64, id: u32, length: u32, index: u16| {
        ram.put(areas.device + 4 + 8 * entry, &id.to_le_bytes());
        ram.put(areas.device + 8 + 8 * entry, &length.to_le_bytes());
        ram.put(areas.device + 2, &index.to_le_bytes());
    };
    used(0, 0, 0, 1);
    assert_eq!(queue.take(&ram), Err(Violation::UsedJump { next: 0, found: 1 }), "the device has nothing");
    used(0, 0, 0, 0);
    let id = queue.add(&ram, &[buffer(5, false), buffer(10, true)]).unwrap();
    assert_eq!(queue.publish(&ram), Ok(true));
    used(0, 0, 0, 2);
    assert_eq!(queue.take(&ram), Err(Violation::UsedJump { next: 0, found: 2 }));
    assert_eq!(queue.arm(&ram), Err(Violation::UsedJump { next: 0, found: 2 }));
    for wrong in [u32::from(id) + 1, 8, 1 << 16, u32::MAX] {
        used(0, wrong, 0, 1);
        assert_eq!(queue.take(&ram), Err(Violation::UsedId(wrong)), "second descriptors of chains, too");
    }
    used(0, id.into(), 11, 1);
    assert_eq!(queue.take(&ram), Err(Violation::UsedLength(11)));
    used(0, id.into(), 10, 1);
    assert_eq!(queue.take(&ram), Ok(Some(driver::Used { id, written: 10 })));
    assert_eq!(queue.free(), 8);
}

#[test]
fn queues_that_cannot_be_are_refused() {
    let ram = Ram::new(LENGTH);
    let (areas, _) = areas(SIZE);
    let new = |size, areas| Layout::new(&ram, size, areas).unwrap_err();
    for size in [0, 3, 0xffff, 0x8001] {
        assert_eq!(new(size, areas), Violation::Size(size));
    }
    for (wrong, at) in [
        (Areas { descriptors: BASE + 8, ..areas }, BASE + 8),
        (Areas { driver: areas.driver + 1, ..areas }, areas.driver + 1),
        (Areas { device: areas.device + 2, ..areas }, areas.device + 2),
    ] {
        assert_eq!(new(SIZE, wrong), Violation::Alignment(at));
    }
    let end = BASE + LENGTH as u64;
    for at in [0, end - 16, u64::MAX - 15] {
        assert_eq!(new(SIZE, Areas { descriptors: at, ..areas }), Violation::Outside(at));
        assert_eq!(new(SIZE, Areas { driver: at & !1, ..areas }), Violation::Outside(at & !1));
        assert_eq!(new(SIZE, Areas { device: at & !3, ..areas }), Violation::Outside(at & !3));
    }
    let everywhere = Everywhere(Ram::new(16));
    let last = Areas { descriptors: u64::MAX - 127, ..areas };
    assert!(Layout::new(&everywhere, SIZE, last).is_err(), "an area ends below the end of addresses");
    assert!(Layout::new(&ram, 1 << 15, Areas { descriptors: BASE, driver: BASE, device: BASE }).is_ok());
}

/// Fields of descriptors that are wrong now and then.
fn descriptor() -> impl Strategy<Value = reference::Raw> {
    let address = prop_oneof![8 => 0u64..0x1000, 1 => Just(LENGTH as u64 - 4), 1 => any::<u64>()];
    let length = prop_oneof![4 => 0u32..64, 3 => (0u32..10).prop_map(|count| 16 * count), 1 => any::<u32>()];
    let flags = prop_oneof![8 => 0u16..4, 2 => Just(4u16), 1 => any::<u16>()];
    (address, length, flags, 0u16..10).prop_map(|(address, length, flags, next)| reference::Raw {
        address: BASE.wrapping_add(address & !15),
        length,
        flags,
        next,
    })
}

proptest! {
    /// Whatever is in memory, the device finds the chains that a simple reading of the specification finds, and where that finds a
    /// broken rule, an error. It reads no field twice.
    #[test]
    fn what_a_chain_is_does_not_depend_on_how_it_is_read(
        table in prop::collection::vec(descriptor(), 24), head in 0u16..9, indirect: bool,
    ) {
        let mut ring = Ring::new(Options { indirect, event_idx: false });
        // The tables of indirect descriptors are anywhere in the same descriptors.
        for (at, raw) in (0u64..).zip(&table) {
            ring.describe(BASE, at, raw.address, raw.length, raw.flags, raw.next);
        }
        // The rings are elsewhere, so that the descriptors can be more than the queue's.
        let areas = Areas { descriptors: BASE, driver: BASE + 0x1000, device: BASE + 0x2000 };
        ring.areas = areas;
        ring.queue = device::Queue::new(Layout::new(&ring.ram, SIZE, areas).unwrap(), Options { indirect, event_idx: false }, 1 << 10);
        ring.offer(0, head, 1);
        let memory = reference::Memory { ram: &ring.ram, base: BASE, end: BASE + LENGTH as u64 };
        let expected = reference::chain(&memory, BASE, SIZE, head, indirect);
        let Ring { mut ram, mut queue, .. } = ring;
        ram.reads = Some(Default::default());
        let found = queue.pop(&ram).and_then(|chain| {
            let mut chain = chain.expect("there is one");
            let mut buffers = Vec::new();
            while let Some(buffer) = chain.next(&ram)? {
                buffers.push((buffer.address, buffer.length, buffer.writable));
            }
            let _ = chain.finish();
            Ok(buffers)
        });
        prop_assert_eq!(found.clone().ok(), expected.clone().ok(), "{:?} {:?}", found, expected);
        // A loop reads a descriptor once more before it is found out; a table may overlap another.
        if found.is_ok() && !indirect {
            let reads = ram.reads.unwrap().into_inner();
            prop_assert!(reads.values().all(|&count| count == 1), "{reads:?}");
        }
    }

    /// Memory that changes under the reader: both sides stay within bounds, and what they return is memory.
    #[test]
    fn memory_that_changes_under_the_reader_does_no_harm(seed in 1u64.., indirect: bool, event_idx: bool) {
        let ram = Ram::new(0x4000);
        let (areas, heap) = areas(SIZE);
        let options = Options { indirect, event_idx };
        let layout = Layout::new(&ram, SIZE, areas).unwrap();
        let mut driver: driver::Queue<8> = driver::Queue::new(&ram, layout, options).unwrap();
        let mut device = device::Queue::new(layout, options, 32);
        let mut random = Random(seed);
        ram.restless.set(random.next());
        let mut tokens = Vec::new();
        for _ in 0..200 {
            match random.below(8) {
                0 | 1 => {
                    let length = random.below(64) as u32;
                    let buffers = [Buffer { address: heap, length, writable: false }, Buffer { address: heap, length, writable: true }];
                    let _ = match random.below(2) {
                        0 => driver.add(&ram, &buffers),
                        _ => driver.add_indirect(&ram, heap.next_multiple_of(16), &buffers),
                    };
                    let _ = driver.publish(&ram);
                }
                2..5 => {
                    if let Ok(Some(mut chain)) = device.pop(&ram) {
                        let mut steps = 0;
                        while let Ok(Some(buffer)) = chain.next(&ram) {
                            prop_assert!(ram.contains(buffer.address, buffer.length.into()));
                            steps += 1;
                        }
                        prop_assert!(steps <= 32);
                        tokens.push(chain.finish());
                    }
                    prop_assert!(device.in_flight() <= SIZE && usize::from(device.in_flight()) == tokens.len());
                }
                5 => {
                    if let Some(token) = tokens.pop() {
                        device.complete(&ram, token, random.next() as u32).unwrap();
                        let _ = device.publish(&ram);
                    }
                }
                6 => {
                    let before = driver.in_flight();
                    if let Ok(Some(used)) = driver.take(&ram) {
                        prop_assert!(used.id < SIZE && used.written < 64);
                        prop_assert_eq!(driver.in_flight(), before - 1);
                    }
                }
                _ => {
                    let _ = (device.arm(&ram), driver.arm(&ram), device.suppress(&ram), driver.suppress(&ram));
                }
            }
            prop_assert!(driver.in_flight() <= SIZE && driver.free() <= SIZE);
        }
    }

    /// A device that reads and writes bytes gets the same from a chain, however it is cut.
    #[test]
    fn bytes_do_not_depend_on_how_a_driver_cuts_them(
        readable in prop::collection::vec(0u32..20, 1..4), writable in prop::collection::vec(0u32..20, 1..4),
        reads in prop::collection::vec(0usize..24, 1..6), writes in prop::collection::vec(0usize..24, 1..6),
    ) {
        let mut ring = Ring::new(INDIRECT);
        let data = BASE + 0x8000;
        (0..128u64).for_each(|at| ring.ram.put(data + at, &[at as u8]));
        let all: Vec<(u32, bool)> = readable.iter().map(|&length| (length, false))
            .chain(writable.iter().map(|&length| (length, true))).collect();
        let (mut read_at, mut write_at) = (data, data + 0x1000);
        for (index, &(length, writable)) in (0u16..).zip(&all) {
            let at = if writable { &mut write_at } else { &mut read_at };
            let flags = u16::from(usize::from(index) + 1 < all.len()) | u16::from(writable) << 1;
            ring.describe(BASE, index.into(), *at, length, flags, index + 1);
            *at += u64::from(length);
        }
        ring.offer(0, 0, 1);
        let (inside, room) = (readable.iter().sum::<u32>() as usize, writable.iter().sum::<u32>() as usize);
        let mut cursor = Cursor::new(ring.queue.pop(&ring.ram).unwrap().unwrap());
        let mut seen: Vec<u8> = Vec::new();
        for &length in &reads {
            let mut bytes = vec![0; length];
            let count = cursor.read(&ring.ram, &mut bytes).unwrap();
            prop_assert_eq!(count, length.min(inside - seen.len()));
            seen.extend(&bytes[..count]);
        }
        prop_assert!((0..).zip(&seen).all(|(at, &byte)| byte == at as u8));
        let mut done = 0;
        for &length in &writes {
            let count = cursor.write(&ring.ram, &vec![0x5a; length]).unwrap();
            prop_assert_eq!(count, length.min(room - done));
            done += count;
        }
        prop_assert_eq!(cursor.written() as usize, done);
        let written: [u8; 128] = ring.ram.get(data + 0x1000);
        prop_assert!((0..128).all(|at| (written[at] == 0x5a) == (at < done)));
        let _ = cursor.finish();
    }
}
