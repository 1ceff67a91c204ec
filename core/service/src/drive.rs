// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the program that drives a disk controller gets to know of the disk: the two words of [`DEVICE_READY`](crate::abi::DEVICE_READY).
//!
//! Each word has 16 bits for each of four members, those of the first in the lowest. Of these, bits 0 to 7 are the number of a partition, 0
//! for the whole disk; bit 8: [`Drive::read_only`]; bit 9: there is such a member. The others are zero here.

use crate::abi::MEMBERS;

/// The bits of a member.
const BITS: usize = 16;
/// How many members a word has.
const IN_WORD: usize = u64::BITS as usize / BITS;
/// The guest only reads it.
const READ_ONLY: u64 = 1 << 8;
/// The member has a disk.
const PRESENT: u64 = 1 << 9;

/// What of a disk the program is to show a member, and how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drive {
    /// The number of a partition, from 1 on; without one it is the whole disk.
    pub partition: Option<u8>,
    /// Nothing is to be written.
    pub read_only: bool,
}

impl Drive {
    fn bits(self) -> u64 {
        let flag = if self.read_only { READ_ONLY } else { 0 };
        u64::from(self.partition.unwrap_or(0)) | flag | PRESENT
    }

    fn from_bits(bits: u64) -> Option<Self> {
        let partition = bits as u8;
        let drive =
            Self { partition: (partition != 0).then_some(partition), read_only: bits & READ_ONLY != 0 };
        (bits & PRESENT != 0).then_some(drive)
    }
}

/// The same for all members.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drives(pub [Option<Drive>; MEMBERS as usize]);

impl Drives {
    /// Those of the first members. What is beyond the last one is left out.
    pub fn new(drives: impl IntoIterator<Item = Drive>) -> Self {
        let mut all = Self::default();
        all.0.iter_mut().zip(drives).for_each(|(place, drive)| *place = Some(drive));
        all
    }

    /// Returns them as words.
    pub fn words(&self) -> [u64; 2] {
        let word = |drives: &[Option<Drive>]| {
            drives.iter().rev().fold(0, |word, drive| word << BITS | drive.map_or(0, Drive::bits))
        };
        let (first, second) = self.0.split_at(IN_WORD);
        [word(first), word(second)]
    }

    /// Returns them from words. Any will do.
    pub fn from_words(words: [u64; 2]) -> Self {
        let each = words.into_iter().flat_map(|word| (0..IN_WORD).map(move |at| word >> (BITS * at)));
        let mut all = Self::default();
        all.0.iter_mut().zip(each).for_each(|(place, bits)| *place = Drive::from_bits(bits));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_back() {
        let second = Drive { partition: Some(128), read_only: true };
        assert_eq!(Drives::new([Drive::default()]).words(), [0x200, 0]);
        assert_eq!(Drives::new([Drive::default(), second]).words(), [0x0380_0200, 0]);
        for count in 0..=MEMBERS as usize {
            let drive = |at| Drive { partition: (at != 0).then_some(at), read_only: at % 3 == 1 };
            let drives = Drives::new((0..count as u8).map(drive));
            assert_eq!(drives.0.iter().flatten().count(), count);
            assert_eq!(Drives::from_words(drives.words()), drives);
        }
        assert_eq!(Drives::from_words([0xfdff_fdff_fdff_fdff; 2]), Drives::default(), "nobody is there");
        assert_eq!(Drives::new([second; 9]), Drives([Some(second); 8]));
    }
}
