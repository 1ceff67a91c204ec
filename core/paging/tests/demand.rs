// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Memory that is mapped on demand: what is prepared at the start, and that touching it in any order leads to the same
//! translations as mapping it at once.

mod memories;

use memories::Memories;
use proptest::prelude::*;
use turnstile_paging::{
    BLOCK, Entry, Error, Format, Nested, NestedAttributes, PageTable, Partition, PartitionAttributes,
    PhysAddr, Progress, Stage2, Stage2Attributes, Tables, whole_blocks,
};

const PAGE: u64 = 4096;
const GIB: u64 = 1 << 30;

/// Does what an exit does; returns whether the block could be mapped.
fn touch<F: Format>(
    table: &PageTable<F>,
    tables: &mut Memories,
    address: u64,
    output: u64,
    attributes: F::Attributes,
) -> bool {
    let read = |table, index| tables.read(table, index);
    let output = PhysAddr(output & !(BLOCK - 1));
    let Some(slot) = table.blocks().slot(address, output, attributes, read) else { return false };
    tables.write(slot.table, slot.index, slot.entry);
    true
}

/// Compares two trees, page by page near the edges and block by block elsewhere.
fn assert_alike<F: Format>(
    one: (&PageTable<F>, &Memories),
    other: (&PageTable<F>, &Memories),
    start: u64,
    end: u64,
) {
    let near = |address: u64| (address.saturating_sub(2 * PAGE)..address + 2 * PAGE).step_by(PAGE as usize);
    for address in (start..end).step_by(BLOCK as usize).flat_map(near).chain(near(end)) {
        let at = |(table, tables): (&PageTable<F>, &Memories)| {
            table.translate(tables, address).map(|found| (found.address, found.attributes))
        };
        assert_eq!(at(one), at(other), "{address:#x}");
    }
}

fn check<F: Format>(format: F, attributes: F::Attributes, range: (u64, u64, u64), touches: &[u64]) {
    let (address, output, size) = range;
    let (mut at_start, mut on_demand) = (Memories::new(usize::MAX), Memories::new(usize::MAX));
    let mut whole = PageTable::new(format, &mut at_start).unwrap();
    whole.map(&mut at_start, address, PhysAddr(output), size, attributes).unwrap();
    let mut lazy = PageTable::new(format, &mut on_demand).unwrap();
    lazy.map_on_demand(&mut on_demand, address, PhysAddr(output), size, attributes).unwrap();
    let tables = on_demand.tables.len();
    for touched in touches.iter().map(|at| address + at % size) {
        if lazy.translate(&on_demand, touched).is_none() {
            assert!(touch(&lazy, &mut on_demand, touched, output + (touched - address), attributes));
            let found = lazy.translate(&on_demand, touched).unwrap();
            assert_eq!((found.address.0, found.size), (output + (touched - address), BLOCK));
        }
    }
    for at in (0..size).step_by(PAGE as usize).filter(|at| (address + at) % BLOCK == 0) {
        if lazy.translate(&on_demand, address + at).is_none() {
            assert!(touch(&lazy, &mut on_demand, address + at, output + at, attributes));
        }
    }
    assert_eq!(on_demand.tables.len(), tables, "touching takes no memory");
    assert_alike((&whole, &at_start), (&lazy, &on_demand), address, address + size);
    lazy.unmap(&mut on_demand, address, size).unwrap();
    assert_eq!(on_demand.tables.len(), 1, "only the root remains");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn touched_in_any_order_it_is_as_mapped_at_once(
        address in 0..600_000_u64,
        output in 0..600_000_u64,
        pages in 1..5000_u64,
        alike: bool,
        touches in prop::collection::vec(any::<u64>(), 0..40),
    ) {
        let (address, mut output) = (address * PAGE, output * PAGE);
        if alike {
            output = output & !(BLOCK - 1) | address & (BLOCK - 1);
        }
        let range = (address, output, pages * PAGE);
        check(Stage2::new(40).unwrap(), Stage2Attributes::RAM, range, &touches);
        check(Nested::new(true, 40), NestedAttributes::RAM, range, &touches);
    }

    #[test]
    fn running_out_of_tables_leaves_nothing(limit in 1..6_usize) {
        let mut tables = Memories::new(limit);
        let mut table = PageTable::new(Stage2::new(40).unwrap(), &mut tables).unwrap();
        let (address, size) = (GIB - BLOCK - PAGE, 2 * GIB + 2 * BLOCK + 2 * PAGE);
        let made = table.map_on_demand(&mut tables, address, PhysAddr(address), size, Stage2Attributes::RAM);
        prop_assert_eq!(made, Err(Error::OutOfTables));
        prop_assert_eq!(tables.tables.len(), 1);
    }
}

