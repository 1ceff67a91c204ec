// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Finds a partition in a GUID partition table (UEFI 2.10, section 5.3). Whoever writes the disk may be hostile.
//!
//! The reader does no input: it says which block it wants, and is given it. It asks for the header, its array of entries and, if something
//! is wrong with either, for those at the end of the disk: at most 2 + 2 * [`MAX_BYTES`] / block size blocks.

use core::fmt;

use crc::{CRC_32_ISO_HDLC, Crc, Digest};

/// How many bytes an array of entries has at most; four times as many as tools make.
pub const MAX_BYTES: u32 = 65536;
/// The sum of header and array.
static SUM: Crc<u32> = Crc::<u32>::new(&CRC_32_ISO_HDLC);
/// How many bytes the fields of a header have.
const HEADER: usize = 92;
/// How many bytes the fields of an entry have.
const ENTRY: usize = 128;
/// How many partitions there are at most.
const MOST: usize = (MAX_BYTES as usize) / ENTRY;

/// Which partition is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// The one with this number, counted from 1.
    Number(u32),
    /// The one with this identity, as it is stored.
    Id([u8; 16]),
}

/// What is wrong with a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// A block does not have 512 to 4096 bytes, a power of two, or not the bytes that were announced; or the disk is too short for a table.
    Block,
    /// There is no table.
    Signature,
    /// The header has a length that it cannot have, or says that it is elsewhere.
    Header,
    /// The header or the array is not as it was written.
    Sum,
    /// The array is too long, its entries have a size that they cannot have, or it is not on the disk.
    Array,
    /// There is no such partition.
    Missing,
    /// The partition is not within what the header has for partitions.
    Range,
    /// Another partition has blocks of it, or the identity that was asked for.
    Overlap,
    /// It has blocks of the table, so its guest could say where it is the next time.
    Table,
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Block => "blocks have a size that they cannot have, or there are too few",
            Self::Signature => "there is no GUID partition table",
            Self::Header => "the header of the partition table is wrong",
            Self::Sum => "the partition table is damaged",
            Self::Array => "the array of partitions is too long, or elsewhere",
            Self::Missing => "there is no such partition",
            Self::Range => "the partition is not within the disk",
            Self::Overlap => "another partition has blocks of it",
            Self::Table => {
                "the partition table is in it: have a tool for partitions move it behind the table"
            }
        })
    }
}

impl core::error::Error for Wrong {}

/// A partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// Its first block.
    pub first: u64,
    /// How many it has; at least one.
    pub blocks: u64,
    /// What kind it is, as it is stored.
    pub kind: [u8; 16],
    /// Its identity, as it is stored.
    pub id: [u8; 16],
}

impl Found {
    /// The last block.
    const fn last(&self) -> u64 {
        self.first + (self.blocks - 1)
    }
}

/// What the reader wants next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// This block, by [`Reader::give`].
    Block(u64),
    /// Nothing: this is the partition.
    Done(Found),
}

/// What a header says.
#[derive(Clone, Copy, Debug, Default)]
struct Header {
    /// Where the partitions may be: the first and the last block.
    first: u64,
    last: u64,
    /// Where the array is.
    array: u64,
    count: u32,
    size: u32,
    sum: u32,
}

impl Header {
    /// The block behind the array, on a disk with blocks of so many bytes.
    const fn array_end(&self, size: usize) -> u64 {
        self.array + (self.count as u64 * self.size as u64).div_ceil(size as u64)
    }
}

enum State {
    Header,
    Array { header: Header, block: u64, sum: Digest<'static, u32> },
    Done(Found),
    Failed(Wrong),
}

/// Reads the table of a disk.
pub struct Reader {
    want: Want,
    blocks: u64,
    size: usize,
    state: State,
    /// What was wrong with the first table, if this is the second.
    first_wrong: Option<Wrong>,
    /// The present entry.
    entry: [u8; ENTRY],
    /// How many bytes of the array are behind.
    seen: u32,
    found: Option<Found>,
    /// The other partitions: first and last block.
    others: [(u64, u64); MOST],
    count: usize,
    twice: bool,
}

impl Reader {
    /// Begins with a disk of `blocks` blocks of `size` bytes.
    pub fn new(blocks: u64, size: usize, want: Want) -> Result<Self, Wrong> {
        if !matches!(size, 512 | 1024 | 2048 | 4096) || !(6..=1 << 55).contains(&blocks) {
            return Err(Wrong::Block);
        }
        Ok(Self {
            want,
            blocks,
            size,
            state: State::Header,
            first_wrong: None,
            entry: [0; ENTRY],
            seen: 0,
            found: None,
            others: [(0, 0); MOST],
            count: 0,
            twice: false,
        })
    }

    /// Says what is wanted next. If both tables are wrong, the error is that of the first.
    pub const fn step(&self) -> Result<Step, Wrong> {
        match &self.state {
            State::Header => Ok(Step::Block(self.header_block())),
            State::Array { block, .. } => Ok(Step::Block(*block)),
            State::Done(found) => Ok(Step::Done(*found)),
            State::Failed(wrong) => Err(*wrong),
        }
    }

    /// Where the header is that is read now.
    const fn header_block(&self) -> u64 {
        if self.first_wrong.is_none() { 1 } else { self.blocks - 1 }
    }

    /// Gives the block that was wanted.
    pub fn give(&mut self, block: &[u8]) {
        let result = if block.len() == self.size { self.digest(block) } else { Err(Wrong::Block) };
        let Err(wrong) = result else { return };
        self.state = match self.first_wrong {
            // A table that is whole but does not have the partition is the truth.
            _ if matches!(wrong, Wrong::Missing | Wrong::Range | Wrong::Overlap | Wrong::Table) => {
                State::Failed(wrong)
            }
            Some(first) => State::Failed(first),
            None => State::Header,
        };
        self.first_wrong.get_or_insert(wrong);
        (self.seen, self.count, self.found, self.twice) = (0, 0, None, false);
    }

