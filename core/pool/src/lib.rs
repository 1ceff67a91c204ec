// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Blocks of memory that several VMs have in common: who needs one takes it, and gives it back.
//!
//! Any CPU takes and gives at any time, without a lock: a block is free while its bit is set. To take it is to clear the bit, so nobody
//! has a block that somebody else has.
//!
//! # Orderings
//! Giving releases and taking acquires: what the one before has done with a block is over when the next one has it.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod released;

use alloc::boxed::Box;

/// The atomics: the real ones, or the model checker's.
mod sync {
    #[cfg(not(loom))]
    pub(super) use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
    #[cfg(loom)]
    pub(super) use loom::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
}

pub use released::{BATCH, Parts, Released};
use sync::{AtomicU64, AtomicUsize, Ordering};

/// Blocks whose bits are in a word.
const WORD: usize = u64::BITS as usize;

/// Blocks, each of which is free or somebody's.
#[derive(Debug)]
pub struct Pool {
    /// The address of the first one, and the size of each, in bytes.
    base: u64,
    block: u64,
    /// How many there are.
    count: usize,
    /// A bit for each that is free.
    free: Box<[AtomicU64]>,
    /// The word in which one was found last, or was given back.
    hint: AtomicUsize,
}

impl Pool {
    /// Makes the pool of `count` blocks of `block` bytes from `base` on, all of them free.
    pub fn new(base: u64, block: u64, count: usize) -> Self {
        let bits = |word: usize| match count - word * WORD {
            more if more >= WORD => u64::MAX,
            rest => (1 << rest) - 1,
        };
        let free = (0..count.div_ceil(WORD)).map(|word| AtomicU64::new(bits(word))).collect();
        Self { base, block, count, free, hint: AtomicUsize::new(0) }
    }

    /// Takes a block, and returns its address. `None` if each was somebody's when it was looked at.
    pub fn take(&self) -> Option<u64> {
        // Relaxed: where the search begins does not matter.
        let first = self.hint.load(Ordering::Relaxed);
        let words = self.free.len();
        (0..words).map(|step| (first + step) % words).find_map(|word| {
            let bit = self.take_of(self.free.get(word)?)?;
            self.hint.store(word, Ordering::Relaxed);
            Some(self.base + (word * WORD + bit as usize) as u64 * self.block)
        })
    }

    /// Takes a block of those in a word, if one is free.
    fn take_of(&self, word: &AtomicU64) -> Option<u32> {
        let mut free = word.load(Ordering::Relaxed);
        while free != 0 {
            let bit = free.trailing_zeros();
            // Acquire: what who had it before has done.
            match word.compare_exchange_weak(free, free & !(1 << bit), Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return Some(bit),
                Err(found) => free = found,
            }
        }
        None
    }

    /// Gives back the block at an address. False, and nothing happens, if it is none of the pool's, or is free.
    #[must_use = "a block that is given back twice is somebody else's by now"]
    pub fn give(&self, address: u64) -> bool {
        let Some(offset) = address.checked_sub(self.base).filter(|offset| offset.is_multiple_of(self.block))
        else {
            return false;
        };
        let index = usize::try_from(offset / self.block).unwrap_or(usize::MAX);
        let Some(word) = self.free.get(index / WORD).filter(|_| index < self.count) else { return false };
        let bit = 1 << (index % WORD);
        // Release: whoever takes it finds what was done before.
        let given = word.fetch_or(bit, Ordering::Release) & bit == 0;
        if given {
            self.hint.store(index / WORD, Ordering::Relaxed);
        }
        given
    }

    /// Returns how many blocks are free, each looked at by itself.
    pub fn free(&self) -> usize {
        self.free.iter().map(|word| word.load(Ordering::Relaxed).count_ones() as usize).sum()
    }

    /// Says whether one was free when it was looked at.
    pub fn has_free(&self) -> bool {
        self.free.iter().any(|word| word.load(Ordering::Relaxed) != 0)
    }

    /// Returns how many bytes are free, counted as [`Pool::free`] does.
    pub fn free_bytes(&self) -> u64 {
        self.free() as u64 * self.block
    }

    /// Returns how many blocks there are.
    pub const fn count(&self) -> usize {
        self.count
    }

    /// Returns how many bytes these are.
    pub const fn bytes(&self) -> u64 {
        self.count as u64 * self.block
    }
}
