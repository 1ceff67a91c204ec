// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The radix tree: map, unmap, protect, translate.
//!
//! Invariants:
//! - a table other than the root is never empty, unless it was made for what is mapped on demand;
//! - an operation that fails leaves every translation as it was (it may have split a block into equal parts);
//! - a valid entry is changed into another valid one only as [`Format::needs_break`] allows, otherwise it is
//!   made invalid and [`Tables::invalidate`] is called in between (Arm ARM, "Using break-before-make when updating translation table entries");
//! - a table is freed only after [`Tables::invalidate`] covered every address it translated.
//!
//! Nothing here is on an exit's path; it runs when machines are built, torn down or changed.

use core::fmt;

use crate::format::{Entry, Format, Level, MAX_LEVELS, PhysAddr, Tables};

/// Marks a link in a chain of tables that await their release: invalid in every format, yet not zero.
const LINK: u64 = 2;

/// Why an operation was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// An address or the size is not a multiple of the smallest page, or the size is zero.
    Unaligned,
    /// The range exceeds the input or output address space.
    OutOfRange,
    /// The address given is mapped already.
    AlreadyMapped(u64),
    /// The address given is not mapped.
    NotMapped(u64),
    /// No memory is left for tables.
    OutOfTables,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Unaligned => f.write_str("the range is empty or not page aligned"),
            Error::OutOfRange => f.write_str("the range exceeds the address space"),
            Error::AlreadyMapped(address) => write!(f, "address {address:#x} is mapped already"),
            Error::NotMapped(address) => write!(f, "address {address:#x} is not mapped"),
            Error::OutOfTables => f.write_str("no memory is left for translation tables"),
        }
    }
}

impl core::error::Error for Error {}

/// Where an input address leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Translation<A> {
    /// The output address of exactly the input address asked for.
    pub address: PhysAddr,
    /// The attributes of the mapping.
    pub attributes: A,
    /// The size of the page or block that maps it, in bytes.
    pub size: u64,
}

/// A translation table in the making or in use.
///
/// It does not hold its [`Tables`]: they are given to each operation, always the same ones. Dropping it frees
/// nothing; [`PageTable::free_all`] does.
#[derive(Debug)]
pub struct PageTable<F: Format> {
    format: F,
    root: PhysAddr,
}

/// What remains of a range being mapped.
struct Mapping<A> {
    address: u64,
    end: u64,
    output: u64,
    attributes: A,
}

/// Tables no longer reachable, chained by depth through their entry 0, to be freed after an invalidation.
type Unlinked = [u64; MAX_LEVELS];

impl<F: Format> PageTable<F> {
    /// Allocates an empty root table.
    ///
    /// # Errors
    /// [`Error::OutOfTables`].
    pub fn new(format: F, tables: &mut impl Tables) -> Result<Self, Error> {
        let root_level = *format.levels().first().ok_or(Error::OutOfRange)?;
        let root = tables.allocate(format.table_bytes(root_level)).ok_or(Error::OutOfTables)?;
        Ok(Self { format, root })
    }

    /// Returns the address of the root table, for the table base register.
    pub fn root(&self) -> PhysAddr {
        self.root
    }

    /// Returns the format.
    pub fn format(&self) -> &F {
        &self.format
    }

    /// Maps `size` bytes at `address` to `output`, with the largest blocks that fit.
    ///
    /// # Errors
    /// [`Error::Unaligned`], [`Error::OutOfRange`], [`Error::AlreadyMapped`] if any byte is mapped,
    /// [`Error::OutOfTables`]. Nothing is mapped then.
    pub fn map(
        &mut self,
        tables: &mut impl Tables,
        address: u64,
        output: PhysAddr,
        size: u64,
        attributes: F::Attributes,
    ) -> Result<(), Error> {
        let end = self.check_vacant(tables, address, output, size)?;
        let mut mapping = Mapping { address, end, output: output.0, attributes };
        self.map_in(tables, 0, self.root, &mut mapping).inspect_err(|_| {
            // The range was unmapped before, so unmapping all of it restores that, and frees the new tables.
            self.clear(tables, address, end);
        })
    }

