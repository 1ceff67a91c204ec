// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The table of IOMMUs, written here by the specification's offsets.

use proptest::prelude::*;
use turnstile_firmware::IoApic;
use turnstile_firmware::ivrs::{self, Iommu, MAX_IOMMUS, MAX_RANGES, Named};

const ADDRESS: u64 = 0xfed8_0000;

/// Little-endian numbers, one after another.
fn bytes(parts: &[(u64, usize)]) -> Vec<u8> {
    parts.iter().flat_map(|(value, size)| value.to_le_bytes()[..*size].to_vec()).collect()
}

/// A table with these blocks.
fn table(blocks: &[Vec<u8>]) -> Vec<u8> {
    let mut table = vec![0; 48];
    table.extend(blocks.concat());
    table
}

/// A block of this type, of a segment, with these entries.
fn block(kind: u8, function: u16, segment: u64, entries: &[u8]) -> Vec<u8> {
    let header = if kind == 0x10 { 24 } else { 40 };
    let mut block = vec![kind, 0x0a];
    block.extend(bytes(&[(header + entries.len() as u64, 2), (function.into(), 2), (0x40, 2)]));
    block.extend(bytes(&[(ADDRESS, 8), (segment, 2)]));
    block.resize(header as usize, 0xff);
    block.extend(entries);
    block
}

fn short(kind: u64, function: u64) -> Vec<u8> {
    bytes(&[(kind, 1), (function, 2), (0xff, 1)])
}

fn long(kind: u64, function: u64, other: u64, last: u64) -> Vec<u8> {
    bytes(&[(kind, 1), (function, 2), (0, 1), (0, 1), (other, 2), (last, 1)])
}

/// Each I/O APIC of the MADT has to be named by its identification; other devices have numbers of their own.
#[test]
fn io_apics_without_a_name_are_found() {
    let special = |id, variety| bytes(&[(0x48, 1), (0, 3), (id, 1), (0xa0 + id, 2), (variety, 1)]);
    let named = [special(2, 1), special(7, 1), special(4, 2)].concat();
    let found = ivrs::read(&table(&[block(0x10, 2, 0, &named)]));
    let apic = |id| IoApic { id, address: 0xfec0_0000, first: 0 };
    let unnamed = |ids: &[u8]| found.unnamed(&ids.iter().copied().map(apic).collect::<Vec<_>>());
    assert_eq!([unnamed(&[2, 7]), unnamed(&[7]), unnamed(&[])], [None; 3]);
    assert_eq!([unnamed(&[2, 4, 7]), unnamed(&[0, 2])], [Some(4), Some(0)]);
}

#[test]
fn iommus_and_what_is_behind_them() {
    let entries = [
        short(3, 0x0018),
        short(4, 0x00ff),
        short(0, 0),
        short(2, 0x0100),
        long(0x42, 0x0200, 0x0018, 0),
        long(0x43, 0x0300, 0x0020, 0),
        short(4, 0x03ff),
        long(0x46, 0x0400, 0, 0),
        long(0x47, 0x0500, 0, 0),
        short(4, 0x0507),
        long(0x48, 0, 0x00a0, 1),
        long(0x48, 0, 0x00a1, 2),
    ];
    let found = ivrs::read(&table(&[block(0x10, 2, 0, &entries.concat())]));
    assert_eq!(found.iommus[..], [Iommu { function: 2, address: ADDRESS, flags: 0x0a }]);
    assert_eq!(found.io_apics[..], [Named { id: 0, requester: 0xa0 }], "the other one is a timer");
    for (function, requester) in [
        (0x0017, None),
        (0x0018, Some(0x0018)),
        (0x00ff, Some(0x00ff)),
        (0x0100, Some(0x0100)),
        (0x0101, None),
        (0x0200, Some(0x0018)),
        (0x0300, Some(0x0020)),
        (0x03ff, Some(0x0020)),
        (0x0400, Some(0x0400)),
        (0x0500, Some(0x0500)),
        (0x0507, Some(0x0507)),
        (0x0508, None),
    ] {
        assert_eq!(found.requester(function), requester, "{function:#x}");
    }
    let all = ivrs::read(&table(&[block(0x10, 2, 0, &[short(1, 0), long(0x42, 7, 8, 0)].concat())]));
    assert_eq!([0, 7, 0xffff].map(|function| all.requester(function)), [Some(0), Some(8), Some(0xffff)]);
}

#[test]
fn an_iommu_counts_once() {
    let blocks = [
        block(0x10, 2, 0, &short(1, 0)),
        block(0x11, 2, 0, &short(2, 0x10)),
        vec![0x20, 0, 8, 0, 0, 0, 0, 0],
        block(0x40, 2, 0, &[vec![0xf0; 21], vec![3, 1, 2, 3], short(2, 0x20)].concat()),
        block(0x40, 3, 0, &short(2, 0x30)),
        block(0x40, 4, 1, &short(2, 0x40)),
    ];
    let found = |count: usize| {
        let found = ivrs::read(&table(&blocks[..count]));
        let functions = [0x10, 0x20, 0x30, 0x40].map(|function| found.requester(function).is_some());
        (found.iommus.len(), functions)
    };
    assert_eq!(found(1), (1, [true; 4]));
    assert_eq!(found(2), (1, [true, false, false, false]));
    assert_eq!(found(6), (2, [false, true, true, false]), "segment 1 is not there");
    assert_eq!(found(0), (0, [false; 4]));
}

#[test]
fn what_is_cut_off_is_not_there() {
    let whole = table(&[block(0x11, 2, 0, &[short(2, 0x10), long(0x42, 0x20, 0x30, 0)].concat())]);
    for length in 0..whole.len() {
        assert!(ivrs::read(&whole[..length]).iommus.is_empty(), "{length}");
    }
    let last = table(&[block(0x11, 2, 0, &[short(2, 0x10), vec![0x42, 0x20, 0]].concat())]);
    let found = ivrs::read(&last);
    assert_eq!((found.requester(0x10), found.requester(0x20)), (Some(0x10), None));
    for length in 0..4 {
        let endless = table(&[bytes(&[(0x10, 1), (0, 1), (length, 2)]), vec![0; 64]]);
        assert!(ivrs::read(&endless).iommus.is_empty());
    }
}

#[test]
fn there_may_be_too_many() {
    let blocks: Vec<_> = (0..20).map(|number| block(0x10, number, 0, &short(2, number.into()))).collect();
    let found = ivrs::read(&table(&blocks));
    assert_eq!((found.iommus.len(), found.requester(19)), (MAX_IOMMUS, None));
    let entries: Vec<_> = (0..100).flat_map(|function| short(2, function)).collect();
    let found = ivrs::read(&table(&[block(0x10, 2, 0, &entries)]));
    let behind = (0..100).filter(|function| found.requester(*function).is_some()).count();
    assert_eq!(behind, MAX_RANGES, "the others are behind none");
}

proptest! {
    #[test]
    fn any_bytes_will_do(bytes in prop::collection::vec(any::<u8>(), 0..512), kind in 0usize..3) {
        ivrs::read(&bytes);
        let block = block([0x10, 0x11, 0x40][kind], 2, 0, &bytes);
        let found = ivrs::read(&table(&[block]));
        prop_assert_eq!(found.iommus.len(), 1);
    }
}
