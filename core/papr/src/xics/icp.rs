// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The presentation controller of a vCPU.

use super::{IPI, NEVER};
use crate::sync::{AtomicU64, Ordering};

/// What it holds, in one word: the fields lie where an operation changes several of them by one mask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct State(u64);

impl State {
    /// The priority of what the vCPU does (CPPR): only better ones are presented.
    const CURRENT: u64 = 0xff;
    /// The priority of the IPI asked for (MFRR).
    const REQUEST: u64 = 0xff << 8;
    /// The priority of the interrupt presented; [`NEVER`] if there is none.
    const PENDING: u32 = 16;
    /// A source was refused, and waits for a worse current priority.
    const REFUSED: u64 = 1 << 24;
    /// The interrupt presented; zero for none.
    const SOURCE: u32 = 32;
    /// Nothing is presented: its priority.
    const NONE: u64 = (NEVER as u64) << Self::PENDING;

    /// Nothing is presented, and nothing would be.
    const RESET: Self = Self(Self::NONE | Self::REQUEST);

    const fn source(self) -> u32 {
        (self.0 >> Self::SOURCE) as u32
    }

    const fn pending(self) -> u8 {
        (self.0 >> Self::PENDING) as u8
    }

    const fn request(self) -> u8 {
        (self.0 >> 8) as u8
    }

    const fn current(self) -> u8 {
        self.0 as u8
    }

    /// What [`Icp::accept`] returns: the current priority in the highest byte, and the interrupt.
    const fn xirr(self) -> u32 {
        (self.current() as u32) << 24 | self.source()
    }

    const fn is_presented(self) -> bool {
        self.source() != 0
    }

    /// What is presented has been accepted: its priority is the current one.
    const fn accepted(self) -> Self {
        Self(self.0 & (Self::REFUSED | Self::REQUEST) | Self::NONE | self.pending() as u64)
    }

    /// A source is presented.
    const fn present(self, source: u32, priority: u8) -> Self {
        let kept = self.0 & (Self::REFUSED | Self::REQUEST | Self::CURRENT);
        Self(kept | (source as u64) << Self::SOURCE | (priority as u64) << Self::PENDING)
    }

    /// The source that goes back when another is presented.
    #[inline(always)] // A comparison or two.
    fn displaced(self) -> Option<u32> {
        Some(self.source()).filter(|source| !matches!(*source, 0 | IPI))
    }

    /// Presents the IPI that is asked for, if it is better than all else.
    #[inline(always)] // Part of two operations.
    fn present_request(self) -> (Self, Change) {
        let request = self.request();
        if request >= self.current() || request >= self.pending() {
            return (self, Change { now: self.is_presented(), ..Change::default() });
        }
        let change = Change { presented: true, now: true, rejected: self.displaced(), resend: false };
        (self.present(IPI, request), change)
    }

    /// Sets the current priority: what is no longer better goes back, what has become better comes.
    #[inline(always)] // The larger part of two operations.
    fn set_current(self, priority: u8) -> (Self, Change) {
        let resend = self.0 & Self::REFUSED != 0;
        let rest = self.0 & !(Self::CURRENT | Self::REFUSED) | u64::from(priority);
        let set = Self(rest);
        let goes = set.is_presented() && set.pending() >= priority;
        let rejected = if goes { set.displaced() } else { None };
        let kept = if goes { Self(rest & (Self::REQUEST | Self::CURRENT) | Self::NONE) } else { set };
        let (state, change) = kept.present_request();
        (state, Change { rejected: change.rejected.or(rejected), resend, ..change })
    }
}

