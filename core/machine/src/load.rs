// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is put into a machine's memory before it starts, and where.

use alloc::borrow::Cow;
use alloc::collections::BinaryHeap;
use alloc::vec::Vec;

/// Bytes that go to a guest physical address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Load<'a> {
    /// The address of the first.
    pub address: u64,
    /// The bytes.
    pub bytes: Cow<'a, [u8]>,
}

/// A part of a kernel: bytes, and how much memory from its address on is its own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece<'a> {
    pub address: u64,
    pub bytes: &'a [u8],
    pub size: u64,
}

impl<'a> Piece<'a> {
    /// A file that is loaded as it is.
    pub fn whole(address: u64, bytes: &'a [u8]) -> Self {
        Self { address, bytes, size: bytes.len() as u64 }
    }

    /// The first address behind it; too large for any memory, if it goes beyond all addresses.
    pub fn end(&self) -> u64 {
        self.address.saturating_add(self.size)
    }
}

/// Sorts ranges (start, end), and returns one that two of them want.
pub(crate) fn overlap(ranges: &mut Vec<(u64, u64)>) -> Option<(u64, u64)> {
    // There are a few: the heap's way takes a tenth of the code of the library's sorting.
    *ranges = BinaryHeap::from(core::mem::take(ranges)).into_sorted_vec();
    let pair = ranges.windows(2).find(|pair| pair[0].1 > pair[1].0)?;
    Some((pair[1].0, pair[0].1))
}
