// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Partition tables, right, damaged and hostile.

use proptest::prelude::*;
use turnstile_block::gpt::{Found, MAX_BYTES, Reader, Step, Want, Wrong};
use turnstile_rig::Random;

/// The sum of UEFI 2.10, section 5.3.2, bit by bit.
fn sum(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0u32, |sum, &byte| {
        (0..8).fold(
            sum ^ u32::from(byte),
            |sum, _| if sum & 1 == 1 { sum >> 1 ^ 0xedb8_8320 } else { sum >> 1 },
        )
    })
}

/// A disk of 512 blocks with a table at its beginning and one at its end.
#[derive(Clone)]
struct Table {
    size: usize,
    entry: usize,
    blocks: Vec<u8>,
    array: Vec<u8>,
    usable: (u64, u64),
    /// What the header says of the array.
    count: u32,
}

impl Table {
    fn new(size: usize, entry: usize, parts: &[(u64, u64)]) -> Self {
        let mut array = vec![0; entry * parts.len()];
        for (index, (first, last)) in parts.iter().enumerate() {
            let fields = &mut array[entry * index..];
            fields[..16].fill(0x11);
            fields[16..32].fill(index as u8 + 1);
            fields[32..40].copy_from_slice(&first.to_le_bytes());
            fields[40..48].copy_from_slice(&last.to_le_bytes());
        }
        Self {
            size,
            entry,
            blocks: vec![0; 512 * size],
            array,
            usable: (100, 400),
            count: parts.len() as u32,
        }
    }

    /// Writes both tables.
    fn write(&mut self) {
        self.one(1, 2);
        self.one(511, 480);
    }

    fn one(&mut self, at: usize, array: usize) {
        let begin = self.size * array;
        let room = &mut self.blocks[begin..];
        let length = self.array.len().min(room.len());
        room[..length].copy_from_slice(&self.array[..length]);
        let mut header = vec![0; 92];
        header[..8].copy_from_slice(b"EFI PART");
        header[12] = 92;
        header[24..32].copy_from_slice(&(at as u64).to_le_bytes());
        header[40..48].copy_from_slice(&self.usable.0.to_le_bytes());
        header[48..56].copy_from_slice(&self.usable.1.to_le_bytes());
        header[72..80].copy_from_slice(&(array as u64).to_le_bytes());
        header[80..84].copy_from_slice(&self.count.to_le_bytes());
        header[84..88].copy_from_slice(&(self.entry as u32).to_le_bytes());
        header[88..92].copy_from_slice(&sum(&self.array).to_le_bytes());
        let whole = sum(&header);
        header[16..20].copy_from_slice(&whole.to_le_bytes());
        self.blocks[self.size * at..][..92].copy_from_slice(&header);
    }

    fn find(&self, want: Want) -> Result<Found, Wrong> {
        let count = (self.blocks.len() / self.size) as u64;
        let mut reader = Reader::new(count, self.size, want)?;
        for _ in 0..2 + 2 * MAX_BYTES as usize / self.size {
            match reader.step()? {
                Step::Block(block) => {
                    assert!(block < count, "only blocks of the disk are asked for");
                    reader.give(&self.blocks[self.size * block as usize..][..self.size]);
                }
                Step::Done(found) => return Ok(found),
            }
        }
        match reader.step()? {
            Step::Done(found) => Ok(found),
            Step::Block(_) => panic!("the work is bounded"),
        }
    }
}

const PARTS: [(u64, u64); 4] = [(100, 149), (200, 200), (150, 199), (300, 400)];

#[test]
fn partitions_are_found() {
    for (size, entry) in [(512, 128), (4096, 128), (512, 1024), (2048, 256)] {
        let mut table = Table::new(size, entry, &PARTS);
        table.write();
        for (index, (first, last)) in (1..).zip(PARTS) {
            let found = table.find(Want::Number(index)).unwrap();
            assert_eq!((found.first, found.blocks), (first, last - first + 1));
            assert_eq!((found.kind, found.id), ([0x11; 16], [index as u8; 16]));
            assert_eq!(table.find(Want::Id([index as u8; 16])), Ok(found));
        }
        assert_eq!(table.find(Want::Number(5)), Err(Wrong::Missing));
        assert_eq!(table.find(Want::Number(0)), Err(Wrong::Missing));
        assert_eq!(table.find(Want::Id([0; 16])), Err(Wrong::Missing), "an empty entry is no partition");
    }
}

#[test]
fn the_second_table_helps_if_the_first_is_damaged() {
    let mut table = Table::new(512, 128, &PARTS);
    table.write();
    for at in [512, 512 + 30, 512 + 50, 1024 + 33] {
        let mut damaged = table.clone();
        damaged.blocks[at] ^= 4;
        assert_eq!(damaged.find(Want::Number(2)), table.find(Want::Number(2)));
        damaged.blocks[511 * 512 + 24] ^= 1;
        let wrong = if at == 512 { Wrong::Signature } else { Wrong::Sum };
        assert_eq!(damaged.find(Want::Number(2)), Err(wrong), "what was wrong first");
    }
}

