// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Memory whose translations are made when they are first needed.
//!
//! The tables are complete from the start, down to those whose entries are [`BLOCK`]s; only these entries are missing. Making one
//! is a store of a word. It takes no memory and no lock. Until then, the word says how far the block is cleared, and whether a CPU
//! is at it ([`Progress`]).

use core::ops::Range;

use crate::format::{Entry, Format, PhysAddr, Tables};
use crate::tree::{Error, PageTable};

/// Bytes that are mapped at once: a block that every format has.
pub const BLOCK: u64 = 2 << 20;

/// The tables of memory that is mapped on demand, as CPUs see them that use them.
#[derive(Clone, Copy, Debug)]
pub struct Blocks<F> {
    format: F,
    root: PhysAddr,
}

/// How far a block is that is not mapped yet: what its entry holds meanwhile. No format takes that for a valid entry, and the
/// hardware ignores all other bits of an invalid one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// How much of it is cleared, from its beginning, in units of whoever clears: less than 2^16.
    pub cleared: u64,
    /// A CPU is at it: nobody else may touch block or entry.
    pub taken: bool,
    /// Where it is, if it comes from a pool and has been taken from there: at a multiple of [`BLOCK`] below 2^52. Else zero.
    pub host: u64,
}

impl Progress {
    const TAKEN: u64 = 1 << 8;
    const CLEARED_SHIFT: u32 = 16;
    /// The number of the block, below the bit that makes POWER's entries valid.
    const HOST: u64 = 0x7fff_ffff << Self::HOST_SHIFT;
    const HOST_SHIFT: u32 = 32;

    /// Reads it from an entry that is not valid.
    #[inline] // On the way of a first touch.
    pub const fn of(entry: u64) -> Self {
        let number = (entry & Self::HOST) >> Self::HOST_SHIFT;
        Self {
            cleared: entry >> Self::CLEARED_SHIFT & 0xffff,
            taken: entry & Self::TAKEN != 0,
            host: number * BLOCK,
        }
    }

    /// Returns the entry that says so.
    #[inline] // As above.
    pub const fn entry(self) -> u64 {
        let taken = if self.taken { Self::TAKEN } else { 0 };
        let host = (self.host / BLOCK) << Self::HOST_SHIFT & Self::HOST;
        (self.cleared & 0xffff) << Self::CLEARED_SHIFT | taken | host
    }
}

/// Which of `size` bytes at `address` are mapped on demand: whole blocks. None if their places in the output are no blocks.
pub fn whole_blocks(address: u64, output: PhysAddr, size: u64) -> Range<u64> {
    let first = address.next_multiple_of(BLOCK);
    let last = (address + size) & !(BLOCK - 1);
    if first < last && (address ^ output.0) & (BLOCK - 1) == 0 { first..last } else { address..address }
}

/// A word of a table, and what it is to become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// The table.
    pub table: PhysAddr,
    /// The index of the entry.
    pub index: usize,
    /// The entry that maps the block.
    pub entry: u64,
    /// How far the block is; `None` if it is mapped.
    pub progress: Option<Progress>,
    /// Where the block is, if it is mapped.
    pub mapped: Option<PhysAddr>,
}

impl<F: Format> PageTable<F> {
    /// Prepares `size` bytes at `address`, so that [`Blocks::slot`] has a place for each whole block; what is no whole block,
    /// or not aligned in the output, is mapped. Tables that are made here are empty, and [`PageTable::unmap`] takes them away.
    ///
    /// # Errors
    /// As [`PageTable::map`].
    pub fn map_on_demand(
        &mut self,
        tables: &mut impl Tables,
        address: u64,
        output: PhysAddr,
        size: u64,
        attributes: F::Attributes,
    ) -> Result<(), Error> {
        let end = self.check_vacant(tables, address, output, size)?;
        let Range { start: first, end: last } = whole_blocks(address, output, size);
        if first == last {
            return self.map(tables, address, output, size, attributes);
        }
        let mut made = self.reserve(tables, 0, self.root(), first, last);
        for (start, end) in [(address, first), (last, end)] {
            if made.is_ok() && start < end {
                let output = PhysAddr(output.0 + (start - address));
                made = self.map(tables, start, output, end - start, attributes);
            }
        }
        made.inspect_err(|_| {
            // The range was unmapped before, so unmapping all of it restores that, and frees the new tables.
            self.clear(tables, address, end);
        })
    }

    /// Makes the tables below this one for whole blocks from `address` to `end`.
    fn reserve(
        &self,
        tables: &mut impl Tables,
        depth: usize,
        table: PhysAddr,
        mut address: u64,
        end: u64,
    ) -> Result<(), Error> {
        let level = self.level(depth).ok_or(Error::OutOfRange)?;
        if level.span() <= BLOCK {
            // What is noted there of an earlier block would be taken for this one's.
            for block in (address..end).step_by(BLOCK as usize) {
                if tables.read(table, level.index(block)) != 0 {
                    tables.write(table, level.index(block), 0);
                }
            }
            return Ok(());
        }
        while address < end {
            let index = level.index(address);
            let child = match self.format().decode(level, tables.read(table, index)) {
                Entry::Table(child) => child,
                Entry::Invalid => {
                    let child = self.allocate(tables, depth + 1)?;
                    tables.write(table, index, self.format().table(level, child));
                    child
                }
                Entry::Leaf(..) => return Err(Error::AlreadyMapped(address)),
            };
            let next = (address | (level.span() - 1)) + 1;
            self.reserve(tables, depth + 1, child, address, end.min(next))?;
            address = next;
        }
        Ok(())
    }

    /// Returns what CPUs need that use these tables.
    pub fn blocks(&self) -> Blocks<F> {
        Blocks::new(*self.format(), self.root())
    }
}

impl<F: Format> Blocks<F> {
    /// Returns the entry that maps a block at `output`; `None` of a format that has none.
    pub fn leaf(&self, output: PhysAddr, attributes: F::Attributes) -> Option<u64> {
        let level = self.format.levels().iter().find(|level| level.span() == BLOCK)?;
        Some(self.format.leaf(*level, output, attributes))
    }

    /// Makes it of the root of tables that were prepared in this format.
    pub const fn new(format: F, root: PhysAddr) -> Self {
        Self { format, root }
    }

    /// Finds the place of the entry for the block that contains `address` and is at `output`. `None` if there is none: the
    /// address was not prepared, or is mapped by smaller pages. `read` reads an entry of a table.
    #[inline(always)] // Once per exit that maps a block, each with a copy.
    pub fn slot(
        &self,
        address: u64,
        output: PhysAddr,
        attributes: F::Attributes,
        read: impl Fn(PhysAddr, usize) -> u64,
    ) -> Option<Slot> {
        let mut table = self.root;
        for level in self.format.levels() {
            let index = level.index(address);
            let word = read(table, index);
            let entry = self.format.decode(*level, word);
            if level.span() == BLOCK {
                let (progress, mapped) = match entry {
                    Entry::Table(_) => return None,
                    Entry::Leaf(host, _) => (None, Some(host)),
                    Entry::Invalid => (Some(Progress::of(word)), None),
                };
                let entry = self.format.leaf(*level, output, attributes);
                return Some(Slot { table, index, entry, progress, mapped });
            }
            let Entry::Table(next) = entry else { return None };
            table = next;
        }
        None
    }
}
