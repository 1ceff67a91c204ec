// SPDX-License-Identifier: Apache-2.0 OR MIT
//! xxh64 with seed 0, which reads eight aligned bytes at a time.
//!
//! A bundle has tens of megabytes, and its digest is a large part of a start. The hypervisor for arm64 is compiled for memory
//! that faults on unaligned accesses; there, a library that takes bytes becomes loads of single bytes.

use bytemuck::try_cast_slice;

const PRIME_1: u64 = 0x9e37_79b1_85eb_ca87;
const PRIME_2: u64 = 0xc2b2_ae3d_27d4_eb4f;
const PRIME_3: u64 = 0x1656_67b1_9e37_79f9;
const PRIME_4: u64 = 0x85eb_ca77_c2b2_ae63;
const PRIME_5: u64 = 0x27d4_eb2f_1656_67c5;

/// Bytes that are taken at a time.
pub(crate) const STRIPE: usize = 32;

/// A digest that is being computed.
pub(crate) struct Xxh64 {
    lanes: [u64; 4],
    length: u64,
}

impl Xxh64 {
    /// Begins.
    pub(crate) const fn new() -> Self {
        let lanes = [PRIME_1.wrapping_add(PRIME_2), PRIME_2, 0, PRIME_1.wrapping_neg()];
        Self { lanes, length: 0 }
    }

    /// Takes all whole stripes of `bytes`, and returns what is left.
    pub(crate) fn stripes<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let (stripes, tail) = bytes.as_chunks::<STRIPE>();
        self.length += (bytes.len() - tail.len()) as u64;
        match try_cast_slice::<_, [u64; 4]>(stripes) {
            Ok(words) => words.iter().for_each(|words| self.stripe(words.map(u64::from_le))),
            Err(_) => stripes.iter().for_each(|stripe| self.stripe(words(stripe))),
        }
        tail
    }

    #[inline(always)]
    fn stripe(&mut self, words: [u64; 4]) {
        for (lane, word) in self.lanes.iter_mut().zip(words) {
            *lane = round(*lane, word);
        }
    }

    /// Takes the last bytes, less than a stripe, and returns the digest.
    pub(crate) fn finish(self, tail: &[u8]) -> u64 {
        let mut hash = if self.length == 0 {
            PRIME_5
        } else {
            let [a, b, c, d] = self.lanes;
            let sum = a
                .rotate_left(1)
                .wrapping_add(b.rotate_left(7))
                .wrapping_add(c.rotate_left(12))
                .wrapping_add(d.rotate_left(18));
            self.lanes
                .iter()
                .fold(sum, |hash, &lane| (hash ^ round(0, lane)).wrapping_mul(PRIME_1).wrapping_add(PRIME_4))
        };
        hash = hash.wrapping_add(self.length + tail.len() as u64);
        let (eights, rest) = tail.as_chunks::<8>();
        for eight in eights {
            hash ^= round(0, u64::from_le_bytes(*eight));
            hash = hash.rotate_left(27).wrapping_mul(PRIME_1).wrapping_add(PRIME_4);
        }
        let (fours, rest) = rest.as_chunks::<4>();
        for four in fours {
            hash ^= u64::from(u32::from_le_bytes(*four)).wrapping_mul(PRIME_1);
            hash = hash.rotate_left(23).wrapping_mul(PRIME_2).wrapping_add(PRIME_3);
        }
        for byte in rest {
            hash ^= u64::from(*byte).wrapping_mul(PRIME_5);
            hash = hash.rotate_left(11).wrapping_mul(PRIME_1);
        }
        hash = (hash ^ hash >> 33).wrapping_mul(PRIME_2);
        hash = (hash ^ hash >> 29).wrapping_mul(PRIME_3);
        hash ^ hash >> 32
    }
}

/// The digest of `bytes`.
pub(crate) fn xxh64(bytes: &[u8]) -> u64 {
    let mut hash = Xxh64::new();
    let tail = hash.stripes(bytes);
    hash.finish(tail)
}

fn round(lane: u64, word: u64) -> u64 {
    lane.wrapping_add(word.wrapping_mul(PRIME_2)).rotate_left(31).wrapping_mul(PRIME_1)
}

fn words(stripe: &[u8; STRIPE]) -> [u64; 4] {
    let mut words = [0; 4];
    for (word, bytes) in words.iter_mut().zip(stripe.as_chunks().0) {
        *word = u64::from_le_bytes(*bytes);
    }
    words
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::xxh64;

    #[test]
    fn it_is_what_the_library_computes_at_every_length_and_alignment() {
        let bytes: std::vec::Vec<u8> =
            (0..1200u32).map(|n| (n.wrapping_mul(0x9e37_79b1) >> 24) as u8).collect();
        for start in 0..9 {
            for end in (start..start + 200).chain([1199, 1200]) {
                let part = &bytes[start..end];
                assert_eq!(xxh64(part), xxhash_rust::xxh64::xxh64(part, 0), "{start}..{end}");
            }
        }
    }
}