#[test]
fn only_what_was_prepared_has_a_place() {
    let mut tables = Memories::new(usize::MAX);
    let mut table = PageTable::new(Stage2::new(40).unwrap(), &mut tables).unwrap();
    let ram = Stage2Attributes::RAM;
    table.map_on_demand(&mut tables, GIB, PhysAddr(3 * GIB), 4 * BLOCK + PAGE, ram).unwrap();
    assert!(touch(&table, &mut tables, GIB, 3 * GIB, ram));
    assert!(touch(&table, &mut tables, GIB, 3 * GIB, ram), "another CPU was faster");
    assert!(!touch(&table, &mut tables, GIB + 4 * BLOCK, 3 * GIB + 4 * BLOCK, ram), "mapped by pages");
    assert!(!touch(&table, &mut tables, 0, 0, ram), "never prepared");
    let again = table.map_on_demand(&mut tables, GIB, PhysAddr(3 * GIB), BLOCK, ram);
    assert_eq!(again, Err(Error::AlreadyMapped(GIB)));
    // What was prepared can be mapped at once, without losing the tables.
    let before = tables.tables.len();
    table.map_on_demand(&mut tables, 4 * GIB, PhysAddr(4 * GIB), GIB, ram).unwrap();
    table.map(&mut tables, 4 * GIB, PhysAddr(4 * GIB), GIB, ram).unwrap();
    table.unmap(&mut tables, 4 * GIB, GIB).unwrap();
    assert_eq!(tables.tables.len(), before);
}

/// No walker takes for a translation what an entry says of a block that is being cleared.
fn check_progress<F: Format>(format: F, attributes: F::Attributes) {
    const AT: u64 = GIB;
    let mut tables = Memories::new(usize::MAX);
    let mut table = PageTable::new(format, &mut tables).unwrap();
    table.map_on_demand(&mut tables, AT, PhysAddr(AT), 4 * BLOCK, attributes).unwrap();
    let blocks = table.blocks();
    let slot = |tables: &Memories| {
        let read = |table, index| tables.read(table, index);
        blocks.slot(AT, PhysAddr(AT), attributes, read).unwrap()
    };
    let first = slot(&tables);
    assert_eq!(first.progress, Some(Progress::default()));
    let level = *format.levels().iter().find(|level| level.span() == BLOCK).unwrap();
    // The last block below 2^52.
    let last = (1 << 52) - BLOCK;
    let all =
        [(0, true, 0), (1, false, BLOCK), (31, true, last), (0xffff, true, 5 * BLOCK), (0xffff, false, 0)];
    for (cleared, taken, host) in all {
        let progress = Progress { cleared, taken, host };
        assert_eq!(format.decode(level, progress.entry()), Entry::Invalid, "{progress:?}");
        tables.write(first.table, first.index, progress.entry());
        assert_eq!(slot(&tables).progress, Some(progress));
        assert_eq!(table.translate(&tables, AT), None);
    }
    tables.write(first.table, first.index, first.entry);
    let mapped = slot(&tables);
    assert_eq!((mapped.progress, mapped.mapped), (None, Some(PhysAddr(AT))));
    assert_eq!(blocks.leaf(PhysAddr(AT), attributes), Some(first.entry));
    // Prepared anew, a block begins from its beginning.
    tables.write(first.table, first.index, Progress { cleared: 3, taken: true, host: 0 }.entry());
    table.map_on_demand(&mut tables, AT, PhysAddr(AT), 4 * BLOCK, attributes).unwrap();
    assert_eq!(slot(&tables).progress, Some(Progress::default()));
}

#[test]
fn progress_is_no_translation_in_any_format() {
    check_progress(Stage2::new(40).unwrap(), Stage2Attributes::RAM);
    check_progress(Nested::new(true, 40), NestedAttributes::RAM);
    check_progress(Partition, PartitionAttributes::RAM);
}

#[test]
fn what_is_no_whole_block_is_not_mapped_on_demand() {
    let blocks = |address, output, size| whole_blocks(address, PhysAddr(output), size);
    assert_eq!(blocks(PAGE, BLOCK + PAGE, 4 * BLOCK), BLOCK..4 * BLOCK);
    assert_eq!(blocks(0, BLOCK, 2 * BLOCK), 0..2 * BLOCK);
    assert!(blocks(0, PAGE, 4 * BLOCK).is_empty(), "not aligned in the output");
    assert!(blocks(PAGE, PAGE, BLOCK).is_empty(), "no whole block");
}
