// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the program that drives a disk controller gets to know of the disk: the two words of [`DEVICE_READY`](crate::abi::DEVICE_READY).
//!
//! The first word has the number of the partition in bits 0 to 31, 0 for the whole disk; bit 63: [`Drive::read_only`]. The second word is
//! zero.

/// The guest only reads it.
const READ_ONLY: u64 = 1 << 63;

/// What of a disk the program is to show, and how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drive {
    /// The number of a partition, from 1 on; without one it is the whole disk.
    pub partition: Option<u32>,
    /// Nothing is to be written.
    pub read_only: bool,
}

impl Drive {
    /// Returns it as words.
    pub fn words(&self) -> [u64; 2] {
        let flag = if self.read_only { READ_ONLY } else { 0 };
        [u64::from(self.partition.unwrap_or(0)) | flag, 0]
    }

    /// Returns it from words. Any will do.
    pub fn from_words([first, _]: [u64; 2]) -> Self {
        let partition = first as u32;
        Self { partition: (partition != 0).then_some(partition), read_only: first & READ_ONLY != 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_back() {
        assert_eq!(Drive::default().words(), [0; 2]);
        assert_eq!(Drive { partition: Some(128), read_only: true }.words(), [1 << 63 | 128, 0]);
        for drive in [
            Drive::default(),
            Drive { read_only: true, ..Drive::default() },
            Drive { partition: Some(1), read_only: false },
            Drive { partition: Some(u32::MAX), read_only: true },
        ] {
            assert_eq!(Drive::from_words(drive.words()), drive);
        }
        assert_eq!(Drive::from_words([0x7fff_ffff << 32, u64::MAX]), Drive::default(), "reserved bits");
    }
}
