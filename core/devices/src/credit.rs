// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Flow control of what is typed: the sender keeps at most [`BACKLOG`] bytes under way, and is told when more find room.

use crate::BACKLOG;

/// So many bytes are reported together while others still wait: a message for each byte would take more of the line than the byte.
const BATCH: u16 = BACKLOG as u16 / 4;

/// The bytes that a sender has sent and was not told to be gone.
#[derive(Debug, Default)]
pub struct Credit {
    owed: u16,
}

impl Credit {
    /// Makes one of a line that nothing was sent to.
    pub const fn new() -> Self {
        Self { owed: 0 }
    }

    /// Notes that so many bytes have arrived, whether they found room or not.
    pub fn arrived(&mut self, bytes: usize) {
        self.owed = self.owed.saturating_add(bytes.min(usize::from(u16::MAX)) as u16);
    }

    /// Returns how many bytes more the sender may send, if it is to be told: `waiting` bytes are left in the backlog. The answer
    /// counts as told.
    #[inline]
    pub fn freed(&mut self, waiting: usize) -> Option<u16> {
        let free = usize::from(self.owed).saturating_sub(waiting) as u16;
        if free == 0 || free < BATCH && waiting > 0 {
            return None;
        }
        self.owed -= free;
        Some(free)
    }

    /// Returns how many bytes a sender that has sent nothing else may send now.
    pub fn room(&self) -> u16 {
        (BACKLOG as u16).saturating_sub(self.owed)
    }
}
