// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A set of interrupt vectors: one of the 256-bit registers IRR, ISR and TMR (APM vol. 2, 16.6.3).

/// Vectors 0 to 255, in the words in which hot paths want them, and which of the words hold anything: so that the highest
/// vector, emptiness and "just this one" cost a handful of instructions however the vectors are spread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct VectorSet {
    words: [u64; 4],
    /// Bit n: word n is not zero.
    used: u32,
}

impl VectorSet {
    /// Holds nothing.
    pub const EMPTY: Self = Self { words: [0; 4], used: 0 };

    /// Adds a vector.
    #[inline(always)] // Hot: a few instructions of each delivery.
    pub fn insert(&mut self, vector: u8) {
        let at = vector >> 6;
        self.words[at as usize] |= 1 << (vector & 63);
        self.used |= 1 << at;
    }

    /// Removes a vector.
    #[inline(always)] // Hot: a few instructions of each end of interrupt.
    pub fn remove(&mut self, vector: u8) {
        let at = vector >> 6;
        let word = &mut self.words[at as usize];
        *word &= !(1 << (vector & 63));
        if *word == 0 {
            self.used &= !(1 << at);
        }
    }

    /// Says whether a vector is in it.
    #[inline(always)] // Hot: one bit test.
    pub fn contains(&self, vector: u8) -> bool {
        self.words[(vector >> 6) as usize] >> (vector & 63) & 1 != 0
    }

    /// Says whether nothing is in it.
    #[inline(always)] // Hot: one load.
    pub fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// Returns the highest vector in it; zero, which no APIC accepts, if there is none.
    #[inline(always)] // Hot: two bit scans.
    pub fn highest(&self) -> u8 {
        if self.used == 0 {
            return 0;
        }
        // The masks say what the fields promise: there are four words, and one in use is not zero.
        let at = (31 - self.used.leading_zeros()) & 3;
        let word = self.words[at as usize];
        (at * 64 + (63 - (word | 1).leading_zeros())) as u8
    }

    /// Says whether `vector`, which is in it, is the only one.
    #[inline(always)] // Hot: the rule of the paravirtual EOI.
    pub fn is_only(&self, vector: u8) -> bool {
        let at = vector >> 6;
        self.used == 1 << at && self.words[at as usize] == 1 << (vector & 63)
    }

    /// Returns the 32 vectors from `32 * n` on, as the register has them.
    pub fn word(&self, n: u8) -> u32 {
        (self.words[usize::from(n >> 1 & 3)] >> (u32::from(n & 1) * 32)) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn behaves_as_a_set_of_256_bits() {
        let mut set = VectorSet::EMPTY;
        let mut bits = [false; 256];
        let mut state = 12345u32;
        for _ in 0..20_000 {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let vector = ((state >> 16) as u8).max(16);
            let add = state & 1 << 30 != 0;
            if add {
                set.insert(vector)
            } else {
                set.remove(vector)
            }
            bits[usize::from(vector)] = add;
            assert_eq!(usize::from(set.highest()), bits.iter().rposition(|bit| *bit).unwrap_or(0));
            assert_eq!(set.is_empty(), !bits.contains(&true));
            assert_eq!(set.contains(vector), add);
            if add {
                assert_eq!(set.is_only(vector), bits.iter().filter(|bit| **bit).count() == 1);
            }
            let n = vector / 32;
            let word = (0..32).fold(0, |word, bit| word | u32::from(bits[usize::from(n) * 32 + bit]) << bit);
            assert_eq!(set.word(n), word);
        }
    }
}