/// What an operation leads to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use = "sources that were rejected have to be delivered again"]
pub struct Change {
    /// An interrupt was presented: the vCPU has to look.
    pub presented: bool,
    /// An interrupt is presented now.
    pub now: bool,
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
///
/// # Ordering
/// Who accepts an interrupt sees what its sender did before it asked for it: asking and delivering release, accepting acquires.
/// Whatever happens to the word in between is a read-modify-write, which continues the release sequence, so that setting a
/// priority need not be ordered by itself.
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
        Self { word: AtomicU64::new(State::RESET.0) }
    }

    /// Forgets everything: for a VM that starts, when nobody delivers.
    pub fn reset(&self) {
        self.word.store(State::RESET.0, Ordering::Relaxed);
    }

    /// Says whether an interrupt is presented. HOT: one load.
    #[inline(always)] // One load and a shift.
    pub fn is_presented(&self) -> bool {
        // Relaxed: it only decides whether to interrupt the guest, which accepts.
        State(self.word.load(Ordering::Relaxed)).is_presented()
    }

    /// Accepts what is presented (H_XIRR): returns the current priority in the highest byte, and the interrupt; zero there if
    /// there is none.
    #[inline(always)] // The light path of every interrupt, which calls no function.
    pub fn accept(&self) -> u32 {
        // Relaxed where there was none: nothing of a sender's is looked at then.
        self.update(Ordering::Acquire, |state| (state.is_presented().then(|| state.accepted()), state.xirr()))
    }

    /// Sets the current priority where that changes nothing else, which is nearly always: nothing is presented, and no IPI that is
    /// asked for is better. Says whether sources that were refused are to be offered again; `None`, with nothing done, where it
    /// takes [`Icp::set_priority`].
    #[inline(always)] // As above.
    pub fn set_quiet_priority(&self, priority: u8) -> Option<bool> {
        let mut found = self.word.load(Ordering::Relaxed);
        while !State(found).is_presented() && State(found).request() >= priority {
            let next = found & !(State::CURRENT | State::REFUSED) | u64::from(priority);
            match self.word.compare_exchange_weak(found, next, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Some(found & State::REFUSED != 0),
                Err(other) => found = other,
            }
        }
        None
    }

    /// Ends an interrupt (H_EOI): takes back the priority that [`Icp::accept`] has returned with it.
    #[inline(always)] // As above.
    pub fn end(&self, xirr: u32) -> Change {
        self.set_priority(Self::priority_of(xirr))
    }

    /// The priority that [`Icp::accept`] has returned.
    #[inline(always)] // A shift.
    pub const fn priority_of(xirr: u32) -> u8 {
        (xirr >> 24) as u8
    }

    /// Sets the current priority (H_CPPR).
    #[inline(always)] // As above.
    pub fn set_priority(&self, priority: u8) -> Change {
        self.update(Ordering::Relaxed, |state| {
            let (state, change) = state.set_current(priority);
            (Some(state), change)
        })
    }

    /// Asks for an IPI of this priority, or for none (H_IPI). One that is presented already stays so.
    #[inline(always)] // As above.
    pub fn set_request(&self, priority: u8) -> Change {
        self.update(Ordering::Release, |state| {
            let asked = State(state.0 & !State::REQUEST | u64::from(priority) << 8);
            let (state, change) = asked.present_request();
            (Some(state), change)
        })
    }

    /// Returns what [`Icp::accept`] would, and the priority of the IPI asked for (H_IPOLL).
    pub fn poll(&self) -> (u32, u8) {
        let state = State(self.word.load(Ordering::Acquire));
        (state.xirr(), state.request())
    }

    /// Presents a source if its priority is better than all else. What it displaces is in the answer; `None` if it was
    /// refused, which is remembered.
    pub(super) fn deliver(&self, source: u32, priority: u8) -> Option<Change> {
        self.update(Ordering::AcqRel, |state| {
            if priority >= state.current() || priority >= state.pending() {
                return (Some(State(state.0 | State::REFUSED)), None);
            }
            let rejected = state.displaced();
            let change = Change { presented: true, now: true, rejected, resend: false };
            (Some(state.present(source, priority)), Some(change))
        })
    }

    /// Says whether a source was refused since the current priority was last set.
    pub(super) fn has_refused(&self) -> bool {
        self.word.load(Ordering::Relaxed) & State::REFUSED != 0
    }

    /// Changes it to what `f` says, if it says so.
    #[inline(always)] // Each operation is little else.
    fn update<T>(&self, order: Ordering, f: impl Fn(State) -> (Option<State>, T)) -> T {
        let mut found = self.word.load(Ordering::Relaxed);
        loop {
            let (next, answer) = f(State(found));
            let Some(State(next)) = next else { return answer };
            match self.word.compare_exchange_weak(found, next, order, Ordering::Relaxed) {
                Ok(_) => return answer,
                Err(other) => found = other,
            }
        }
    }
}
