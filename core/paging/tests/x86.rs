// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tables of AMD64: the bits of their entries, read back by a walk that is written here from the manual.

mod memories;

use std::collections::HashMap;

use memories::Memories;
use proptest::prelude::*;
use turnstile_paging::{
    Error, Format, HostAttributes, HostTables, Nested, NestedAttributes, PageTable, PhysAddr,
};

const PAGE: u64 = 4096;
const MIB2: u64 = 2 << 20;
const GIB: u64 = 1 << 30;

/// What a walk finds.
#[derive(Debug, PartialEq, Eq)]
struct Found {
    address: u64,
    writable: bool,
    user: bool,
    executable: bool,
    uncacheable: bool,
    size: u64,
}

/// A walk as the CPU does it (APM vol. 2, 5.3.3 and 5.6): four levels, permissions and-ed together.
fn walk(memories: &Memories, root: u64, address: u64) -> Option<Found> {
    let (mut table, mut writable, mut user, mut executable) = (root, true, true, true);
    for shift in [39, 30, 21, 12] {
        assert_eq!(memories.tables[&table].len(), 512, "every table is a page");
        let entry = memories.tables[&table][(address >> shift & 0x1ff) as usize];
        let bit = |n: u32| entry >> n & 1 != 0;
        if !bit(0) {
            return None;
        }
        assert!(bit(5), "no walk has to set the accessed bit");
        (writable, user, executable) = (writable && bit(1), user && bit(2), executable && !bit(63));
        let physical = entry & 0x000f_ffff_ffff_f000;
        if shift == 12 || bit(7) && shift != 39 {
            assert!(bit(6), "no walk has to set the dirty bit");
            let size = 1u64 << shift;
            assert_eq!(physical % size, 0, "reserved bits of a large page");
            let address = physical + address % size;
            return Some(Found { address, writable, user, executable, uncacheable: bit(3) && bit(4), size });
        }
        assert!(!bit(7), "reserved in this level");
        table = physical;
    }
    None
}

fn nested(gigabyte_pages: bool) -> Nested {
    Nested::new(gigabyte_pages, 48)
}

#[test]
fn nested_pages_are_user_pages_of_the_largest_size() {
    for (gigabyte_pages, largest) in [(true, GIB), (false, MIB2)] {
        let mut memories = Memories::new(usize::MAX);
        let mut table = PageTable::new(nested(gigabyte_pages), &mut memories).unwrap();
        let (start, size) = (MIB2 - PAGE, 3 * GIB);
        table.map(&mut memories, start, PhysAddr(start + GIB), size, NestedAttributes::RAM).unwrap();
        for (address, size) in [(start, PAGE), (MIB2, MIB2), (GIB + 5, largest), (3 * GIB, PAGE)] {
            let expected = Found {
                address: address + GIB,
                writable: true,
                user: true,
                executable: true,
                uncacheable: false,
                size,
            };
            assert_eq!(walk(&memories, table.root().0, address), Some(expected));
        }
        assert_eq!(walk(&memories, table.root().0, start - 1), None);
        table.protect(&mut memories, MIB2, PAGE, NestedAttributes::ROM).unwrap();
        let found = walk(&memories, table.root().0, MIB2).unwrap();
        assert!(!found.writable && found.executable && found.size == PAGE);
        assert!(walk(&memories, table.root().0, MIB2 + PAGE).unwrap().writable);
        table.free_all(&mut memories);
        assert!(memories.tables.is_empty());
    }
}

