// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Checks the tree builder against a page-by-page model, over formats and random histories.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use proptest::prelude::*;
use turnstile_paging::{
    Entry, Error, Format, Memory, PageTable, Permission, PhysAddr, Stage1Attributes, Stage1El0, Stage1El2,
    Stage1Regime, Stage2, Stage2Attributes, Tables,
};

const PAGE: u64 = 4096;
const MIB2: u64 = 2 << 20;
const GIB: u64 = 1 << 30;

/// Tables in a map; `limit` bounds how many there may be.
#[derive(Default)]
struct Memories {
    tables: HashMap<u64, Vec<u64>>,
    next: u64,
    limit: usize,
    invalidations: Vec<(u64, u64)>,
    /// The entries made invalid since the last invalidation, by address: a TLB may still hold them.
    stale: BTreeSet<u64>,
    allocated: usize,
    freed: usize,
}

impl Memories {
    fn new(limit: usize) -> Self {
        Self { limit, next: 0x4000_0000, ..Self::default() }
    }
}

impl Tables for Memories {
    fn allocate(&mut self, bytes: u64) -> Option<PhysAddr> {
        if self.tables.len() >= self.limit {
            return None;
        }
        let address = self.next.next_multiple_of(bytes);
        self.next = address + bytes;
        self.tables.insert(address, vec![0; bytes as usize / 8]);
        self.allocated += 1;
        Some(PhysAddr(address))
    }

    fn free(&mut self, table: PhysAddr, bytes: u64) {
        let contents = self.tables.remove(&table.0).expect("freed what was not allocated");
        assert_eq!(contents.len() as u64 * 8, bytes);
        assert!(self.stale.is_empty(), "a table was freed before the invalidation");
        self.freed += 1;
    }

    fn read(&self, table: PhysAddr, index: usize) -> u64 {
        self.tables[&table.0][index]
    }

    fn write(&mut self, table: PhysAddr, index: usize, entry: u64) {
        let slot = &mut self.tables.get_mut(&table.0).expect("wrote to a freed table")[index];
        let name = table.0 + index as u64 * 8;
        if *slot & 1 != 0 && entry & 1 == 0 {
            self.stale.insert(name);
        }
        if *slot & 1 != 0 && entry & 1 != 0 {
            // Valid to valid: only permissions may differ (bits [54:53], [7:6]), as the Arm ARM allows.
            let permissions = 0b11 << 53 | 0b11 << 6;
            assert_eq!(*slot & !permissions, entry & !permissions, "no break before make");
        }
        if *slot & 1 == 0 && entry & 1 != 0 {
            assert!(!self.stale.contains(&name), "made valid again before the invalidation");
        }
        *slot = entry;
    }

    fn invalidate(&mut self, address: u64, size: u64) {
        self.stale.clear();
        self.invalidations.push((address, size));
    }
}

fn stage2() -> Stage2 {
    Stage2::new(40).unwrap()
}

fn attributes() -> impl Strategy<Value = Stage2Attributes> {
    let memory = prop_oneof![
        Just(Memory::Normal),
        Just(Memory::Device),
        Just(Memory::NonCacheable),
        Just(Memory::Forced)
    ];
    (memory, any::<bool>(), any::<bool>(), any::<bool>())
        .prop_map(|(memory, read, write, execute)| Stage2Attributes { memory, read, write, execute })
}

#[derive(Clone, Debug)]
enum Operation {
    Map(u64, u64, u64, Stage2Attributes),
    Unmap(u64, u64),
    Protect(u64, u64, Stage2Attributes),
}

/// Page numbers around block borders, in a window of four 2 MiB blocks below 1 GiB.
const WINDOW: u64 = GIB - 2 * MIB2;

fn pages() -> impl Strategy<Value = (u64, u64)> {
    let border = prop_oneof![Just(0u64), Just(512), Just(1024), Just(1536), 0..2048u64];
    (border.clone(), border)
        .prop_filter_map("empty", |(a, b)| (a != b).then(|| (a.min(b), a.max(b) - a.min(b))))
}

fn operations() -> impl Strategy<Value = Vec<Operation>> {
    let output = prop_oneof![Just(WINDOW), Just(0x8000_0000u64), Just(0x8000_1000u64)];
    let operation = prop_oneof![
        3 => (pages(), output, attributes()).prop_map(|((p, n), o, a)| Operation::Map(p, n, o, a)),
        2 => pages().prop_map(|(p, n)| Operation::Unmap(p, n)),
        2 => (pages(), attributes()).prop_map(|((p, n), a)| Operation::Protect(p, n, a)),
    ];
    prop::collection::vec(operation, 1..24)
}

type Model = BTreeMap<u64, (u64, Stage2Attributes)>;

