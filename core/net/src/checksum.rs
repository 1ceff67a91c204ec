// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The Internet's checksum (RFC 1071): the sum of 16-bit words, big-endian, in ones' complement.

/// A sum that grows. At most 2^32 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    words: u64,
    /// The next byte is the lower half of a word.
    odd: bool,
}

impl Sum {
    /// Adds bytes, which go on where the last ones ended.
    pub fn add(&mut self, mut bytes: &[u8]) {
        if self.odd
            && let Some((&first, rest)) = bytes.split_first()
        {
            self.words += u64::from(first);
            (self.odd, bytes) = (false, rest);
        }
        let (pairs, rest) = bytes.as_chunks::<2>();
        self.words += pairs.iter().map(|&pair| u64::from(u16::from_be_bytes(pair))).sum::<u64>();
        if let [last] = rest {
            self.words += u64::from(*last) << 8;
            self.odd = true;
        }
    }

    /// Adds a number as a word.
    pub fn add_word(&mut self, word: u16) {
        self.words += u64::from(word);
    }

    /// The checksum: the complement of the sum.
    pub fn finish(self) -> u16 {
        let mut sum = self.words;
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        !(sum as u16)
    }
}
