// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The exit that is being handled; its cost is known when it ends.

use core::mem::offset_of;

use crate::event::Event;
use crate::page::{Page, record_offset};
use crate::reason::Reason;

/// What an exit frame has for statistics: where they are, and what timed entries note of an exit. Assembly knows this layout.
///
/// Whoever has no statistics has a frame with one all the same, in which every function but [`Timing::note`] does nothing. `now`
/// reads the counter.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Timing {
    /// The figures of the vCPU, if it keeps any.
    page: Option<&'static Page>,
    /// The counter when the exit began.
    pub begin: u64,
    /// The offset of its reason's record in the page.
    pub record: u64,
}

// What assembly loads and stores, behind the start that the frames assert.
const _: () = assert!(
    size_of::<*const Page>() != 8
        || offset_of!(Timing, page) == 0
            && offset_of!(Timing, begin) == 8
            && offset_of!(Timing, record) == 16
            && size_of::<Timing>() == 24
);

impl Timing {
    /// No exit yet, of a vCPU with these figures.
    pub const fn new(page: Option<&'static Page>) -> Self {
        Self { page, begin: 0, record: 0 }
    }

    /// Says whether there are statistics.
    #[inline] // A comparison.
    pub const fn is_kept(&self) -> bool {
        self.page.is_some()
    }

    /// Notes the reason of the exit that is being handled.
    #[inline(always)] // Two instructions of a light exit.
    pub const fn note(&mut self, reason: Reason) {
        self.record = record_offset(reason) as u64;
    }

    /// Begins what is no exit: the next entry ends it.
    #[inline] // A comparison where no statistics are kept.
    pub fn begin(&mut self, reason: Reason, now: impl FnOnce() -> u64) {
        if self.is_kept() {
            self.begin = now();
            self.note(reason);
        }
    }

    /// Ends an exit that does not lead back into its guest: adds its cost to its reason's record.
    pub fn end(self, now: impl FnOnce() -> u64) {
        let reason = Reason::ALL.iter().find(|reason| record_offset(**reason) as u64 == self.record);
        if let (Some(page), Some(reason)) = (self.page, reason) {
            page.record(*reason).add(now().wrapping_sub(self.begin));
        }
    }

    /// Does what is nobody's cost, such as waiting, while the exit is handled.
    pub fn without<T>(&mut self, now: impl Fn() -> u64, f: impl FnOnce() -> T) -> T {
        if !self.is_kept() {
            return f();
        }
        let before = now();
        let done = f();
        self.begin = self.begin.wrapping_add(now().wrapping_sub(before));
        done
    }

    /// Counts an event.
    #[inline] // A comparison where no statistics are kept.
    pub fn count(&self, event: Event) {
        if let Some(page) = self.page {
            page.count(event);
        }
    }
}