/// What the operation must answer, and the model afterwards; table exhaustion apart.
fn expect(model: &mut Model, operation: &Operation) -> Result<u64, Error> {
    let address = |page: u64| WINDOW + page * PAGE;
    match *operation {
        Operation::Map(page, count, output, attributes) => {
            if let Some(taken) = (page..page + count).find(|p| model.contains_key(p)) {
                return Err(Error::AlreadyMapped(address(taken)));
            }
            model.extend((0..count).map(|i| (page + i, (output + (page + i) * PAGE, attributes))));
            Ok(0)
        }
        Operation::Unmap(page, count) => {
            let before = model.len();
            model.retain(|p, _| !(page..page + count).contains(p));
            Ok((before - model.len()) as u64 * PAGE)
        }
        Operation::Protect(page, count, attributes) => {
            if let Some(hole) = (page..page + count).find(|p| !model.contains_key(p)) {
                return Err(Error::NotMapped(address(hole)));
            }
            model.range_mut(page..page + count).for_each(|(_, entry)| entry.1 = attributes);
            Ok(0)
        }
    }
}

fn perform(
    table: &mut PageTable<Stage2>,
    tables: &mut Memories,
    operation: &Operation,
) -> Result<u64, Error> {
    let address = |page: u64| WINDOW + page * PAGE;
    match *operation {
        Operation::Map(page, count, output, attributes) => {
            let output = PhysAddr(output + page * PAGE);
            table.map(tables, address(page), output, count * PAGE, attributes).map(|()| 0)
        }
        Operation::Unmap(page, count) => table.unmap(tables, address(page), count * PAGE),
        Operation::Protect(page, count, attributes) => {
            table.protect(tables, address(page), count * PAGE, attributes).map(|()| 0)
        }
    }
}

