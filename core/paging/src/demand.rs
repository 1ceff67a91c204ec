// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Memory whose translations are made when they are first needed.
//!
//! The tables are complete from the start, down to those whose entries are [`BLOCK`]s; only these entries are missing. Making one
//! is a store of a word. It takes no memory and no lock, and CPUs that make the same entry at the same time store the same word.

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

/// A word of a table, and what it is to become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// The table.
    pub table: PhysAddr,
    /// The index of the entry.
    pub index: usize,
    /// The entry that maps the block.
    pub entry: u64,
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
        let (first, last) = (address.next_multiple_of(BLOCK), end & !(BLOCK - 1));
        if first >= last || (address ^ output.0) & (BLOCK - 1) != 0 {
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
            return Ok(());
        }
        while address < end {
            let index = level.index(address);
            let child = match self.format().decode(level, tables.read(table, index)) {
                Entry::Table(child) => child,
                Entry::Invalid => {
                    let child = self.allocate(tables, depth + 1)?;
                    tables.write(table, index, self.format().table(child));
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
    /// Makes it of the root of tables that were prepared in this format.
    pub const fn new(format: F, root: PhysAddr) -> Self {
        Self { format, root }
    }

    /// Finds the place of the entry for the block that contains `address` and is at `output`. `None` if there is none: the
    /// address was not prepared, or is mapped by smaller pages. `read` reads an entry of a table.
    #[inline] // Once per exit that maps a block.
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
            let entry = self.format.decode(*level, read(table, index));
            if level.span() == BLOCK {
                let free = !matches!(entry, Entry::Table(_));
                return free.then(|| Slot {
                    table,
                    index,
                    entry: self.format.leaf(*level, output, attributes),
                });
            }
            let Entry::Table(next) = entry else { return None };
            table = next;
        }
        None
    }
}
