// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Memory that the other side reads and writes at the same time.

use core::fmt;

/// An access that is not within memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outside {
    /// Where it begins.
    pub address: u64,
}

impl fmt::Display for Outside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x} is outside memory", self.address)
    }
}

impl core::error::Error for Outside {}

/// The memory that driver and device share, by the addresses that the driver uses for it.
///
/// The other side may write anywhere at any time, so an implementation uses volatile or atomic accesses, never references to the
/// bytes. Each call reads or writes each byte once. An access that is not entirely within memory has no effect. `length` may be
/// anything, and `address + length` may overflow.
///
/// Orderings: what a side did before [`store`](Memory::store) is visible to the other side once that loads the value by
/// [`load`](Memory::load), as with release and acquire in C and Rust. If devices outside the CPUs take part, these and
/// [`fence`](Memory::fence) must order their accesses, too.
pub trait Memory {
    /// Whether `length` bytes at `address` are memory. No bytes always are.
    fn contains(&self, address: u64, length: u64) -> bool;

    /// How many bytes from an address on are memory and lie together, as far as one look tells. Fewer than there are, or none, is always right.
    #[inline(always)] // On the path of every buffer.
    fn together(&self, _: u64) -> u64 {
        0
    }

    /// Loads a little-endian 16-bit value at an even address, at once, with acquire semantics.
    fn load(&self, address: u64) -> Result<u16, Outside>;

    /// Stores a 16-bit value as little-endian at an even address, at once, with release semantics.
    fn store(&self, address: u64, value: u16) -> Result<(), Outside>;

    /// Reads bytes, in any order.
    fn read(&self, address: u64, bytes: &mut [u8]) -> Result<(), Outside>;

    /// Writes bytes, in any order.
    fn write(&self, address: u64, bytes: &[u8]) -> Result<(), Outside>;

    /// Orders all accesses before it, stores included, before all accesses after it, loads included.
    fn fence(&self);

    /// Reads a little-endian 16-bit value without ordering.
    #[inline] // On the path of every buffer.
    fn read_u16(&self, address: u64) -> Result<u16, Outside> {
        let mut bytes = [0; 2];
        self.read(address, &mut bytes)?;
        Ok(u16::from_le_bytes(bytes))
    }

    /// Reads two little-endian 64-bit values that lie together, without ordering: a descriptor, a header.
    #[inline] // On the path of every buffer.
    fn read_words(&self, address: u64) -> Result<[u64; 2], Outside> {
        let mut bytes = [0; 16];
        self.read(address, &mut bytes)?;
        let word = |bytes: &[u8]| bytes.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte));
        let (first, second) = bytes.split_at(8);
        Ok([word(first), word(second)])
    }
}
