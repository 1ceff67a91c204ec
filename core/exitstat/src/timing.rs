// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The exit that is being handled: what it has cost is known when it ends.

use crate::page::{Page, record_offset};
use crate::reason::Reason;

/// What timed entries note of an exit. Assembly knows this layout.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Timing {
    /// The counter when it began.
    pub begin: u64,
    /// The offset of its reason's record in the page.
    pub record: u64,
}

impl Timing {
    /// No exit, which is in no record.
    pub const NONE: Self = Self { begin: 0, record: 0 };

    /// An exit that begins `now`.
    #[must_use]
    pub const fn new(reason: Reason, now: u64) -> Self {
        Self { begin: now, record: record_offset(reason) as u64 }
    }

    /// Ends an exit that does not lead back into its guest: adds its cost to its reason's record.
    pub fn end(self, page: &Page, now: u64) {
        let reason = Reason::ALL.iter().find(|reason| record_offset(**reason) as u64 == self.record);
        if let Some(reason) = reason {
            page.record(*reason).add(now.wrapping_sub(self.begin));
        }
    }

    /// Does what is nobody's cost, such as waiting, while the exit is handled.
    #[inline(always)] // Two readings of a counter.
    pub fn without<T>(&mut self, now: impl Fn() -> u64, f: impl FnOnce() -> T) -> T {
        let before = now();
        let done = f();
        self.begin = self.begin.wrapping_add(now().wrapping_sub(before));
        done
    }
}