    fn digest(&mut self, block: &[u8]) -> Result<(), Wrong> {
        match &mut self.state {
            State::Header => {
                let header = self.header(block)?;
                self.state = State::Array { header, block: header.array, sum: SUM.digest() };
                Ok(())
            }
            State::Array { header, block: at, sum } => {
                let header = *header;
                let left = (header.count * header.size - self.seen) as usize;
                let bytes = block.get(..left.min(block.len())).unwrap_or_default();
                sum.update(bytes);
                *at += 1;
                let done = left == bytes.len();
                let whole = !done || sum.clone().finalize() == header.sum;
                self.entries(&header, bytes);
                if !whole {
                    return Err(Wrong::Sum);
                }
                if done {
                    self.state = State::Done(self.conclude(&header)?);
                }
                Ok(())
            }
            State::Done(_) | State::Failed(_) => Ok(()),
        }
    }

    /// Checks a header.
    fn header(&self, block: &[u8]) -> Result<Header, Wrong> {
        if block.get(..8) != Some(b"EFI PART") {
            return Err(Wrong::Signature);
        }
        let length = word(block, 12) as usize;
        let mut sum = SUM.digest();
        let own = block.get(..length).filter(|own| own.len() >= HEADER).ok_or(Wrong::Header)?;
        // The sum is that of the header in which its own field is zero.
        sum.update(own.get(..16).unwrap_or_default());
        sum.update(&[0; 4]);
        sum.update(own.get(20..).unwrap_or_default());
        if sum.finalize() != word(block, 16) {
            return Err(Wrong::Sum);
        }
        if long(block, 24) != self.header_block() {
            return Err(Wrong::Header);
        }
        let header = Header {
            first: long(block, 40),
            last: long(block, 48),
            array: long(block, 72),
            count: word(block, 80),
            size: word(block, 84),
            sum: word(block, 88),
        };
        let bytes = header.count.checked_mul(header.size).filter(|bytes| (1..=MAX_BYTES).contains(bytes));
        let size_is_right = header.size >= ENTRY as u32 && header.size.is_power_of_two();
        let bytes = bytes.filter(|_| size_is_right).ok_or(Wrong::Array)?;
        let end = header.array.checked_add(u64::from(bytes).div_ceil(self.size as u64));
        if header.array < 2 || end.is_none_or(|end| end > self.blocks) {
            return Err(Wrong::Array);
        }
        if header.first < 2 || header.first > header.last || header.last >= self.blocks {
            return Err(Wrong::Header);
        }
        Ok(header)
    }

    /// Takes in the bytes of entries. An entry may be longer than a block, and its fields are at its beginning.
    fn entries(&mut self, header: &Header, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let at = (self.seen % header.size) as usize;
            let length = bytes.len().min(header.size as usize - at);
            let (now, rest) = bytes.split_at(length);
            if let Some(fields) = self.entry.get_mut(at..) {
                let length = fields.len().min(now.len());
                let (to, from) = (fields.get_mut(..length), now.get(..length));
                to.unwrap_or_default().copy_from_slice(from.unwrap_or_default());
            }
            self.seen += length as u32;
            if self.seen.is_multiple_of(header.size) {
                self.one(self.seen / header.size);
            }
            bytes = rest;
        }
    }

    /// An entry is whole: the one with this number, counted from 1.
    fn one(&mut self, number: u32) {
        let entry = &self.entry;
        let (kind, id) = (bytes(entry, 0), bytes(entry, 16));
        if kind == [0; 16] {
            return;
        }
        let (first, last) = (long(entry, 32), long(entry, 40));
        let wanted = match self.want {
            Want::Number(wanted) => wanted == number,
            Want::Id(wanted) => wanted == id,
        };
        if wanted {
            self.twice |= self.found.is_some();
            // A partition of no or of all blocks is out of range.
            let blocks = last.checked_sub(first).and_then(|blocks| blocks.checked_add(1)).unwrap_or(0);
            self.found = Some(Found { first, blocks, kind, id });
        } else if let Some(other) = self.others.get_mut(self.count) {
            *other = (first, last);
            self.count += 1;
        }
    }

    /// All entries are there, and as they were written.
    fn conclude(&self, header: &Header) -> Result<Found, Wrong> {
        let found = self.found.ok_or(Wrong::Missing)?;
        if found.blocks == 0 || found.first < header.first || found.last() > header.last {
            return Err(Wrong::Range);
        }
        // The first block of those for partitions is behind the first header. The last one of the disk is the other header's. Behind the one, and
        // before the other, are their arrays, of which the one that was not read may count the next time (UEFI 2.10, section 5.3.2).
        let array = header.array..header.array_end(self.size);
        let length = array.end - array.start;
        let meets_table = found.first < array.end && array.start <= found.last();
        if meets_table || found.first < 2 + length || found.last() >= (self.blocks - 1).saturating_sub(length)
        {
            return Err(Wrong::Table);
        }
        let others = self.others.get(..self.count).unwrap_or_default();
        let meets = others.iter().any(|&(first, last)| first <= found.last() && last >= found.first);
        if meets || self.twice {
            return Err(Wrong::Overlap);
        }
        Ok(found)
    }
}

fn bytes<const N: usize>(block: &[u8], at: usize) -> [u8; N] {
    block.get(at..).and_then(|rest| rest.first_chunk()).copied().unwrap_or([0; N])
}

fn word(block: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes(block, at))
}

fn long(block: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes(block, at))
}
