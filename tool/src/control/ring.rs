// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The end of what a console has said.

use std::collections::VecDeque;

/// The last bytes of a console.
#[derive(Debug)]
pub struct Ring {
    bytes: VecDeque<u8>,
    size: usize,
    lost: u64,
}

impl Ring {
    /// Makes a ring that keeps so many bytes.
    pub fn new(size: usize) -> Self {
        Ring { bytes: VecDeque::new(), size, lost: 0 }
    }

    /// Takes more, and forgets as much of the oldest as does not fit.
    pub fn push(&mut self, more: &[u8]) {
        self.bytes.extend(more);
        let excess = self.bytes.len().saturating_sub(self.size);
        self.bytes.drain(..excess);
        self.lost += excess as u64;
    }

    /// What is kept, from the beginning of a character on, and how many bytes came before that.
    pub fn kept(&self) -> (Vec<u8>, u64) {
        let is_inside = |byte: &&u8| self.lost > 0 && matches!(byte, 0x80..=0xbf);
        let begun = self.bytes.iter().take(3).take_while(is_inside).count();
        (self.bytes.iter().skip(begun).copied().collect(), self.lost + begun as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_is_kept_and_the_rest_is_counted() {
        let mut ring = Ring::new(4);
        ring.push(b"abc");
        assert_eq!(ring.kept(), (b"abc".to_vec(), 0));
        ring.push(b"defgh");
        assert_eq!(ring.kept(), (b"efgh".to_vec(), 4));
        ring.push("€".as_bytes());
        ring.push(b"xy");
        assert_eq!(ring.kept(), (b"xy".to_vec(), 11), "half a character is none");
    }
}
