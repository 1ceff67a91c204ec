// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Memory that a guest does not need: what was named, until it has gone back to the pool.

use core::ops::Range;

/// How many blocks go back at once, so that TLBs are told once for all of them.
pub const BATCH: usize = 64;

/// How many parts may be named at once. Linux reports up to 32.
const PARTS: usize = 32;

/// Parts of the memory of a VM, by guest physical addresses.
pub type Parts = heapless::Vec<Range<u64>, PARTS>;

/// What was named and has not gone.
#[derive(Debug, Default)]
pub struct Released(Parts);

impl Released {
    /// Adds whole blocks; false if there are too many parts.
    pub fn add(&mut self, blocks: Range<u64>) -> bool {
        match self.0.last_mut() {
            Some(last) if last.end == blocks.start => last.end = blocks.end,
            _ => return self.0.push(blocks).is_ok(),
        }
        true
    }

    /// Returns how many parts there are.
    pub fn count(&self) -> u64 {
        self.0.len() as u64
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Takes up to so many bytes, whole blocks if they are.
    pub fn take(&mut self, most: u64) -> Parts {
        let (mut taken, mut left) = (Parts::new(), most);
        while let Some(last) = self.0.last_mut().filter(|_| left != 0) {
            let size = (last.end - last.start).min(left);
            // There is room for as many as there are.
            let _ = taken.push(last.end - size..last.end);
            last.end -= size;
            left -= size;
            if last.start == last.end {
                self.0.pop();
            }
        }
        taken
    }
}
