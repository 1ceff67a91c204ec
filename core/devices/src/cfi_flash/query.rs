// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a chip says about itself (JESD68, and Intel's extended table for command set 0001).

use super::{BLOCK, BUFFER};

/// The word of each block that has its lock bit, among the identifiers and in the query table.
pub(super) const LOCK_WORD: u64 = 2;
/// Bytes of a chip's blocks.
const CHIP_BLOCK: u64 = BLOCK / 2;

/// Returns the identifier at `word`: Intel, and the part that QEMU's boards name.
pub(super) fn identifier(word: u64) -> u8 {
    match word {
        0 => 0x89,
        1 => 0x18,
        _ => 0,
    }
}

/// Where Intel's table is.
const EXTENDED: u8 = 0x31;
/// Of the optional features: all blocks are unlocked together.
const LEGACY_LOCKS: u8 = 1 << 3;
/// What the block status register has: the lock bit.
const HAS_LOCK_BIT: u8 = 1;

/// Returns the byte of the query table at `word`, for a chip of `size` bytes.
pub(super) fn table(word: u64, size: u64) -> u8 {
    let blocks = size / CHIP_BLOCK - 1;
    match word {
        0x10 => b'Q',
        0x11 => b'R',
        0x12 => b'Y',
        // The command set and its table.
        0x13 => 1,
        0x15 => EXTENDED,
        // Supply voltage, in BCD: 2.7 V to 3.6 V.
        0x1b => 0x27,
        0x1c => 0x36,
        // Times that are usual, as powers of two: of a word and a buffer in µs, of an erase in ms; and how much longer
        // they may be.
        0x1f => 3,
        0x20 => 5,
        0x21 => 4,
        0x23 | 0x24 => 5,
        0x25 => 8,
        // Its size, that it has 16 data lines, and the size of its buffer.
        0x27 => size.trailing_zeros() as u8,
        0x28 => 1,
        0x2a => (BUFFER / 2).trailing_zeros() as u8,
        // One region of blocks: their number less one, and their size in units of 256 bytes.
        0x2c => 1,
        0x2d => blocks as u8,
        0x2e => (blocks >> 8) as u8,
        0x2f => (CHIP_BLOCK / 256) as u8,
        0x30 => ((CHIP_BLOCK / 256) >> 8) as u8,
        0x31 => b'P',
        0x32 => b'R',
        0x33 => b'I',
        0x34 => b'1',
        0x35 => b'0',
        0x36 => LEGACY_LOCKS,
        0x3b => HAS_LOCK_BIT,
        0x3d => 0x33,
        _ => 0,
    }
}
