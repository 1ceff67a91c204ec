// SPDX-License-Identifier: Apache-2.0 OR MIT
//! NOR flash with Intel's command set: a bank of 32 data lines, made of two chips of 16 side by side.
//!
//! Commands and registers: Intel StrataFlash Memory (J3), datasheet 290667; query table: JEDEC JESD68 (Common Flash
//! Interface), command set 0001. As in QEMU's model, the chips always act together: a store of any width commands both, by
//! its low byte, and data go to the bytes that it addresses. So the flash works with drivers that know the two chips, and with
//! those that take it for one chip of 16 lines.
//!
//! The caller owns the contents of the cells and passes them with every access. The model keeps only the state of the chips,
//! including the lock bits of the blocks. Programming takes no time. An erase proceeds a piece at a time: the store that began
//! it must be repeated ([`Written::again`]), so no access takes long. Whoever looks meanwhile sees busy chips.

mod command;
mod query;

use core::ops::Range;

use command::{Next, Shows, status};

/// Bytes that are erased, and locked, at once: a block of each chip.
pub const BLOCK: u64 = 256 << 10;
/// Bytes that an access erases at most.
pub const PIECE: u64 = 16 << 10;
/// Bytes of the write buffer of both chips.
pub const BUFFER: usize = 1024;
/// The most blocks of a bank.
const MAX_BLOCKS: usize = 256;

/// A bank of flash without its cells.
#[derive(Debug)]
pub struct CfiFlash {
    /// The bytes of the bank.
    size: u64,
    shows: Shows,
    next: Next,
    /// The error bits of the status register.
    errors: u8,
    buffer: [u8; BUFFER],
    /// The lock bits of the blocks.
    locked: [u64; MAX_BLOCKS / 64],
    /// The bytes that remain to be erased.
    erasing: Option<(u64, u64)>,
    /// The store that began an erase, until it was repeated to its end.
    beginning: Option<Store>,
}

/// A store of the guest, or what of one goes over the data lines at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Store {
    offset: u64,
    size: u8,
    value: u64,
}

impl Store {
    /// The parts that go over the data lines one after the other: up to three, of eight bytes that are not aligned.
    fn cycles(self) -> impl Iterator<Item = Store> {
        let end = self.offset + u64::from(self.size.min(8));
        (self.offset / 4..end.div_ceil(4)).map(move |word| {
            let (first, last) = (self.offset.max(word * 4), end.min(word * 4 + 4));
            let value = self.value >> (8 * (first - self.offset)) & 0xffff_ffff;
            Store { offset: first, size: (last - first) as u8, value }
        })
    }

    /// Its bytes; at most four of them.
    fn bytes(&self) -> impl Iterator<Item = (u64, u8)> {
        (self.offset..).zip(self.value.to_le_bytes()).take(usize::from(self.size))
    }
}

/// What an access has done.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Written {
    /// The bytes among which all are that have changed.
    pub changed: Range<u64>,
    /// The store is to be done again: it has begun what is not finished.
    pub again: bool,
}

impl Written {
    fn note(&mut self, changed: Range<u64>) {
        if self.changed.is_empty() {
            self.changed = changed;
        } else if !changed.is_empty() {
            self.changed = self.changed.start.min(changed.start)..self.changed.end.max(changed.end);
        }
    }
}

impl CfiFlash {
    /// Makes a bank of `size` bytes, a power of two from one [`BLOCK`] to 256 of them, whose blocks are unlocked.
    pub const fn new(size: u64) -> Self {
        Self {
            size,
            shows: Shows::Cells,
            next: Next::Command,
            errors: 0,
            buffer: [0; BUFFER],
            locked: [0; MAX_BLOCKS / 64],
            erasing: None,
            beginning: None,
        }
    }

    /// Resets the chips, which then show their cells. Cells and lock bits stay; an erase that is under way is broken off.
    pub fn reset(&mut self) {
        *self = Self { locked: self.locked, ..Self::new(self.size) };
    }

    /// Says whether reads get what the cells hold.
    pub fn shows_cells(&self) -> bool {
        self.shows == Shows::Cells
    }

    /// Reads `size` bytes at `offset`. An erase that is under way goes on.
    pub fn read(&mut self, cells: &mut [u8], offset: u64, size: u8) -> (u64, Written) {
        let mut written = Written::default();
        self.go_on(cells, &mut written);
        // What lies far behind the end has no next address.
        let offset = offset.min(self.size);
        let bytes = (offset..).take(usize::from(size.min(8)));
        let value = bytes.enumerate().fold(0, |value, (place, offset)| {
            let word = self.word(cells, offset & !3).to_le_bytes();
            value | u64::from(word[offset as usize & 3]) << (8 * place)
        });
        (value, written)
    }

    /// Returns what is on the data lines for the word at `offset`; behind the end of the bank nobody drives them.
    fn word(&self, cells: &[u8], offset: u64) -> u32 {
        let both = |value: u8| u32::from(value) * 0x1_0001;
        match self.shows {
            _ if offset >= self.size => !0,
            Shows::Cells => {
                let word = cells.get(offset as usize..).and_then(|cells| cells.first_chunk());
                word.map_or(!0, |word| u32::from_le_bytes(*word))
            }
            Shows::Status if self.erasing.is_some() => 0,
            Shows::Status => both(status::READY | self.errors),
            // The lock bit is the same in both.
            Shows::Identifiers | Shows::Query if offset % BLOCK / 4 == query::LOCK_WORD => {
                both(self.is_locked(offset).into())
            }
            Shows::Identifiers => both(query::identifier(offset / 4)),
            Shows::Query => both(query::table(offset / 4, self.size / 2)),
        }
    }

    /// Writes `size` bytes at `offset`.
    pub fn write(&mut self, cells: &mut [u8], offset: u64, size: u8, value: u64) -> Written {
        let mut written = Written::default();
        let store = Store { offset: offset.min(self.size), size, value };
        let erases = self.erasing.is_some();
        self.go_on(cells, &mut written);
        // While they erase, the chips take nothing: they cannot suspend it. Nor does the store that has found them at their last
        // piece: what one store changes stays small.
        if self.beginning != Some(store) && !erases {
            for cycle in store.cycles() {
                // Of eight bytes that are not aligned, the first could end one command and the others begin and end the next.
                if !written.changed.is_empty() && self.next != Next::Command {
                    break;
                }
                if cycle.offset < self.size && self.erasing.is_none() {
                    written.note(self.cycle(cells, cycle));
                }
            }
            self.beginning = self.erasing.map(|_| store);
            self.go_on(cells, &mut written);
        }
        if self.beginning == Some(store) {
            written.again = self.erasing.is_some();
            self.beginning = self.beginning.filter(|_| written.again);
        }
        written
    }

    /// Erases a piece of what is being erased.
    fn go_on(&mut self, cells: &mut [u8], written: &mut Written) {
        let Some((start, end)) = self.erasing else { return };
        let last = end.min(start + PIECE);
        if let Some(cells) = cells.get_mut(start as usize..last as usize) {
            cells.fill(0xff);
        }
        self.erasing = (last < end).then_some((last, end));
        written.note(start..last);
    }

    fn is_locked(&self, offset: u64) -> bool {
        let block = offset / BLOCK;
        self.locked.get(block as usize / 64).is_some_and(|bits| bits >> (block % 64) & 1 != 0)
    }
}
