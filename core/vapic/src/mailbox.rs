// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What others posted to a vCPU, until its owner puts it into the IRR.
//!
//! A bit says that the vector was posted, once or often. Which words have any is in the attention word itself
//! ([`Reasons::MAILBOX`]): posting is two atomic operations, and the owner looks only where something is.

use core::array;

use turnstile_vm::attention::{Attention, Posted, Reasons};

use crate::sync::{AtomicU64, Ordering};

/// Words of 64 vectors.
const WORDS: usize = 4;

/// Interrupts posted to one vCPU, and which of them are level-triggered.
#[derive(Debug)]
pub struct Mailbox {
    posted: [AtomicU64; WORDS],
    /// Vectors that came level-triggered since the owner last looked. One that came both ways counts as level-triggered:
    /// its end is told to the I/O APIC once too often, which is harmless, instead of never.
    levels: [AtomicU64; WORDS],
}

impl Default for Mailbox {
    fn default() -> Self {
        Self::new()
    }
}

impl Mailbox {
    /// Makes an empty one.
    pub fn new() -> Self {
        let words = || array::from_fn(|_| AtomicU64::new(0));
        Self { posted: words(), levels: words() }
    }

    /// Posts an interrupt. Returns what the caller must do then.
    #[inline(always)] // On the path of every interprocessor interrupt: two atomic operations.
    pub fn post(&self, attention: &Attention, vector: u8, level: bool) -> Posted {
        let (at, bit) = (usize::from(vector >> 6), 1 << (vector & 63));
        if level {
            // Relaxed: the next operation releases it.
            self.levels[at].fetch_or(bit, Ordering::Relaxed);
        }
        // Release: pairs with the swap in `drain`, so that the owner sees what the poster did before. It must come before the
        // post to the attention word, which releases it, too.
        self.posted[at].fetch_or(bit, Ordering::Release);
        attention.post(Reasons::mailbox(vector))
    }

    /// Takes what was posted of 64 vectors, and which of them are level-triggered. For the owner, after it has taken the reason.
    #[inline(always)] // Part of `Lapic::drain`.
    pub(crate) fn take(&self, at: usize) -> (u64, u64) {
        let (Some(posted), Some(levels)) = (self.posted.get(at), self.levels.get(at)) else { return (0, 0) };
        // Acquire: pairs with `post`. What this misses was posted after the reason was taken, so another reason follows.
        let posted = posted.swap(0, Ordering::Acquire);
        // Relaxed: the swap has acquired what posters set before. This may take the mark of a later post of the same vector,
        // which then comes as an edge; that loses no end of interrupt, see `Lapic::latch`.
        let level = levels.load(Ordering::Relaxed) & posted;
        if level != 0 {
            levels.fetch_and(!level, Ordering::Relaxed);
        }
        (posted, level)
    }

    /// Hands each interrupt of the words that `reasons` name to `deliver`, with whether it is level-triggered, lowest first. For
    /// the owner, after it has taken these reasons.
    pub fn drain(&self, reasons: Reasons, mut deliver: impl FnMut(u8, bool)) {
        reasons.each_mailbox(|at| {
            let (mut posted, level) = self.take(at);
            while posted != 0 {
                let bit = posted & posted.wrapping_neg();
                deliver((at * 64) as u8 | posted.trailing_zeros() as u8, level & bit != 0);
                posted ^= bit;
            }
        });
    }

    /// Forgets everything, when a life or an INIT begins. Of what is posted meanwhile each is forgotten, or comes with its reason.
    pub fn clear(&self) {
        self.drain(Reasons::MAILBOX, |_, _| {});
    }
}
