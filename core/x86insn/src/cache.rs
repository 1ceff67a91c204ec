// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Decoded instructions, by where they are and by their bytes.
//!
//! The bytes in the guest's memory are read and compared each time: an entry is used only for the bytes it was decoded from. So a
//! change of the guest's code or tables needs no invalidation.

use alloc::boxed::Box;
use alloc::vec;

use crate::MAX_LENGTH;
use crate::decode::decode;
use crate::operation::Operation;

/// Entries: the drivers of a guest access devices in a few places.
const ENTRIES: usize = 64;

/// Sixteen bytes of code, the first at the lowest address.
pub type Code = u128;

#[derive(Clone, Copy, Debug)]
struct Entry {
    code: Code,
    /// The bytes that belong to the instruction.
    mask: Code,
    bitness: u32,
    operation: Operation,
}

/// The cache of a vCPU.
#[derive(Debug)]
pub struct Cache {
    entries: Box<[Option<Entry>; ENTRIES]>,
}

impl Default for Cache {
    fn default() -> Self {
        Self::new()
    }
}

impl Cache {
    /// Makes an empty one.
    pub fn new() -> Self {
        // By way of a vector: it is too large for the stacks of a hypervisor.
        let entries = vec![None; ENTRIES].into_boxed_slice().try_into();
        Self { entries: entries.unwrap_or_else(|_| Box::new([None; ENTRIES])) }
    }

    /// Returns the place of the instruction at `rip`.
    #[inline(always)] // Three instructions.
    const fn place(rip: u64) -> usize {
        (rip ^ rip >> 6) as usize % ENTRIES
    }

    /// Looks an instruction up. HOT.
    #[inline(always)] // A few loads and comparisons.
    pub fn find(&self, rip: u64, bitness: u32, code: Code) -> Option<&Operation> {
        let entry = self.entries[Self::place(rip)].as_ref()?;
        ((code ^ entry.code) & entry.mask == 0 && entry.bitness == bitness).then_some(&entry.operation)
    }

    /// Decodes an instruction, of which `valid` bytes of `code` are there, and remembers it.
    pub fn decode(&mut self, rip: u64, bitness: u32, code: Code, valid: usize) -> Option<Operation> {
        let bytes = code.to_le_bytes();
        let operation = decode(bytes.get(..valid.min(MAX_LENGTH))?, bitness)?;
        let mask = (1 << (u32::from(operation.length) * 8)) - 1;
        self.entries[Self::place(rip)] = Some(Entry { code, mask, bitness, operation });
        Some(operation)
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.entries.fill(None);
    }
}