fn assert_equal(table: &PageTable<Stage2>, tables: &Memories, model: &Model) {
    for page in 0..2048 {
        let found = table.translate(tables, WINDOW + page * PAGE + 7);
        let found = found.map(|found| (found.address.0 - 7, found.attributes));
        assert_eq!(found, model.get(&page).copied(), "page {page}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn follows_the_page_by_page_model(history in operations()) {
        let mut tables = Memories::new(usize::MAX);
        let mut table = PageTable::new(stage2(), &mut tables).unwrap();
        let mut model = Model::new();
        for operation in &history {
            let result = perform(&mut table, &mut tables, operation);
            prop_assert_eq!(result, expect(&mut model, operation));
            prop_assert!(tables.stale.is_empty(), "the TLBs may still hold what is gone");
            assert_equal(&table, &tables, &model);
        }
        table.unmap(&mut tables, 0, 1 << 40).unwrap();
        prop_assert_eq!(tables.tables.len(), 1, "only the root remains when nothing is mapped");
        table.free_all(&mut tables);
        prop_assert_eq!(tables.allocated, tables.freed);
    }

    #[test]
    fn running_out_of_tables_changes_nothing(history in operations(), limit in 2..8usize) {
        let mut tables = Memories::new(limit);
        let mut table = PageTable::new(stage2(), &mut tables).unwrap();
        let mut model = Model::new();
        for operation in &history {
            let result = perform(&mut table, &mut tables, operation);
            if result != Err(Error::OutOfTables) {
                prop_assert_eq!(result, expect(&mut model, operation));
            }
            assert_equal(&table, &tables, &model);
        }
        table.free_all(&mut tables);
        prop_assert_eq!(tables.allocated, tables.freed);
    }
}

#[test]
fn takes_the_largest_blocks_that_fit() {
    let mut tables = Memories::new(usize::MAX);
    let mut table = PageTable::new(stage2(), &mut tables).unwrap();
    let start = GIB - MIB2 - PAGE;
    let size = PAGE + MIB2 + GIB + MIB2 + PAGE;
    table.map(&mut tables, start, PhysAddr(start + GIB), size, Stage2Attributes::RAM).unwrap();
    let size_at = |address| table.translate(&tables, address).map(|found| found.size);
    assert_eq!(size_at(start - 1), None);
    assert_eq!(size_at(start), Some(PAGE));
    assert_eq!(size_at(start + PAGE), Some(MIB2));
    assert_eq!(size_at(GIB), Some(GIB));
    assert_eq!(size_at(2 * GIB), Some(MIB2));
    assert_eq!(size_at(2 * GIB + MIB2), Some(PAGE));
    assert_eq!(size_at(start + size), None);
    // The root; level 2 and level 3 below the block and above it.
    assert_eq!(tables.tables.len(), 5);
    assert!(tables.invalidations.is_empty(), "mapping what was unmapped needs no invalidation");
}

#[test]
fn a_misaligned_output_forces_small_pages() {
    let mut tables = Memories::new(usize::MAX);
    let mut table = PageTable::new(stage2(), &mut tables).unwrap();
    table.map(&mut tables, 0, PhysAddr(MIB2 + PAGE), MIB2, Stage2Attributes::ROM).unwrap();
    assert_eq!(table.translate(&tables, 0).unwrap().size, PAGE);
    table.map(&mut tables, GIB, PhysAddr(GIB + MIB2), GIB, Stage2Attributes::ROM).unwrap();
    assert_eq!(table.translate(&tables, GIB).unwrap().size, MIB2);
}

#[test]
fn a_split_block_is_broken_before_it_is_remade() {
    let mut tables = Memories::new(usize::MAX);
    let mut table = PageTable::new(stage2(), &mut tables).unwrap();
    table.map(&mut tables, GIB, PhysAddr(GIB), GIB, Stage2Attributes::RAM).unwrap();
    table.unmap(&mut tables, GIB + PAGE, PAGE).unwrap();
    let expected = [(GIB, GIB), (GIB, MIB2), (GIB + PAGE, PAGE)];
    assert_eq!(tables.invalidations, expected);
    assert!(table.translate(&tables, GIB + PAGE).is_none());
    assert_eq!(table.translate(&tables, GIB).unwrap().size, PAGE);
    assert_eq!(table.translate(&tables, GIB + MIB2).unwrap().size, MIB2);
    assert_eq!(table.translate(&tables, GIB + 2 * PAGE + 5).unwrap().address, PhysAddr(GIB + 2 * PAGE + 5));
}

#[test]
fn bad_ranges_are_refused() {
    let mut tables = Memories::new(usize::MAX);
    let mut table = PageTable::new(stage2(), &mut tables).unwrap();
    let ram = Stage2Attributes::RAM;
    let mut map = |va, pa, size| table.map(&mut tables, va, PhysAddr(pa), size, ram);
    assert_eq!(map(1, 0, PAGE), Err(Error::Unaligned));
    assert_eq!(map(0, 1, PAGE), Err(Error::Unaligned));
    assert_eq!(map(0, 0, 0), Err(Error::Unaligned));
    assert_eq!(map(0, 0, 17), Err(Error::Unaligned));
    assert_eq!(map((1 << 40) - PAGE, 0, 2 * PAGE), Err(Error::OutOfRange));
    assert_eq!(map(0u64.wrapping_sub(PAGE), 0, PAGE), Err(Error::OutOfRange));
    assert_eq!(map(0, (1 << 48) - PAGE, 2 * PAGE), Err(Error::OutOfRange));
    assert_eq!(map(0, 0u64.wrapping_sub(PAGE), PAGE), Err(Error::OutOfRange));
    assert_eq!(map((1 << 40) - PAGE, (1 << 48) - PAGE, PAGE), Ok(()));
    assert_eq!(table.translate(&tables, 1 << 40), None);
    assert_eq!(table.translate(&tables, u64::MAX), None);
}

#[test]
fn roots_are_as_wide_as_the_input_needs() {
    for (bits, entries, sl0) in
        [(32, 512, 1), (39, 512, 1), (40, 1024, 1), (43, 8192, 1), (44, 512, 2), (48, 512, 2)]
    {
        let format = Stage2::new(bits).unwrap();
        let mut tables = Memories::new(usize::MAX);
        let mut table = PageTable::new(format, &mut tables).unwrap();
        assert_eq!(tables.tables[&table.root().0].len(), entries, "{bits} bits");
        assert_eq!((format.sl0(), format.t0sz()), (sl0, u64::from(64 - bits)));
        let last = (1u64 << bits) - PAGE;
        table.map(&mut tables, last, PhysAddr(0x5000), PAGE, Stage2Attributes::RAM).unwrap();
        assert_eq!(table.translate(&tables, last).unwrap().address, PhysAddr(0x5000));
    }
    assert!(Stage2::new(31).is_none() && Stage2::new(49).is_none());
    for regime in REGIMES {
        let format = |bits| Stage1El2::new(regime, bits);
        assert!(format(31).is_none() && format(49).is_none());
        assert_eq!(format(39).unwrap().levels().len(), 3);
        assert_eq!(format(40).unwrap().levels().len(), 4);
        assert_eq!(format(48).unwrap().t0sz(), 16);
    }
}

/// The bits of the descriptors, written out from Arm ARM D8.3 by hand.
#[test]
fn descriptors_have_the_architected_bits() {
    let format = stage2();
    let [.., block, page] = format.levels() else { panic!() };
    let leaf = |level, attributes| format.leaf(level, PhysAddr(0x1234_5600_0000), attributes);
    assert_eq!(leaf(*block, Stage2Attributes::RAM), 0x0000_1234_5600_07fd);
    assert_eq!(leaf(*page, Stage2Attributes::RAM), 0x0000_1234_5600_07ff);
    assert_eq!(leaf(*page, Stage2Attributes::DEVICE) & !ADDRESS_48, 0x0040_0000_0000_06c7);
    assert_eq!(leaf(*page, Stage2Attributes::ROM) & 0xc0, 0x40);
    assert_eq!(format.table(*block, PhysAddr(0x7000)), 0x7003);

    let format = Stage1El2::new(Stage1Regime::El2And0, 48).unwrap();
    let [.., block, page] = format.levels() else { panic!() };
    let leaf = |level, attributes| format.leaf(level, PhysAddr(0x4000_0000), attributes);
    assert_eq!(leaf(*block, Stage1Attributes::CODE), 0x0040_0000_4000_0789);
    assert_eq!(leaf(*page, Stage1Attributes::CONSTANT), 0x0060_0000_4000_078b);
    assert_eq!(leaf(*page, Stage1Attributes::DATA), 0x0060_0000_4000_070b);
    assert_eq!(leaf(*page, Stage1Attributes::DEVICE), 0x0060_0000_4000_0603);

    let format = Stage1El2::new(Stage1Regime::El2, 48).unwrap();
    let leaf = |level, attributes| format.leaf(level, PhysAddr(0x4000_0000), attributes);
    assert_eq!(leaf(*block, Stage1Attributes::CODE), 0x0000_0000_4000_07c9);
    assert_eq!(leaf(*page, Stage1Attributes::CONSTANT), 0x0040_0000_4000_07cb);
    assert_eq!(leaf(*page, Stage1Attributes::DATA), 0x0040_0000_4000_074b);
    assert_eq!(leaf(*page, Stage1Attributes::DEVICE), 0x0040_0000_4000_0643);
}

#[test]
fn entries_of_services_are_for_el0_and_one_asid() {
    let format = Stage1El0::new();
    let page = format.levels().last().unwrap();
    let leaf = |attributes| format.leaf(*page, PhysAddr(0x4000_0000), attributes);
    // PXN, nG, AP[1]; UXN for all but code, AP[2] for all but data.
    assert_eq!(leaf(Stage1Attributes::CODE), 0x0020_0000_4000_0fcb);
    assert_eq!(leaf(Stage1Attributes::CONSTANT), 0x0060_0000_4000_0fcb);
    assert_eq!(leaf(Stage1Attributes::DATA), 0x0060_0000_4000_0f4b);
    for attributes in [Stage1Attributes::CODE, Stage1Attributes::CONSTANT, Stage1Attributes::DATA] {
        let Entry::Leaf(address, decoded) = format.decode(*page, leaf(attributes)) else { panic!("a page") };
        assert_eq!((address.0, decoded), (0x4000_0000, attributes));
    }
    assert_eq!((Stage1El0::BASE, format.levels().len()), (0xffff_ff80_0000_0000, 3));
}

const REGIMES: [Stage1Regime; 2] = [Stage1Regime::El2, Stage1Regime::El2And0];
const ADDRESS_48: u64 = 0x0000_ffff_ffff_f000;

#[test]
fn hypervisor_attributes_survive_a_round_trip_and_never_allow_write_and_execute() {
    for regime in REGIMES {
        for memory in [Memory::Normal, Memory::NonCacheable, Memory::Device] {
            for permission in [Permission::ReadOnly, Permission::ReadWrite, Permission::ReadExecute] {
                round_trip(regime, Stage1Attributes { memory, permission });
            }
        }
    }
}

fn round_trip(regime: Stage1Regime, attributes: Stage1Attributes) {
    let mut tables = Memories::new(usize::MAX);
    let mut table = PageTable::new(Stage1El2::new(regime, 48).unwrap(), &mut tables).unwrap();
    table.map(&mut tables, MIB2, PhysAddr(0), MIB2 + PAGE, attributes).unwrap();
    for address in [MIB2, 2 * MIB2] {
        assert_eq!(table.translate(&tables, address).unwrap().attributes, attributes);
    }
    let entries = tables.tables.values().flatten();
    for entry in entries.filter(|&&entry| entry & 1 << 10 != 0) {
        let bit = |n: u32| entry >> n & 1 != 0;
        let (writable, read_only) = (!bit(7), bit(7));
        match regime {
            // AP[1] is RES1; XN.
            Stage1Regime::El2 => assert!(bit(6) && !bit(53) && (read_only || bit(54))),
            // EL0 has no access (AP[1], UXN); PXN.
            Stage1Regime::El2And0 => assert!(!bit(6) && bit(54) && (read_only || bit(53))),
        }
        assert_eq!(writable, attributes.permission == Permission::ReadWrite);
    }
}
