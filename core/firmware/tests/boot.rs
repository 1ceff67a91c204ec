// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What boot loaders pass, written here by the specifications' offsets.

mod common;

use common::{Ram, bytes};
use proptest::prelude::*;
use turnstile_firmware::boot::{self, Error, MULTIBOOT2, PVH, Region};
use turnstile_firmware::{BootInfo, Range};

const INFO: u64 = 0x5000;

fn region(base: u64, size: u64, usable: bool) -> Region {
    Region { range: Range { base, size }, usable }
}

fn assert_is_the_machine(info: &BootInfo<'_>) {
    let expected =
        [region(0, 0x9_fc00, true), region(0xf_0000, 0x1_0000, false), region(1 << 20, 7 << 30, true)];
    assert_eq!(info.memory.as_slice(), expected);
    assert_eq!(info.module, Some(Range { base: 0x80_0000, size: 0x1234 }));
    assert_eq!(info.command_line, "link=framed a=b");
    assert!(info.rsdp.is_some());
}

const MAP: [(u64, u64, u64); 4] =
    [(0, 0x9_fc00, 1), (0xf_0000, 0x1_0000, 2), (5, 0, 1), (1 << 20, 7 << 30, 1)];

fn pvh(version: u64) -> Ram {
    let mut ram = Ram::new();
    let header = [(u64::from(PVH), 4), (version, 4), (0, 4), (1, 4), (0x6000, 8), (0x7000, 8), (0xf_0000, 8)];
    ram.put(INFO, &bytes(&header));
    ram.put(INFO + 40, &bytes(&[(0x6100, 8), (MAP.len() as u64, 4), (0, 4)]));
    ram.put(0x6000, &bytes(&[(0x80_0000, 8), (0x1234, 8), (0, 8), (0, 8)]));
    for (index, (base, size, kind)) in MAP.into_iter().enumerate() {
        ram.put(0x6100 + 24 * index as u64, &bytes(&[(base, 8), (size, 8), (kind, 4), (0, 4)]));
    }
    ram.put(0x7000, b"link=framed a=b\0rubbish");
    ram
}

fn tag(kind: u64, body: &[u8]) -> Vec<u8> {
    let mut tag = bytes(&[(kind, 4), (8 + body.len() as u64, 4)]);
    tag.extend(body);
    tag.resize(tag.len().next_multiple_of(8), 0xcc);
    tag
}

fn multiboot2() -> Ram {
    let map: Vec<u8> = MAP
        .iter()
        .flat_map(|(base, size, kind)| bytes(&[(*base, 8), (*size, 8), (*kind, 4), (0, 4)]))
        .collect();
    let module = |start: u64, end: u64| [bytes(&[(start, 4), (end, 4)]), b"name\0".to_vec()].concat();
    let tags = [
        tag(1, b"link=framed a=b\0"),
        tag(4, &[0; 8]),
        tag(3, &module(0x80_0000, 0x80_1234)),
        tag(3, &module(0x90_0000, 0x90_0001)),
        tag(6, &[bytes(&[(24, 4), (0, 4)]), map].concat()),
        tag(14, &[0; 20]),
        tag(0, &[]),
    ]
    .concat();
    let mut ram = Ram::new();
    ram.put(INFO, &bytes(&[(8 + tags.len() as u64, 4), (0, 4)]));
    ram.put(INFO + 8, &tags);
    ram
}

#[test]
fn both_protocols_say_the_same() {
    assert_is_the_machine(&boot::read(&pvh(1), PVH, INFO).unwrap());
    assert_is_the_machine(&boot::read(&multiboot2(), MULTIBOOT2, INFO).unwrap());
}

#[test]
fn what_is_missing_is_named() {
    let read = |ram: &Ram, magic| boot::read(ram, magic, INFO).map(|_| ()).unwrap_err();
    assert_eq!(read(&pvh(0), PVH), Error::NoMemory);
    assert_eq!(read(&pvh(1), 0x2bad_b002), Error::Protocol(0x2bad_b002));
    assert_eq!(read(&Ram::new(), PVH), Error::Damaged);
    assert_eq!(read(&Ram::new(), MULTIBOOT2), Error::Damaged);
    let mut many = pvh(1);
    many.put(INFO + 48, &bytes(&[(65, 4)]));
    for index in 0..65 {
        many.put(0x10_0000 + 24 * index, &bytes(&[(index << 20, 8), (1 << 12, 8), (1, 4)]));
    }
    many.put(INFO + 40, &bytes(&[(0x10_0000, 8)]));
    assert_eq!(read(&many, PVH), Error::TooManyRegions);
}

#[test]
fn a_command_line_at_the_end_of_memory_is_read() {
    let mut ram = pvh(1);
    let end = ram.0.len() as u64;
    ram.put(end - 4, b"tail");
    ram.put(INFO + 24, &bytes(&[(end - 4, 8)]));
    assert_eq!(boot::read(&ram, PVH, INFO).unwrap().command_line, "tail");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn damaged_information_is_read_to_an_end(changes in prop::collection::vec((0..400u64, any::<u8>()), 1..24)) {
        for (mut ram, magic) in [(pvh(1), PVH), (multiboot2(), MULTIBOOT2)] {
            for (at, value) in &changes {
                ram.put(INFO + at, &[*value]);
            }
            if let Ok(info) = boot::read(&ram, magic, INFO) {
                prop_assert!(info.memory.iter().all(|region| region.range.size > 0));
                prop_assert!(info.module.is_none_or(|module| module.size > 0));
            }
        }
    }
}
