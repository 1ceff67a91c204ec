// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The stream table: what becomes of what a device reaches for (sections 3.3.1, 5.1 and 5.2).
//!
//! Pieces of it have 64 entries, a page. Without a second level it is one piece. With one, the first level leads to pieces that are made when one of their
//! streams gets memory; who has none is refused without a record, and so is each stream of a piece that has no memory.

use turnstile_paging::{PhysAddr, Stage2, Tables};

use super::platform::Error;
use super::registers::Features;

/// Streams of a piece, as a logarithm, and the bytes of a piece.
const PIECE: u32 = 6;
const PIECE_BYTES: u64 = 64 << PIECE;
/// Words of an entry.
const WORDS: usize = 8;
/// The most bits of a stream's number: a first level of 128 KiB.
const MOST_BITS: u32 = 20;
/// The first word: it is valid.
const VALID: u64 = 1;
/// The first word: stage 2 alone translates. Without it, all is aborted, and not recorded.
const STAGE2: u64 = 0b110 << 1;
/// The second word: shareability is what the device says.
const INCOMING: u64 = 0b01 << 44;
/// The third word: Write-Back, Inner Shareable walks; tables of 64 bits.
const WALKS: u64 = 0b11 << 44 | 0b01 << 42 | 0b01 << 40;
const TABLES_64: u64 = 1 << 51;
/// The third word: faults are recorded.
const RECORDS: u64 = 1 << 58;
/// The register of the table's address, and its shape: there are two levels; where the first one ends.
const ALLOCATE: u64 = 1 << 62;
const TWO_LEVELS: u32 = 1 << 16;

/// An entry: what a stream reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry([u64; WORDS]);

impl Entry {
    /// One that reaches nothing.
    const ABORT: Self = Self([VALID, 0, 0, 0, 0, 0, 0, 0]);

    /// Returns that of a stream with this number as a virtual machine, which reaches what tables of this format map.
    pub fn translated(vm: u16, format: &Stage2, output_size: u64, root: PhysAddr) -> Self {
        let shape = format.t0sz() << 32 | format.sl0() << 38 | output_size << 48;
        let third = u64::from(vm) | shape | WALKS | TABLES_64 | RECORDS;
        Self([VALID | STAGE2, INCOMING, third, root.0, 0, 0, 0, 0])
    }

    /// Returns it for a stream whose faults are not recorded.
    pub fn silent(self) -> Self {
        let Self([a, b, third, c, d, e, f, g]) = self;
        Self([a, b, third & !RECORDS, c, d, e, f, g])
    }

    /// Returns it without what makes it count.
    pub fn rest(self) -> Self {
        let [_, rest @ ..] = self.0;
        let [a, b, c, d, e, f, g] = rest;
        Self([VALID, a, b, c, d, e, f, g])
    }
}

/// The stream table.
#[derive(Clone, Copy, Debug)]
pub(super) struct StreamTable {
    root: PhysAddr,
    /// Bits of a stream's number.
    bits: u32,
    two_levels: bool,
}

impl StreamTable {
    /// Makes one for streams below this number, none of which reaches anything.
    pub fn new(features: &Features, tables: &mut impl Tables, streams: u64) -> Result<Self, Error> {
        let needed = 64 - streams.saturating_sub(1).leading_zeros();
        let bits = needed.min(features.stream_bits).max(PIECE);
        let two_levels = features.two_levels && bits > PIECE;
        let bits = bits.min(if two_levels { MOST_BITS } else { PIECE });
        let bytes = if two_levels { 8 << (bits - PIECE) } else { PIECE_BYTES };
        let bytes = bytes.max(PIECE_BYTES);
        let root = tables.allocate(bytes).ok_or(turnstile_paging::Error::OutOfTables)?;
        let table = Self { root, bits, two_levels };
        if !two_levels {
            abort_all(tables, root);
        }
        Ok(table)
    }

    /// Returns STRTAB_BASE.
    pub fn base(&self) -> u64 {
        self.root.0 | ALLOCATE
    }

    /// Returns STRTAB_BASE_CFG.
    pub fn shape(&self) -> u32 {
        self.bits | if self.two_levels { TWO_LEVELS | PIECE << 6 } else { 0 }
    }

    /// Returns the piece with a stream's entry, and the number of its first word there.
    fn find(&self, tables: &impl Tables, stream: u32) -> Option<(PhysAddr, usize)> {
        let index = (stream & ((1 << PIECE) - 1)) as usize * WORDS;
        if u64::from(stream) >> self.bits != 0 {
            return None;
        }
        if !self.two_levels {
            return Some((self.root, index));
        }
        let first = tables.read(self.root, (stream >> PIECE) as usize);
        (first != 0).then_some((PhysAddr(first & !(PIECE_BYTES - 1)), index))
    }

    /// Makes the piece for a stream.
    pub fn prepare(&self, tables: &mut impl Tables, stream: u32) -> Result<(), Error> {
        if u64::from(stream) >> self.bits != 0 {
            return Err(Error::NoStream(stream));
        }
        if self.find(tables, stream).is_none() {
            let piece = tables.allocate(PIECE_BYTES).ok_or(turnstile_paging::Error::OutOfTables)?;
            abort_all(tables, piece);
            // Span: 2^(span - 1) entries.
            tables.write(self.root, (stream >> PIECE) as usize, piece.0 | u64::from(PIECE + 1));
        }
        Ok(())
    }

    /// Writes an entry: the word that makes it count comes last.
    pub fn write(&self, tables: &mut impl Tables, stream: u32, entry: Entry) -> Result<(), Error> {
        let (piece, at) = self.find(tables, stream).ok_or(Error::NoStream(stream))?;
        for (word, value) in entry.0.into_iter().enumerate().rev() {
            tables.write(piece, at + word, value);
        }
        Ok(())
    }

    /// Has a stream reach nothing, by one word of its entry: the others may change when the SMMU has forgotten it.
    pub fn abort(&self, tables: &mut impl Tables, stream: u32) -> Result<(), Error> {
        let (piece, at) = self.find(tables, stream).ok_or(Error::NoStream(stream))?;
        tables.write(piece, at, Entry::ABORT.0[0]);
        Ok(())
    }

    /// Has the faults of a stream not recorded.
    pub fn silence(&self, tables: &mut impl Tables, stream: u32) -> Result<(), Error> {
        let (piece, at) = self.find(tables, stream).ok_or(Error::NoStream(stream))?;
        let third = tables.read(piece, at + 2);
        tables.write(piece, at + 2, third & !RECORDS);
        Ok(())
    }
}

/// Has the streams of a new piece reach nothing.
fn abort_all(tables: &mut impl Tables, piece: PhysAddr) {
    for at in (0..WORDS << PIECE).step_by(WORDS) {
        tables.write(piece, at, Entry::ABORT.0[0]);
    }
}
