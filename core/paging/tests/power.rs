// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Partition-scoped trees of POWER: the bits of their entries, read back by a walk that is written here from the manual.

mod memories;

use std::collections::HashMap;

use memories::Memories;
use proptest::prelude::*;
use turnstile_paging::{Error, PageTable, Partition, PartitionAttributes, PhysAddr};

const PAGE: u64 = 4096;
const MIB2: u64 = 2 << 20;
const GIB: u64 = 1 << 30;

/// What a walk finds.
#[derive(Debug, PartialEq, Eq)]
struct Found {
    address: u64,
    attributes: PartitionAttributes,
    size: u64,
}

/// Takes bits as the manual numbers them, from the left.
fn bits(value: u64, first: u32, last: u32) -> u64 {
    value << first >> (first + 63 - last)
}

/// A walk as the CPU does it (Power ISA 3.0B Book III, 5.7.10): from the partition table's entry.
fn walk(memories: &Memories, entry: u64, address: u64) -> Option<Found> {
    assert_eq!(bits(entry, 0, 0), 1, "host radix");
    assert_eq!(bits(entry, 1, 2) << 3 | bits(entry, 56, 58), 52 - 31, "the tree's size");
    let (mut table, mut size, mut left) = (bits(entry, 4, 55) << 8, bits(entry, 59, 63), 52);
    loop {
        assert_eq!(table % (8 << size), 0, "aligned to its size");
        assert!(if left == 52 { size == 13 } else { size == 9 }, "a shape that the CPU walks");
        left -= size;
        let entry = memories.tables[&table][(address >> left & ((1 << size) - 1)) as usize];
        if bits(entry, 0, 0) == 0 {
            return None;
        }
        if bits(entry, 1, 1) == 0 {
            (table, size) = (bits(entry, 4, 55) << 8, bits(entry, 59, 63));
            continue;
        }
        assert_eq!(
            (bits(entry, 55, 55), bits(entry, 56, 56), bits(entry, 61, 61)),
            (1, 1, 1),
            "R, C, readable"
        );
        assert!(matches!(left, 12 | 21 | 30), "a size of pages");
        let physical = bits(entry, 7, 51) << 12;
        assert_eq!(physical % (1 << left), 0);
        let device = match bits(entry, 58, 59) {
            0 => false,
            2 => true,
            other => panic!("attributes {other}"),
        };
        let attributes = PartitionAttributes {
            write: bits(entry, 62, 62) != 0,
            execute: bits(entry, 63, 63) != 0,
            device,
        };
        return Some(Found { address: physical | address & ((1 << left) - 1), attributes, size: 1 << left });
    }
}

#[test]
fn pages_are_of_the_largest_size() {
    let mut memories = Memories::new(usize::MAX);
    let mut table = PageTable::new(Partition, &mut memories).unwrap();
    let entry = Partition::table_entry(table.root());
    let (start, size) = (MIB2 - PAGE, 3 * GIB);
    table.map(&mut memories, start, PhysAddr(start + GIB), size, PartitionAttributes::RAM).unwrap();
    for (address, size) in [(start, PAGE), (MIB2, MIB2), (GIB + 5, GIB), (3 * GIB, PAGE)] {
        let expected = Found { address: address + GIB, attributes: PartitionAttributes::RAM, size };
        assert_eq!(walk(&memories, entry, address), Some(expected));
    }
    assert_eq!(walk(&memories, entry, start - 1), None);
    let device = 1 << 50;
    table.map(&mut memories, device, PhysAddr(6 << 40), 16 * PAGE, PartitionAttributes::DEVICE).unwrap();
    let expected =
        Found { address: (6 << 40) + PAGE + 8, attributes: PartitionAttributes::DEVICE, size: PAGE };
    assert_eq!(walk(&memories, entry, device + PAGE + 8), Some(expected));
    assert_eq!(
        table.map(&mut memories, 1 << 52, PhysAddr(0), PAGE, PartitionAttributes::RAM),
        Err(Error::OutOfRange)
    );
    table.free_all(&mut memories);
    assert!(memories.tables.is_empty());
}

proptest! {
    /// What the builder says is mapped, the walk finds, with the same attributes; and nothing else.
    #[test]
    fn walks_find_what_was_mapped(
        ranges in prop::collection::vec((0..4096u64, 1..1200u64, 0..4096u64, any::<[bool; 3]>()), 1..6),
        holes in prop::collection::vec((0..5400u64, 1..600u64), 0..4),
    ) {
        let mut memories = Memories::new(usize::MAX);
        let mut table = PageTable::new(Partition, &mut memories).unwrap();
        let mut model: HashMap<u64, (u64, PartitionAttributes)> = HashMap::new();
        for (page, count, output, [write, execute, device]) in ranges {
            let attributes = PartitionAttributes { write, execute, device };
            let to = PhysAddr(output * PAGE);
            if table.map(&mut memories, page * PAGE, to, count * PAGE, attributes).is_ok() {
                model.extend((0..count).map(|n| (page + n, (output + n, attributes))));
            }
        }
        for (page, count) in holes {
            table.unmap(&mut memories, page * PAGE, count * PAGE).unwrap();
            model.retain(|at, _| !(page..page + count).contains(at));
        }
        let entry = Partition::table_entry(table.root());
        for page in 0..6100 {
            let found = walk(&memories, entry, page * PAGE);
            let found = found.map(|found| (found.address / PAGE, found.attributes));
            prop_assert_eq!(found, model.get(&page).copied());
        }
    }
}