/// Registers of a device are uncacheable, whatever the size of their pages, and nothing else is.
#[test]
fn nested_pages_of_registers_are_uncacheable() {
    let kinds = [
        (NestedAttributes::RAM, (true, true, false)),
        (NestedAttributes::ROM, (false, true, false)),
        (NestedAttributes::DATA, (true, false, false)),
        (NestedAttributes::CONSTANT, (false, false, false)),
        (NestedAttributes::DEVICE, (true, false, true)),
    ];
    let mut memories = Memories::new(usize::MAX);
    let mut table = PageTable::new(nested(true), &mut memories).unwrap();
    for (index, (attributes, (writable, executable, uncacheable))) in kinds.into_iter().enumerate() {
        let base = index as u64 * 2 * GIB;
        table.map(&mut memories, base, PhysAddr(base), GIB + MIB2 + PAGE, attributes).unwrap();
        for (offset, size) in [(0, GIB), (GIB, MIB2), (GIB + MIB2, PAGE)] {
            let address = base + offset;
            let expected = Found { address, writable, user: true, executable, uncacheable, size };
            assert_eq!(walk(&memories, table.root().0, address), Some(expected));
            assert_eq!(table.translate(&memories, address).unwrap().attributes, attributes);
        }
    }
}

/// Nothing of the hypervisor is writable and executable, what is a guest's is never executable, and what is the
/// hypervisor's own is never a user page.
#[test]
fn the_hypervisors_pages_say_what_they_are() {
    let kinds = [
        (HostAttributes::CODE, (false, false, true, false)),
        (HostAttributes::CONSTANT, (false, false, false, false)),
        (HostAttributes::DATA, (true, false, false, false)),
        (HostAttributes::DEVICE, (true, false, false, true)),
        (HostAttributes::GUEST, (true, true, false, false)),
    ];
    let mut memories = Memories::new(usize::MAX);
    let mut table = PageTable::new(HostTables::new(true, 40), &mut memories).unwrap();
    for (index, (attributes, _)) in kinds.iter().enumerate() {
        let address = index as u64 * GIB;
        table.map(&mut memories, address, PhysAddr(address), GIB - PAGE, *attributes).unwrap();
    }
    for (index, (attributes, (writable, user, executable, uncacheable))) in kinds.into_iter().enumerate() {
        for (offset, size) in [(0, MIB2), (GIB - MIB2, PAGE)] {
            let address = index as u64 * GIB + offset;
            let expected = Found { address, writable, user, executable, uncacheable, size };
            assert_eq!(walk(&memories, table.root().0, address), Some(expected));
            assert_eq!(table.translate(&memories, address).unwrap().attributes, attributes);
        }
    }
}

#[test]
fn addresses_end_where_the_cpus_do() {
    let mut memories = Memories::new(usize::MAX);
    let mut table = PageTable::new(HostTables::new(true, 40), &mut memories).unwrap();
    let mut map = |at, to| table.map(&mut memories, at, PhysAddr(to), PAGE, HostAttributes::DATA);
    assert_eq!(map(1 << 47, 0), Err(Error::OutOfRange), "the upper half");
    assert_eq!(map(0, 1 << 40), Err(Error::OutOfRange), "more than the CPU has");
    assert_eq!(map((1 << 47) - PAGE, (1 << 40) - PAGE), Ok(()));
    assert_eq!(Nested::new(true, 64).output_bits(), 52);
}

proptest! {
    /// What the builder says is mapped, the walk finds, with the same attributes; and nothing else.
    #[test]
    fn walks_find_what_was_mapped(
        ranges in prop::collection::vec((0..4096u64, 1..1200u64, 0..4096u64, any::<bool>(), any::<bool>()), 1..6),
    ) {
        let mut memories = Memories::new(usize::MAX);
        let mut table = PageTable::new(nested(true), &mut memories).unwrap();
        let mut model: HashMap<u64, (u64, bool, bool)> = HashMap::new();
        for (page, count, output, write, execute) in ranges {
            let attributes = NestedAttributes { write, execute, device: false };
            let to = PhysAddr(output * PAGE);
            if table.map(&mut memories, page * PAGE, to, count * PAGE, attributes).is_ok() {
                model.extend((0..count).map(|n| (page + n, (output + n, write, execute))));
            }
        }
        for page in 0..5400 {
            let found = walk(&memories, table.root().0, page * PAGE);
            let found = found.map(|found| (found.address / PAGE, found.writable, found.executable));
            prop_assert_eq!(found, model.get(&page).copied());
        }
    }
}