    /// Unmaps `size` bytes at `address`, holes included, and frees the tables that became empty. Returns how
    /// many bytes had been mapped.
    ///
    /// # Errors
    /// [`Error::Unaligned`], [`Error::OutOfRange`], [`Error::OutOfTables`] when a block must be split.
    pub fn unmap(&mut self, tables: &mut impl Tables, address: u64, size: u64) -> Result<u64, Error> {
        let end = self.check(address, size)?;
        self.cut(tables, address)?;
        self.cut(tables, end)?;
        Ok(self.clear(tables, address, end))
    }

    /// Changes the attributes of `size` bytes at `address`, all of them mapped.
    ///
    /// # Errors
    /// [`Error::Unaligned`], [`Error::OutOfRange`], [`Error::NotMapped`] if any byte is not mapped,
    /// [`Error::OutOfTables`] when a block must be split.
    pub fn protect(
        &mut self,
        tables: &mut impl Tables,
        address: u64,
        size: u64,
        attributes: F::Attributes,
    ) -> Result<(), Error> {
        let end = self.check(address, size)?;
        let mut next = address;
        while next < end {
            let found = self.translate(tables, next).ok_or(Error::NotMapped(next))?;
            next = (next & !(found.size - 1)) + found.size;
        }
        self.cut(tables, address)?;
        self.cut(tables, end)?;
        let mut next = address;
        let mut changed = false;
        while next < end {
            next = self.protect_leaf(tables, next, attributes, &mut changed);
        }
        if changed {
            tables.invalidate(address, size);
        }
        Ok(())
    }

    /// Walks the tables for `address`; `None` if it is not mapped.
    pub fn translate(&self, tables: &impl Tables, address: u64) -> Option<Translation<F::Attributes>> {
        let (level, _, _, entry) = self.walk(tables, address)?;
        let Entry::Leaf(output, attributes) = entry else { return None };
        let offset = address & (level.span() - 1);
        Some(Translation { address: PhysAddr(output.0 | offset), attributes, size: level.span() })
    }

    /// Frees every table, the root included. No CPU may use them any longer: the caller has seen to the table
    /// base registers and the TLBs.
    pub fn free_all(self, tables: &mut impl Tables) {
        self.free_in(tables, 0, self.root);
    }

    pub(crate) fn level(&self, depth: usize) -> Option<Level> {
        self.format.levels().get(depth).copied()
    }

    /// Checks an input range and returns its end.
    fn check(&self, address: u64, size: u64) -> Result<u64, Error> {
        let levels = self.format.levels();
        let (Some(root), Some(last)) = (levels.first(), levels.last()) else { return Err(Error::OutOfRange) };
        if size == 0 || (address | size) & (last.span() - 1) != 0 {
            return Err(Error::Unaligned);
        }
        let end = address.checked_add(size).ok_or(Error::OutOfRange)?;
        let limit = 1u64 << (u32::from(root.shift) + u32::from(root.bits));
        if end > limit { Err(Error::OutOfRange) } else { Ok(end) }
    }

    /// Checks that a range can be mapped and that nothing of it is; returns its end.
    pub(crate) fn check_vacant(
        &self,
        tables: &impl Tables,
        address: u64,
        output: PhysAddr,
        size: u64,
    ) -> Result<u64, Error> {
        let end = self.check(address, size)?;
        self.check_output(output, size)?;
        match self.find_mapped(tables, 0, self.root, address, end) {
            Some(mapped) => Err(Error::AlreadyMapped(mapped)),
            None => Ok(end),
        }
    }

