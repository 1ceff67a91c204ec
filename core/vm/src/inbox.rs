// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The inbox: interrupts that others posted to a vCPU, one bit per INTID. SGIs have their bits in the attention word
//! itself ([`Reasons::SGIS`]).
//!
//! A bit says "look at this interrupt", no more: posted twice before the owner looks, it is one. What kind of
//! event it was, and whether it still stands, is in the interrupt controller's model. Lock-free: a post is two
//! atomic operations, whoever else posts.

use crate::attention::{Attention, Posted, Reasons};
use crate::sync::{AtomicU32, Ordering};

/// How many 32-bit words an inbox has by default: INTIDs 0 to 127 (16 SGIs, 16 PPIs, 96 SPIs).
pub const WORDS: usize = 4;

/// Interrupts posted to one vCPU.
#[derive(Debug)]
pub struct Inbox<const N: usize = WORDS> {
    words: [AtomicU32; N],
}

impl<const N: usize> Default for Inbox<N> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const N: usize> Inbox<N> {
    const FITS: () = assert!(N <= u32::BITS as usize, "a set of words has a bit each");

    /// Makes an empty inbox.
    pub fn new() -> Self {
        let () = Self::FITS;
        Self { words: core::array::from_fn(|_| AtomicU32::new(0)) }
    }

    /// Posts an interrupt and raises [`Reasons::INBOX`]. Returns what the caller must do then. An INTID that the inbox
    /// has no bit for is dropped: it comes from a table, never from a guest.
    #[inline] // On the path of every cross-CPU interrupt.
    pub fn post(&self, attention: &Attention, intid: u32) -> Posted {
        let Some(word) = self.words.get(intid as usize / 32) else { return Posted::Seen };
        // Release: pairs with the swap in `drain`, so that the owner sees what the poster did to the interrupt's
        // state before. It must come before the post to the attention word, which releases it, too.
        word.fetch_or(1 << (intid % 32), Ordering::Release);
        attention.post(Reasons::INBOX)
    }

    /// Hands each posted interrupt to `deliver`, lowest INTID first, and forgets it. For the owner, after it has
    /// taken [`Reasons::INBOX`].
    // Inlined: called in one place, and `deliver` is small.
    #[inline]
    pub fn drain(&self, mut deliver: impl FnMut(u32)) {
        // Which words have something, before any is taken: what `deliver` needs in registers has nothing to wait for.
        // Relaxed: what this misses was posted after the reason was taken, so another reason follows. An
        // empty word is not written, and its cache line stays shared with the posters.
        let has = |(at, word): (u32, &AtomicU32)| u32::from(word.load(Ordering::Relaxed) != 0) << at;
        let mut words = (0..u32::BITS).zip(&self.words).map(has).fold(0, |words, word| words | word);
        while words != 0 {
            let at = words.trailing_zeros();
            words &= words - 1;
            let Some(word) = self.words.get(at as usize) else { break };
            let mut posted = word.swap(0, Ordering::Acquire);
            while posted != 0 {
                deliver(at * 32 + posted.trailing_zeros());
                posted &= posted - 1;
            }
        }
    }

    /// Forgets everything posted: for a VM that is reset, when no poster runs.
    pub fn clear(&self) {
        self.drain(|_| {});
    }
}
