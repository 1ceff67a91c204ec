// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A chain of descriptors, followed step by step.

use crate::memory::Memory;
use crate::ring::{Buffer, DESCRIPTOR, Descriptor, Flags, Options};
use crate::violation::Violation;

/// How many descriptors an indirect table has at most: `next` has 16 bits.
const MAX_INDIRECT: u32 = 1 << 16;
/// How many bytes a chain has at most.
const MAX_BYTES: u64 = 1 << 32;

/// The right and the duty to return a chain to the driver, once. Whoever drops it keeps the driver's descriptors for ever.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a chain must be returned to the driver"]
pub struct Token {
    pub(super) head: u16,
    pub(super) generation: u32,
}

/// A chain that was taken from a queue.
#[derive(Debug)]
#[must_use = "a chain must be returned to the driver"]
pub struct Chain {
    token: Token,
    walk: Walk,
}

/// How far a chain was followed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Walk {
    options: Options,
    /// The table that the chain is in now, and how many descriptors that has.
    table: u64,
    length: u32,
    is_indirect: bool,
    /// The next descriptor to read.
    next: Option<u16>,
    /// How many more descriptors of this table there can be.
    left_in_table: u32,
    /// How many more buffers the device accepts.
    left: u32,
    bytes: u64,
    /// A buffer that the device writes has come.
    writable: bool,
}

impl Chain {
    /// Begins with a chain in a table, which is where, and has so many descriptors.
    pub(super) const fn new((table, size): (u64, u16), options: Options, longest: u32, token: Token) -> Self {
        let size = size as u32;
        let walk = Walk {
            next: Some(token.head),
            options,
            table,
            length: size,
            is_indirect: false,
            left_in_table: size,
            left: longest,
            bytes: 0,
            writable: false,
        };
        Self { token, walk }
    }

    /// Returns the next buffer: first all that the device reads, then all that it writes. `None` behind the last. After an error the
    /// chain ends.
    #[inline(always)] // On the path of every buffer: what it keeps in mind stays in registers.
    pub fn next<M: Memory>(&mut self, memory: &M) -> Result<Option<Buffer>, Violation> {
        let mut buffer = Buffer { address: 0, length: 0, writable: false };
        Ok(self.walk.step(memory, &mut buffer)?.then_some(buffer))
    }

    /// Gives away what is left to follow: the chain is at its end.
    #[inline(always)] // As above.
    pub(super) const fn take(&mut self) -> Walk {
        let walk = self.walk;
        self.walk.next = None;
        walk
    }

    /// Whether there is no further buffer.
    #[inline(always)] // A test.
    pub const fn is_at_end(&self) -> bool {
        self.walk.next.is_none()
    }

    /// Ends with the chain, read to its end or not: what remains is to return it.
    pub fn finish(self) -> Token {
        self.token
    }
}

impl Walk {
    /// [`Chain::next`] into a place of the caller's, whose parts stay in registers then. False behind the last.
    #[inline(always)] // As above.
    pub(super) fn step<M: Memory>(&mut self, memory: &M, buffer: &mut Buffer) -> Result<bool, Violation> {
        let Some(index) = self.next.take() else { return Ok(false) };
        let mut descriptor = self.descriptor(memory, index)?;
        if descriptor.flags.contains(Flags::INDIRECT) {
            self.enter(memory, descriptor)?;
            descriptor = self.descriptor(memory, 0)?;
            if descriptor.flags.contains(Flags::INDIRECT) {
                return Err(Violation::IndirectNested);
            }
        }
        self.check(memory, descriptor)?;
        let Descriptor { address, length, flags, .. } = descriptor;
        *buffer = Buffer { address, length, writable: flags.contains(Flags::WRITE) };
        Ok(true)
    }

    /// Reads a descriptor of the present table, once.
    #[inline(always)] // On the path of every buffer.
    fn descriptor<M: Memory>(&mut self, memory: &M, index: u16) -> Result<Descriptor, Violation> {
        self.left_in_table = self.left_in_table.checked_sub(1).ok_or(Violation::Loop)?;
        // The index is below the table's length, and the table was found to be within memory.
        let address = self.table.wrapping_add(DESCRIPTOR * u64::from(index));
        Ok(Descriptor::read(memory, address)?)
    }

    /// Goes on in an indirect table (section 2.7.5.3). Whether it says that the device writes it means nothing.
    #[inline(always)] // On the path of most chains.
    fn enter<M: Memory>(&mut self, memory: &M, descriptor: Descriptor) -> Result<(), Violation> {
        if !self.options.indirect {
            return Err(Violation::IndirectFeature);
        }
        if self.is_indirect {
            return Err(Violation::IndirectNested);
        }
        if descriptor.flags.contains(Flags::NEXT) {
            return Err(Violation::IndirectNext);
        }
        let length = descriptor.length / DESCRIPTOR as u32;
        if length == 0 || length > MAX_INDIRECT || !descriptor.length.is_multiple_of(DESCRIPTOR as u32) {
            return Err(Violation::IndirectLength(descriptor.length));
        }
        if !memory.contains(descriptor.address, descriptor.length.into()) {
            return Err(Violation::Outside(descriptor.address));
        }
        (self.table, self.length, self.left_in_table) = (descriptor.address, length, length);
        self.is_indirect = true;
        Ok(())
    }

    /// Checks a buffer, and finds the descriptor behind it.
    #[inline(always)] // On the path of every buffer.
    fn check<M: Memory>(&mut self, memory: &M, descriptor: Descriptor) -> Result<(), Violation> {
        let Descriptor { address, length, flags, next } = descriptor;
        self.left = self.left.checked_sub(1).ok_or(Violation::Long)?;
        let writable = flags.contains(Flags::WRITE);
        if self.writable && !writable {
            return Err(Violation::Order);
        }
        self.writable = writable;
        self.bytes += u64::from(length);
        if self.bytes > MAX_BYTES {
            return Err(Violation::Bytes);
        }
        if !memory.contains(address, length.into()) {
            return Err(Violation::Outside(address));
        }
        if flags.contains(Flags::NEXT) {
            if u32::from(next) >= self.length {
                return Err(Violation::Next(next));
            }
            self.next = Some(next);
        }
        Ok(())
    }
}
