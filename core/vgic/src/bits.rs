// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A set of INTIDs.

/// Is a set of INTIDs below 1024; higher ones wrap. Which of its words have a member is a word of its own, so that an
/// empty set is seen at one look, and a walk goes from member to member.
#[derive(Clone, Debug)]
pub(crate) struct IntidSet([u64; 16], u32);

impl IntidSet {
    pub(crate) const EMPTY: Self = Self([0; 16], 0);

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
        self.1 |= 1 << word;
    }

    #[inline] // Hot: used by every injection.
    pub(crate) const fn remove(&mut self, intid: u32) {
        let (word, bit) = Self::split(intid);
        self.0[word] &= !bit;
        if self.0[word] == 0 {
            self.1 &= !(1 << word);
        }
    }

    pub(crate) const fn put(&mut self, intid: u32, present: bool) {
        if present {
            self.insert(intid);
        } else {
            self.remove(intid);
        }
    }

    #[inline] // One load.
    pub(crate) const fn is_empty(&self) -> bool {
        self.1 == 0
    }

    /// Returns the members among INTIDs 32 * `block` .. 32 * `block` + 32 as a mask.
    pub(crate) const fn block(&self, block: u32) -> u32 {
        (self.0[(block as usize >> 1) & 15] >> (32 * (block & 1))) as u32
    }

    /// Returns the smallest member that is at least `from`, so that a caller may change the set
    /// between two steps of a walk.
    pub(crate) fn next(&self, from: u32) -> Option<u32> {
        let first = from / 64;
        let mut words = self.1 & u32::MAX.checked_shl(first).unwrap_or(0);
        while words != 0 {
            let word = words.trailing_zeros();
            words &= words - 1;
            let mask = if word == first { !0 << (from & 63) } else { !0 };
            let rest = self.0[word as usize & 15] & mask;
            if rest != 0 {
                return Some(word * 64 + rest.trailing_zeros());
            }
        }
        None
    }
}
