// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Numbers that are the same in each run.

/// Marsaglia's xorshift64. The seed is not zero.
#[derive(Clone, Debug)]
pub struct Random(pub u64);

impl Random {
    /// Returns any number.
    pub fn any(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// Returns a number below `limit`, which is not zero.
    pub fn below(&mut self, limit: u64) -> u64 {
        (self.any() >> 11) % limit
    }

    /// Returns bytes.
    pub fn bytes(&mut self, length: usize) -> Vec<u8> {
        (0..length).map(|_| self.any() as u8).collect()
    }

    /// Cuts `length` into up to `pieces` parts, some of which may be zero.
    pub fn cut(&mut self, length: u32, pieces: u64) -> Vec<u32> {
        let mut ends: Vec<_> =
            (0..self.below(pieces)).map(|_| self.below(u64::from(length) + 1) as u32).collect();
        ends.push(length);
        ends.sort_unstable();
        let mut begin = 0;
        let part = |end| end - std::mem::replace(&mut begin, end);
        ends.into_iter().map(part).collect()
    }
}