    fn check_output(&self, output: PhysAddr, size: u64) -> Result<(), Error> {
        let page = self.format.levels().last().map_or(1, Level::span);
        if output.0 & (page - 1) != 0 {
            return Err(Error::Unaligned);
        }
        let end = output.0.checked_add(size).ok_or(Error::OutOfRange)?;
        if end > 1 << self.format.output_bits() { Err(Error::OutOfRange) } else { Ok(()) }
    }

    /// Descends to the entry that ends the walk for `address`: a leaf or an invalid one. Returns its level, its
    /// depth, its table and itself; `None` outside the address space.
    fn walk(
        &self,
        tables: &impl Tables,
        address: u64,
    ) -> Option<(Level, usize, PhysAddr, Entry<F::Attributes>)> {
        let root = self.level(0)?;
        if address >> root.shift >= 1 << root.bits {
            return None;
        }
        let mut table = self.root;
        for (depth, level) in self.format.levels().iter().enumerate() {
            match self.format.decode(*level, tables.read(table, level.index(address))) {
                Entry::Table(next) => table = next,
                entry => return Some((*level, depth, table, entry)),
            }
        }
        None
    }

    fn map_in(
        &self,
        tables: &mut impl Tables,
        depth: usize,
        table: PhysAddr,
        mapping: &mut Mapping<F::Attributes>,
    ) -> Result<(), Error> {
        let level = self.level(depth).ok_or(Error::OutOfRange)?;
        let end = mapping.end.min(table_end(level, mapping.address));
        while mapping.address < end {
            let index = level.index(mapping.address);
            let entry = self.format.decode(level, tables.read(table, index));
            let aligned = (mapping.address | mapping.output) & (level.span() - 1) == 0;
            let fits = level.leaf && aligned && mapping.end - mapping.address >= level.span();
            // Of memory that was prepared for mapping on demand there are tables without entries.
            if fits && entry == Entry::Invalid {
                let leaf = self.format.leaf(level, PhysAddr(mapping.output), mapping.attributes);
                tables.write(table, index, leaf);
                mapping.address += level.span();
                mapping.output += level.span();
                continue;
            }
            let child = match entry {
                Entry::Table(child) => child,
                Entry::Invalid => {
                    let child = self.allocate(tables, depth + 1)?;
                    tables.write(table, index, self.format.table(level, child));
                    child
                }
                Entry::Leaf(..) => return Err(Error::AlreadyMapped(mapping.address)),
            };
            self.map_in(tables, depth + 1, child, mapping)?;
        }
        Ok(())
    }

    pub(crate) fn allocate(&self, tables: &mut impl Tables, depth: usize) -> Result<PhysAddr, Error> {
        let level = self.level(depth).ok_or(Error::OutOfRange)?;
        tables.allocate(self.format.table_bytes(level)).ok_or(Error::OutOfTables)
    }

    /// Returns the first mapped address in `address..end`, below the table.
    fn find_mapped(
        &self,
        tables: &impl Tables,
        depth: usize,
        table: PhysAddr,
        mut address: u64,
        end: u64,
    ) -> Option<u64> {
        let level = self.level(depth)?;
        let end = end.min(table_end(level, address));
        while address < end {
            match self.format.decode(level, tables.read(table, level.index(address))) {
                Entry::Invalid => {}
                Entry::Leaf(..) => return Some(address),
                Entry::Table(child) => {
                    let found = self.find_mapped(tables, depth + 1, child, address, end);
                    if found.is_some() {
                        return found;
                    }
                }
            }
            address = entry_end(level, address);
        }
        None
    }

    /// Splits blocks until none of them reaches across `address`.
    fn cut(&self, tables: &mut impl Tables, address: u64) -> Result<(), Error> {
        while let Some((level, depth, table, Entry::Leaf(output, attributes))) = self.walk(tables, address) {
            if address & (level.span() - 1) == 0 {
                break;
            }
            let lower = self.level(depth + 1).ok_or(Error::Unaligned)?;
            let child = self.allocate(tables, depth + 1)?;
            for index in 0..lower.entries() {
                let part = PhysAddr(output.0 + index as u64 * lower.span());
                tables.write(child, index, self.format.leaf(lower, part, attributes));
            }
            let index = level.index(address);
            tables.write(table, index, 0);
            tables.invalidate(address & !(level.span() - 1), level.span());
            tables.write(table, index, self.format.table(level, child));
        }
        Ok(())
    }

