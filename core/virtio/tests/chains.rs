// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Chains of a hostile driver: each broken rule by its name, and anything at all against a simple reading of the specification.

mod common;
#[path = "chains/reference.rs"]
mod reference;

use common::BASE;
use common::ring::{Everywhere, INDIRECT, LENGTH, Ring, SIZE};
use proptest::prelude::*;
use turnstile_virtio::device;
use turnstile_virtio::device::Cursor;
use turnstile_virtio::ring::{Areas, Layout, Options};
use turnstile_virtio::violation::Violation;

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
