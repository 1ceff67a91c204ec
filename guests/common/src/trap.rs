// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a CPU expects of exceptions, and what came: for runtimes in which the code that raises one is left as by a return.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// What a CPU expects, and what came.
#[repr(C)]
pub struct Record {
    /// The stack pointer to return with, or zero if nothing is expected; assembly writes it.
    pub stack: AtomicU64,
    came: [AtomicU64; 4],
}

impl Record {
    /// Returns a record of nothing.
    pub const fn new() -> Self {
        Record { stack: AtomicU64::new(0), came: [const { AtomicU64::new(0) }; 4] }
    }

    /// Expects nothing any more.
    pub fn clear(&self) {
        self.stack.store(0, Relaxed);
    }

    /// Returns the stack pointer to return with, if an exception is expected.
    pub fn expected(&self) -> Option<u64> {
        Some(self.stack.load(Relaxed)).filter(|stack| *stack != 0)
    }

    /// Enters what is to be known of an exception.
    pub fn enter(&self, came: [u64; 4]) {
        self.came.iter().zip(came).for_each(|(slot, value)| slot.store(value, Relaxed));
    }

    /// Returns what was entered last.
    pub fn came(&self) -> [u64; 4] {
        self.came.each_ref().map(|slot| slot.load(Relaxed))
    }
}

impl Default for Record {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_entered_comes_back() {
        let record = Record::new();
        assert_eq!(record.expected(), None);
        record.stack.store(0x1000, Relaxed);
        record.enter([14, 2, 0xdead, 0xbeef]);
        assert_eq!((record.expected(), record.came()), (Some(0x1000), [14, 2, 0xdead, 0xbeef]));
        record.clear();
        assert_eq!(record.expected(), None);
    }
}
