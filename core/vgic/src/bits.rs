// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A set of INTIDs.

/// Is a set of INTIDs below 1024, with a summary word so that an empty set is known by one test.
#[derive(Clone, Debug)]
pub(crate) struct IntidSet {
    summary: u16,
    words: [u64; 16],
}

impl IntidSet {
    pub(crate) const EMPTY: Self = Self { summary: 0, words: [0; 16] };

    /// Splits an INTID; the mask keeps the index inside the array, so that no check is compiled.
    #[inline] // Two instructions on the hot paths.
    const fn split(intid: u32) -> (usize, u64) {
        ((intid as usize >> 6) & 15, 1 << (intid & 63))
    }

    #[inline] // Hot: used by every injection.
    pub(crate) const fn contains(&self, intid: u32) -> bool {
        let (word, bit) = Self::split(intid);
        self.words[word] & bit != 0
    }

    #[inline] // Hot: used by every injection.
    pub(crate) const fn insert(&mut self, intid: u32) {
        let (word, bit) = Self::split(intid);
        self.words[word] |= bit;
        self.summary |= 1 << word;
    }

    #[inline] // Hot: used by every injection.
    pub(crate) const fn remove(&mut self, intid: u32) {
        let (word, bit) = Self::split(intid);
        self.words[word] &= !bit;
        if self.words[word] == 0 {
            self.summary &= !(1 << word);
        }
    }

    pub(crate) const fn put(&mut self, intid: u32, present: bool) {
        if present {
            self.insert(intid);
        } else {
            self.remove(intid);
        }
    }

    #[inline] // Hot: the test before the planner.
    pub(crate) const fn is_empty(&self) -> bool {
        self.summary == 0
    }

    /// Returns the members among INTIDs 32 * `block` .. 32 * `block` + 32 as a mask.
    pub(crate) const fn block(&self, block: u32) -> u32 {
        (self.words[(block as usize >> 1) & 15] >> (32 * (block & 1))) as u32
    }

    /// Returns the smallest member that is at least `from`, so that a caller may change the set
    /// between two steps of a walk.
    pub(crate) fn next(&self, from: u32) -> Option<u32> {
        if from >= 1024 {
            return None;
        }
        let (word, bit) = Self::split(from);
        let rest = self.words[word] & !(bit - 1);
        if rest != 0 {
            return Some(word as u32 * 64 + rest.trailing_zeros());
        }
        let later = u32::from(self.summary) & !((2 << word) - 1);
        let word = later.trailing_zeros();
        let bits = self.words.get(word as usize)?;
        Some(word * 64 + bits.trailing_zeros())
    }
}
