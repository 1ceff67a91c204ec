// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the tree builder must know of an architecture: the shape of its tree and the bits of its entries.

use core::fmt;

/// The most levels a format may have, from the root to the last one.
pub const MAX_LEVELS: usize = 5;

/// A physical address of the machine.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct PhysAddr(pub u64);

impl fmt::Debug for PhysAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

impl fmt::Display for PhysAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// One level of a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Level {
    /// The lowest input address bit that selects an entry: an entry covers `1 << shift` bytes.
    pub shift: u8,
    /// How many input address bits select an entry: a table has `1 << bits` entries.
    pub bits: u8,
    /// Says that an entry may map memory here; at other levels it can only point to a table.
    pub leaf: bool,
    /// Says that this is the last level, where an entry cannot point to a table.
    pub last: bool,
}

impl Level {
    /// Returns the bytes of input address space that one entry covers.
    pub const fn span(&self) -> u64 {
        1 << self.shift
    }

    /// Returns the number of entries in a table.
    pub const fn entries(&self) -> usize {
        1 << self.bits
    }

    /// Returns the index of the entry for `address` in its table.
    pub const fn index(&self, address: u64) -> usize {
        (address >> self.shift) as usize & (self.entries() - 1)
    }
}

/// A decoded table entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry<A> {
    /// Faults when walked.
    Invalid,
    /// Points to a table of the next level.
    Table(PhysAddr),
    /// Maps a page or a block at the address, with the attributes.
    Leaf(PhysAddr, A),
}

/// The bits of one kind of translation table.
///
/// An entry of value 0 and an entry of value `address | 2`, the address page aligned and within
/// [`Format::output_bits`], must decode as [`Entry::Invalid`]: the builder chains tables that await their
/// release through such values.
pub trait Format: Copy {
    /// What a mapping says besides its address.
    type Attributes: Copy + Eq + fmt::Debug;

    /// Returns the levels from the root down, at most [`MAX_LEVELS`], with the last one marked.
    fn levels(&self) -> &[Level];

    /// Returns how many bits an output address may have.
    fn output_bits(&self) -> u32;

    /// Encodes a page or block at `level`. `address` is a multiple of the level's span.
    fn leaf(&self, level: Level, address: PhysAddr, attributes: Self::Attributes) -> u64;

    /// Encodes a pointer, in a table of `level`, to a table of the next one.
    fn table(&self, level: Level, address: PhysAddr) -> u64;

    /// Decodes an entry read at `level`.
    fn decode(&self, level: Level, entry: u64) -> Entry<Self::Attributes>;

    /// Says whether going from `old` to `new` in place is forbidden, so that the entry must be invalid, and the
    /// translation gone from the TLBs, in between (on Arm: break-before-make).
    fn needs_break(&self, old: Self::Attributes, new: Self::Attributes) -> bool;

    /// Returns the size of a table of `level` in bytes; a table is aligned to its size.
    fn table_bytes(&self, level: Level) -> u64 {
        8 << level.bits
    }
}

/// The memory that tables live in, and the TLBs that remember them.
pub trait Tables {
    /// Allocates a table of `bytes` bytes, aligned to its size. Its entries must be zero, and seen as zero by
    /// table walkers, when this returns.
    fn allocate(&mut self, bytes: u64) -> Option<PhysAddr>;

    /// Takes back a table of `bytes` bytes. Its contents are unspecified.
    fn free(&mut self, table: PhysAddr, bytes: u64);

    /// Reads an entry.
    fn read(&self, table: PhysAddr, index: usize) -> u64;

    /// Writes an entry by one single-copy atomic store. Walkers may see it late: whoever changes a table and
    /// needs the change synchronizes afterwards (on Arm: `DSB ISHST`, and `ISB` for the own context).
    fn write(&mut self, table: PhysAddr, index: usize, entry: u64);

    /// Makes sure that all earlier [`Tables::write`]s are visible and that no TLB, on any CPU, holds a
    /// translation, or a cached partial walk, for the input addresses `address..address + size`. Called only
    /// after a valid entry was changed; done when it returns. Tables not yet in use need do nothing.
    fn invalidate(&mut self, address: u64, size: u64);
}
