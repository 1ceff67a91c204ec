// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A set of INTIDs.

/// Is a set of INTIDs below 1024; higher ones wrap.
#[derive(Clone, Debug)]
pub(crate) struct IntidSet([u64; 16]);

impl IntidSet {
    pub(crate) const EMPTY: Self = Self([0; 16]);

    /// Splits an INTID; the mask keeps the index inside the array, so that no check is compiled.
    #[inline] // Two instructions on the hot paths.
    const fn split(intid: u32) -> (usize, u64) {
        ((intid as usize >> 6) & 15, 1 << (intid & 63))
    }

    #[inline] // Hot: used by every injection.
    pub(crate) const fn contains(&self, intid: u32) -> bool {
        let (word, bit) = Self::split(intid);
        self.0[word] & bit != 0
    }

    #[inline] // Hot: used by every injection.
    pub(crate) const fn insert(&mut self, intid: u32) {
        let (word, bit) = Self::split(intid);
        self.0[word] |= bit;
    }

    #[inline] // Hot: used by every injection.
    pub(crate) const fn remove(&mut self, intid: u32) {
        let (word, bit) = Self::split(intid);
        self.0[word] &= !bit;
    }

    pub(crate) const fn put(&mut self, intid: u32, present: bool) {
        if present {
            self.insert(intid);
        } else {
            self.remove(intid);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }

    /// Returns the members among INTIDs 32 * `block` .. 32 * `block` + 32 as a mask.
    pub(crate) const fn block(&self, block: u32) -> u32 {
        (self.0[(block as usize >> 1) & 15] >> (32 * (block & 1))) as u32
    }

    /// Returns the smallest member that is at least `from`, so that a caller may change the set
    /// between two steps of a walk.
    pub(crate) fn next(&self, from: u32) -> Option<u32> {
        let first = (from / 64) as usize;
        let mut mask = !0 << (from & 63);
        for (number, word) in self.0.iter().enumerate().skip(first) {
            let rest = word & mask;
            if rest != 0 {
                return Some(number as u32 * 64 + rest.trailing_zeros());
            }
            mask = !0;
        }
        None
    }
}