#[test]
fn tables_that_lie_are_named() {
    let find = |change: &dyn Fn(&mut Table), number| {
        let mut table = Table::new(512, 128, &PARTS);
        change(&mut table);
        table.write();
        table.find(Want::Number(number)).map(|found| (found.first, found.blocks))
    };
    let part = |index: usize, first: u64, last: u64| {
        move |table: &mut Table| {
            table.array[128 * index + 32..][..8].copy_from_slice(&first.to_le_bytes());
            table.array[128 * index + 40..][..8].copy_from_slice(&last.to_le_bytes());
        }
    };
    for (first, last) in
        [(99, 149), (1, 5), (390, 401), (120, 119), (0, u64::MAX), (1, 0), (u64::MAX, u64::MAX)]
    {
        assert_eq!(find(&part(0, first, last), 1), Err(Wrong::Range), "{first} to {last}");
    }
    for (first, last) in [(140, 250), (149, 149), (100, 100), (0, u64::MAX), (50, 120)] {
        assert_eq!(find(&part(3, first, last), 1), Err(Wrong::Overlap), "{first} to {last}");
    }
    assert_eq!(find(&part(3, 150, 149), 1), Ok((100, 50)));
    let twice = |table: &mut Table| table.array[128 * 3 + 16..][..16].fill(1);
    let mut table = Table::new(512, 128, &PARTS);
    twice(&mut table);
    table.write();
    assert_eq!(table.find(Want::Id([1; 16])), Err(Wrong::Overlap));
    assert_eq!(find(&|table| table.usable = (1, 400), 1), Err(Wrong::Header));
    assert_eq!(find(&|table| table.usable = (100, 512), 1), Err(Wrong::Header));
    assert_eq!(find(&|table| table.usable = (400, 100), 1), Err(Wrong::Header));
    for count in [0, 513, 1 << 25, u32::MAX] {
        assert_eq!(find(&|table| table.count = count, 1), Err(Wrong::Array), "{count} entries");
    }
    for entry in [0, 64, 192, 1 << 31] {
        let change = |table: &mut Table| table.entry = entry;
        assert_eq!(find(&change, 1), Err(Wrong::Array), "{entry} bytes");
    }
    for (blocks, size) in [(512, 500), (512, 8192), (5, 512), (u64::MAX, 512)] {
        assert_eq!(Reader::new(blocks, size, Want::Number(1)).err(), Some(Wrong::Block));
    }
    let mut reader = Reader::new(512, 512, Want::Number(1)).unwrap();
    reader.give(&[0; 100]);
    reader.give(&[0; 100]);
    assert_eq!(reader.step(), Err(Wrong::Block));
}

/// Who can write the table says where its partition is the next time: in another guest's.
#[test]
fn no_partition_has_blocks_of_the_table() {
    let find = |first: u64, last: u64, entries: usize| {
        let mut parts = vec![(first, last)];
        parts.resize(entries, (600, 600));
        let mut table = Table::new(512, 128, &parts);
        table.usable = (2, 511);
        table.write();
        table.find(Want::Number(1)).map(|found| (found.first, found.blocks))
    };
    // Entries of four are in a block: those of eight are in blocks 2 and 3.
    for (first, last) in [(2, 2), (3, 3), (2, 100), (3, 100), (100, 509), (510, 510), (100, 511), (511, 511)]
    {
        assert_eq!(find(first, last, 8), Err(Wrong::Table), "{first} to {last}");
    }
    assert_eq!(find(4, 100, 8), Ok((4, 97)));
    assert_eq!(find(3, 100, 4), Ok((3, 98)));
    assert_eq!(find(100, 508, 8), Ok((100, 409)));
    // Where the first table is damaged, of the second one.
    let mut table = Table::new(512, 128, &[(470, 479), (470, 480)]);
    table.usable = (2, 511);
    table.write();
    table.blocks[512] = 0;
    table.blocks[511 * 512 + 92..].fill(0);
    assert_eq!(table.find(Want::Number(2)), Err(Wrong::Table));
}

proptest! {
    /// Whatever is in the blocks, also with right sums: what is found is a part of what is for partitions, of its own.
    #[test]
    fn what_is_found_is_within_the_disk(seed in 1u64.., size in prop::sample::select(vec![512usize, 4096])) {
        let random = &mut Random(seed);
        let near = |random: &mut Random| match random.below(12) {
            0 => u64::MAX - random.below(2),
            1 => random.below(520),
            _ => 100 + random.below(310),
        };
        let parts: Vec<_> = (0..1 + random.below(6)).map(|_| (near(random), near(random))).collect();
        let mut table = Table::new(size, 128, &parts);
        if random.below(3) == 0 {
            table.usable = (near(random), near(random));
        }
        table.write();
        for _ in 0..random.below(4) {
            let at = random.below(8 * size as u64) as usize;
            table.blocks[at] ^= 1 << random.below(8);
        }
        let number = 1 + random.below(7) as u32;
        if let Ok(found) = table.find(Want::Number(number)) {
            let (first, last) = parts[number as usize - 1];
            prop_assert_eq!((found.first, found.first + found.blocks - 1), (first, last));
            prop_assert!(first >= table.usable.0 && first <= last && last <= table.usable.1 && last < 512);
            for (index, &(begin, end)) in parts.iter().enumerate() {
                prop_assert!(index + 1 == number as usize || end < first || begin > last);
            }
        }
    }
}
