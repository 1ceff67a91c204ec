// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a store does: commands of one and of several cycles.

use core::ops::Range;

use super::{BLOCK, BUFFER, CfiFlash, MAX_BLOCKS, Store};

mod code {
    pub const PROGRAM: u8 = 0x40;
    pub const PROGRAM_TOO: u8 = 0x10;
    pub const ERASE: u8 = 0x20;
    pub const CLEAR_STATUS: u8 = 0x50;
    pub const LOCK: u8 = 0x60;
    pub const SET_LOCK: u8 = 0x01;
    pub const STATUS: u8 = 0x70;
    pub const IDENTIFIERS: u8 = 0x90;
    pub const QUERY: u8 = 0x98;
    pub const SUSPEND: u8 = 0xb0;
    pub const CONFIGURE: u8 = 0xb8;
    pub const PROTECT: u8 = 0xc0;
    /// Confirms an erase or a buffer, clears lock bits, resumes what was suspended.
    pub const CONFIRM: u8 = 0xd0;
    pub const BUFFER: u8 = 0xe8;
}

/// Bits of the status register.
pub(super) mod status {
    pub const READY: u8 = 1 << 7;
    /// An erase failed, or blocks were not unlocked.
    pub const ERASE_ERROR: u8 = 1 << 5;
    /// A program failed, or a block was not locked.
    pub const PROGRAM_ERROR: u8 = 1 << 4;
    /// It failed because of a lock.
    pub const LOCKED: u8 = 1 << 1;
    /// Commands that do not belong together.
    pub const SEQUENCE_ERROR: u8 = ERASE_ERROR | PROGRAM_ERROR;
}

/// What reads get.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shows {
    Cells,
    Status,
    Identifiers,
    Query,
}

/// What the next store is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    Command,
    /// The data of a program.
    Data,
    EraseConfirm,
    /// What is to be locked, or that all is to be unlocked.
    Lock,
    /// A code that says what a pin does which nobody sees.
    Configuration,
    /// Data for the protection register.
    Protection,
    /// The number of stores that follow, less one, for the block at this offset.
    Count(u64),
    /// Data for the buffer.
    Fill(Fill),
    /// The confirmation of what is in the buffer.
    BufferConfirm(Fill),
}

/// A buffer that is being filled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Fill {
    /// The block.
    block: u64,
    /// How many stores follow.
    left: usize,
    /// Where the first one went, and the first byte behind all of them.
    bytes: Option<(u64, u64)>,
}

const NOTHING: Range<u64> = 0..0;

const fn block_of(offset: u64) -> u64 {
    offset & !(BLOCK - 1)
}

impl CfiFlash {
    /// Takes what goes over the data lines at once; returns the bytes that have changed.
    pub(super) fn cycle(&mut self, cells: &mut [u8], store: Store) -> Range<u64> {
        let (command, offset) = (store.value as u8, store.offset);
        match core::mem::replace(&mut self.next, Next::Command) {
            Next::Command => self.command(command, offset),
            Next::Data => return self.program(cells, offset, store.bytes()),
            Next::EraseConfirm if command == code::CONFIRM => self.erase(block_of(offset)),
            Next::Lock if command == code::SET_LOCK => self.lock(offset),
            // These chips have one command for all of their lock bits.
            Next::Lock if command == code::CONFIRM => self.locked = [0; MAX_BLOCKS / 64],
            Next::EraseConfirm | Next::Lock => self.errors |= status::SEQUENCE_ERROR,
            Next::Configuration => {}
            // All of it was programmed and locked in the factory.
            Next::Protection => self.errors |= status::PROGRAM_ERROR | status::LOCKED,
            Next::Count(block) => self.count(block, offset, store.value as u16),
            Next::Fill(fill) => self.fill(fill, store),
            Next::BufferConfirm(fill) if command == code::CONFIRM => return self.confirm(cells, fill),
            Next::BufferConfirm(_) => self.errors |= status::SEQUENCE_ERROR,
        }
        NOTHING
    }

    fn command(&mut self, command: u8, offset: u64) {
        let (shows, next) = match command {
            code::PROGRAM | code::PROGRAM_TOO => (Shows::Status, Next::Data),
            code::ERASE => (Shows::Status, Next::EraseConfirm),
            code::LOCK => (Shows::Status, Next::Lock),
            code::CONFIGURE => (Shows::Status, Next::Configuration),
            code::PROTECT => (Shows::Status, Next::Protection),
            code::BUFFER => (Shows::Status, Next::Count(block_of(offset))),
            code::STATUS | code::SUSPEND => (Shows::Status, Next::Command),
            code::IDENTIFIERS => (Shows::Identifiers, Next::Command),
            code::QUERY => (Shows::Query, Next::Command),
            // There is nothing to be resumed.
            code::CONFIRM => return,
            code::CLEAR_STATUS => {
                self.errors = 0;
                return;
            }
            // The command for reading cells, and what is none.
            _ => (Shows::Cells, Next::Command),
        };
        (self.shows, self.next) = (shows, next);
    }

    /// Programs bytes from `offset` on: that clears bits and sets none.
    fn program(
        &mut self,
        cells: &mut [u8],
        offset: u64,
        bytes: impl Iterator<Item = (u64, u8)>,
    ) -> Range<u64> {
        if self.is_locked(offset) {
            self.errors |= status::PROGRAM_ERROR | status::LOCKED;
            return NOTHING;
        }
        let mut end = offset;
        for (offset, byte) in bytes {
            if let Some(cell) = cells.get_mut(offset as usize) {
                *cell &= byte;
                end = offset + 1;
            }
        }
        offset..end
    }

    fn count(&mut self, block: u64, offset: u64, less_one: u16) {
        let left = usize::from(less_one) + 1;
        // As many as a buffer has room for where each fills both chips.
        if left > BUFFER / 4 || block_of(offset) != block {
            self.errors |= status::SEQUENCE_ERROR;
            return;
        }
        self.buffer = [0xff; BUFFER];
        self.next = Next::Fill(Fill { block, left, bytes: None });
    }

    /// Takes data for the buffer: the first store decides where that goes, the others follow in any order behind it.
    fn fill(&mut self, fill: Fill, store: Store) {
        let (first, end) = fill.bytes.unwrap_or((store.offset, store.offset));
        let last = store.offset + u64::from(store.size);
        let room = (fill.block + BLOCK).min(first + BUFFER as u64);
        if first < fill.block || store.offset < first || last > room {
            self.errors |= status::SEQUENCE_ERROR;
            return;
        }
        for (offset, byte) in store.bytes() {
            if let Some(place) = self.buffer.get_mut((offset - first) as usize) {
                *place = byte;
            }
        }
        let fill = Fill { left: fill.left - 1, bytes: Some((first, end.max(last))), ..fill };
        self.next = if fill.left == 0 { Next::BufferConfirm(fill) } else { Next::Fill(fill) };
    }

    fn confirm(&mut self, cells: &mut [u8], fill: Fill) -> Range<u64> {
        let Some((first, end)) = fill.bytes else { return NOTHING };
        let buffer = self.buffer;
        self.program(cells, first, (first..end).zip(buffer))
    }

    fn erase(&mut self, block: u64) {
        if self.is_locked(block) {
            self.errors |= status::ERASE_ERROR | status::LOCKED;
        } else {
            self.erasing = Some((block, block + BLOCK));
        }
    }

    fn lock(&mut self, offset: u64) {
        let block = offset / BLOCK;
        if let Some(bits) = self.locked.get_mut(block as usize / 64) {
            *bits |= 1 << (block % 64);
        }
    }
}
