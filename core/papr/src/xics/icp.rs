// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The presentation controller of a vCPU.

use super::{IPI, NEVER};
use crate::sync::{AtomicU64, Ordering};

/// What it holds, unpacked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct State {
    /// The interrupt presented; zero for none.
    source: u32,
    /// Its priority.
    pending: u8,
    /// The priority of what the vCPU does (CPPR): only better ones are presented.
    current: u8,
    /// The priority of the IPI asked for (MFRR).
    request: u8,
    /// A source was refused, and waits for a worse current priority.
    refused: bool,
}

const REFUSED: u64 = 1 << 24;

impl State {
    /// Nothing is presented, and nothing would be.
    const RESET: State = State { source: 0, pending: NEVER, current: 0, request: NEVER, refused: false };

    const fn pack(self) -> u64 {
        (self.source as u64) << 32
            | if self.refused { REFUSED } else { 0 }
            | (self.pending as u64) << 16
            | (self.request as u64) << 8
            | self.current as u64
    }

    #[inline(always)] // Shifts, on the path of every interrupt.
    const fn unpack(word: u64) -> State {
        State {
            source: (word >> 32) as u32,
            pending: (word >> 16) as u8,
            current: word as u8,
            request: (word >> 8) as u8,
            refused: word & REFUSED != 0,
        }
    }

    /// Presents the IPI that is asked for, if it is better than all else.
    #[inline(always)] // Part of each operation.
    fn present_request(&mut self, change: &mut Change) {
        if self.request < self.current && self.request < self.pending {
            change.rejected = self.displaced();
            (self.source, self.pending) = (IPI, self.request);
            change.presented = true;
        }
    }

    /// The source that goes back when another is presented.
    #[inline(always)] // A comparison or two.
    fn displaced(&self) -> Option<u32> {
        (self.source != 0 && self.source != IPI).then_some(self.source)
    }

    /// Sets the current priority: what is no longer better goes back, what has become better comes.
    #[inline(always)] // The larger part of two operations.
    fn set_current(&mut self, priority: u8) -> Change {
        let mut change = Change::default();
        self.current = priority;
        if self.pending >= priority && self.source != 0 {
            change.rejected = self.displaced();
            (self.source, self.pending) = (0, NEVER);
        }
        let before = change.rejected;
        self.present_request(&mut change);
        change.rejected = change.rejected.or(before);
        change.resend = core::mem::take(&mut self.refused);
        change
    }
}

/// What an operation leads to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use = "sources that were rejected have to be delivered again"]
pub struct Change {
    /// An interrupt was presented: the vCPU has to look.
    pub presented: bool,
    /// A source is no longer presented: it is pending again.
    pub rejected: Option<u32>,
    /// Sources that were refused are to be offered again.
    pub resend: bool,
}

impl Change {
    /// Says whether the sources have to be told.
    #[inline(always)] // The usual answer is no.
    pub fn concerns_sources(&self) -> bool {
        self.resend || self.rejected.is_some()
    }
}

/// The presentation controller of a vCPU: one word.
#[derive(Debug)]
pub struct Icp {
    word: AtomicU64,
}

impl Default for Icp {
    fn default() -> Self {
        Self::new()
    }
}

impl Icp {
    /// Makes one that presents nothing.
    pub fn new() -> Self {
        Self { word: AtomicU64::new(State::RESET.pack()) }
    }

    /// Forgets everything: for a VM that starts, when nobody delivers.
    pub fn reset(&self) {
        self.word.store(State::RESET.pack(), Ordering::Relaxed);
    }

    /// Says whether an interrupt is presented. HOT: one load.
    #[inline(always)] // One load and a shift.
    pub fn is_presented(&self) -> bool {
        // Relaxed: it only decides whether to interrupt the guest, which accepts.
        self.word.load(Ordering::Relaxed) >> 32 != 0
    }

    /// Accepts what is presented (H_XIRR): returns the current priority in the highest byte, and the interrupt.
    #[inline] // The light path of every interrupt.
    pub fn accept(&self) -> u32 {
        self.update(|state| {
            let xirr = u32::from(state.current) << 24 | state.source;
            if state.source != 0 {
                (state.source, state.current, state.pending) = (0, state.pending, NEVER);
            }
            xirr
        })
    }

    /// Ends an interrupt (H_EOI): takes back the priority that [`Icp::accept`] has returned with it.
    #[inline] // The light path of every interrupt.
    pub fn end(&self, xirr: u32) -> Change {
        self.set_priority((xirr >> 24) as u8)
    }

    /// Sets the current priority (H_CPPR).
    #[inline] // The light path of every interrupt.
    pub fn set_priority(&self, priority: u8) -> Change {
        self.update(|state| state.set_current(priority))
    }

    /// Asks for an IPI of this priority, or for none (H_IPI). One that is presented already stays so.
    #[inline] // The light path of every IPI.
    pub fn set_request(&self, priority: u8) -> Change {
        self.update(|state| {
            let mut change = Change::default();
            state.request = priority;
            state.present_request(&mut change);
            change
        })
    }

    /// Returns what [`Icp::accept`] would, and the priority of the IPI asked for (H_IPOLL).
    pub fn poll(&self) -> (u32, u8) {
        let state = State::unpack(self.word.load(Ordering::Acquire));
        (u32::from(state.current) << 24 | state.source, state.request)
    }

    /// Presents a source if its priority is better than all else. What it displaces is in the answer; `None` if it was
    /// refused, which is remembered.
    pub(super) fn deliver(&self, source: u32, priority: u8) -> Option<Change> {
        self.update(|state| {
            if priority >= state.current || priority >= state.pending {
                state.refused = true;
                return None;
            }
            let rejected = state.displaced();
            (state.source, state.pending) = (source, priority);
            Some(Change { presented: true, rejected, resend: false })
        })
    }

    /// Says whether a source was refused since the current priority was last set.
    pub(super) fn has_refused(&self) -> bool {
        self.word.load(Ordering::Relaxed) & REFUSED != 0
    }

    #[inline(always)] // Each operation is little else.
    fn update<T>(&self, f: impl Fn(&mut State) -> T) -> T {
        let mut found = self.word.load(Ordering::Relaxed);
        loop {
            let mut state = State::unpack(found);
            let answer = f(&mut state);
            // Acquire and release: who accepts an interrupt sees what its sender did before.
            match self.word.compare_exchange_weak(found, state.pack(), Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return answer,
                Err(other) => found = other,
            }
        }
    }
}
