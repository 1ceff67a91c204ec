// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The block of arguments (LoPAPR 7.2.7): token, numbers of arguments and results, arguments, results; words, big-endian.

use super::Status;
use crate::Memory;

/// The most arguments and results together.
const MOST: usize = 16;
/// Words before the arguments.
const HEAD: usize = 3;
/// The most bytes of a block.
pub(super) const SIZE: u64 = 4 * (HEAD + MOST) as u64;
/// The address bits of a guest: the highest four say nothing.
const ADDRESS: u64 = (1 << 60) - 1;

/// A block, as it was when it was read.
pub(super) struct Block {
    address: u64,
    words: [u32; HEAD + MOST],
}

impl Block {
    /// Reads a block. `None` if it is not in memory, or says that it is too large.
    pub(super) fn read(memory: &impl Memory, address: u64) -> Option<Block> {
        let address = address & ADDRESS;
        let mut head = [0; 4 * HEAD];
        if !memory.read(address, &mut head) {
            return None;
        }
        let mut block = Block { address, words: [0; HEAD + MOST] };
        block.fill(0, &head);
        let (arguments, results) = block.shape();
        if arguments > MOST as u32 || results > MOST as u32 - arguments {
            return None;
        }
        let mut bytes = [0; 4 * MOST];
        let arguments = bytes.get_mut(..4 * arguments as usize)?;
        if !memory.read(address + 4 * HEAD as u64, arguments) {
            return None;
        }
        block.fill(HEAD, arguments);
        Some(block)
    }

    fn fill(&mut self, from: usize, bytes: &[u8]) {
        for (word, bytes) in self.words.iter_mut().skip(from).zip(bytes.as_chunks::<4>().0) {
            *word = u32::from_be_bytes(*bytes);
        }
    }

    pub(super) fn token(&self) -> u32 {
        self.words[0]
    }

    /// How many arguments and results there are.
    pub(super) fn shape(&self) -> (u32, u32) {
        (self.words[1], self.words[2])
    }

    /// Returns an argument; zero if there are not so many.
    pub(super) fn argument(&self, index: usize) -> u32 {
        self.words.get(HEAD + index).copied().unwrap_or(0)
    }

    /// Writes the status, which is the first result, if there is room for it.
    pub(super) fn finish(&self, memory: &impl Memory, status: Status) -> bool {
        self.words[2] == 0 || memory.set_word(self.result(0), status as i32 as u32)
    }

    /// Writes the results behind the status, as many as there is room for.
    pub(super) fn results(&self, memory: &impl Memory, results: &[u32]) -> bool {
        let room = (self.words[2] as usize).saturating_sub(1);
        let mut places = results.iter().take(room).zip(1..);
        places.all(|(result, index)| memory.set_word(self.result(index), *result))
    }

    fn result(&self, index: u64) -> u64 {
        self.address + 4 * (HEAD as u64 + u64::from(self.words[1]) + index)
    }
}