    /// Clears the leaves in a range no block reaches across, then invalidates and frees what became empty.
    pub(crate) fn clear(&self, tables: &mut impl Tables, address: u64, end: u64) -> u64 {
        let mut unlinked = Unlinked::default();
        let cleared = self.clear_in(tables, 0, self.root, address, end, &mut unlinked);
        if cleared > 0 || unlinked.iter().any(|&head| head != 0) {
            tables.invalidate(address, end - address);
        }
        for (depth, mut head) in unlinked.into_iter().enumerate() {
            let bytes = self.level(depth).map_or(0, |level| self.format.table_bytes(level));
            while head != 0 {
                let table = PhysAddr(head & !LINK);
                head = tables.read(table, 0);
                tables.free(table, bytes);
            }
        }
        cleared
    }

    fn clear_in(
        &self,
        tables: &mut impl Tables,
        depth: usize,
        table: PhysAddr,
        mut address: u64,
        end: u64,
        unlinked: &mut Unlinked,
    ) -> u64 {
        let Some(level) = self.level(depth) else { return 0 };
        let end = end.min(table_end(level, address));
        let mut cleared = 0;
        while address < end {
            let index = level.index(address);
            match self.format.decode(level, tables.read(table, index)) {
                Entry::Invalid => {}
                Entry::Leaf(..) => {
                    tables.write(table, index, 0);
                    cleared += level.span();
                }
                Entry::Table(child) => {
                    cleared += self.clear_in(tables, depth + 1, child, address, end, unlinked);
                    if self.is_empty(tables, depth + 1, child) {
                        tables.write(table, index, 0);
                        if let Some(head) = unlinked.get_mut(depth + 1) {
                            tables.write(child, 0, *head);
                            *head = child.0 | LINK;
                        }
                    }
                }
            }
            address = entry_end(level, address);
        }
        cleared
    }

    fn is_empty(&self, tables: &impl Tables, depth: usize, table: PhysAddr) -> bool {
        self.level(depth).is_some_and(|level| {
            (0..level.entries())
                .all(|index| self.format.decode(level, tables.read(table, index)) == Entry::Invalid)
        })
    }

    /// Rewrites the leaf at `address` and returns the end of what it maps.
    fn protect_leaf(
        &self,
        tables: &mut impl Tables,
        address: u64,
        attributes: F::Attributes,
        changed: &mut bool,
    ) -> u64 {
        let Some((level, _, table, entry)) = self.walk(tables, address) else { return u64::MAX };
        let Entry::Leaf(output, old) = entry else { return entry_end(level, address) };
        if old != attributes {
            let index = level.index(address);
            if self.format.needs_break(old, attributes) {
                tables.write(table, index, 0);
                tables.invalidate(address, level.span());
            } else {
                *changed = true;
            }
            tables.write(table, index, self.format.leaf(level, output, attributes));
        }
        entry_end(level, address)
    }

    fn free_in(&self, tables: &mut impl Tables, depth: usize, table: PhysAddr) {
        let Some(level) = self.level(depth) else { return };
        if !level.last {
            for index in 0..level.entries() {
                if let Entry::Table(child) = self.format.decode(level, tables.read(table, index)) {
                    self.free_in(tables, depth + 1, child);
                }
            }
        }
        tables.free(table, self.format.table_bytes(level));
    }
}

/// Returns where the entry that covers `address` ends.
const fn entry_end(level: Level, address: u64) -> u64 {
    (address | (level.span() - 1)) + 1
}

/// Returns where the table of `level` that covers `address` ends.
const fn table_end(level: Level, address: u64) -> u64 {
    (address | ((level.span() << level.bits) - 1)) + 1
}
