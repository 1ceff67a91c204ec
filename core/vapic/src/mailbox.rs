// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What others posted to a vCPU, until its owner puts it into the IRR.

use core::array;

use turnstile_vm::attention::{Attention, Posted};
use turnstile_vm::inbox::Inbox;

use crate::sync::{AtomicU32, Ordering};

/// Interrupts posted to one vCPU, and which of them are level-triggered.
#[derive(Debug)]
pub struct Mailbox {
    posted: Inbox<8>,
    /// Vectors that came level-triggered since the owner last looked. One that came both ways counts as level-triggered:
    /// its end is told to the I/O APIC once too often, which is harmless, instead of never.
    levels: [AtomicU32; 8],
}

impl Default for Mailbox {
    fn default() -> Self {
        Self::new()
    }
}

impl Mailbox {
    /// Makes an empty one.
    pub fn new() -> Self {
        Self { posted: Inbox::new(), levels: array::from_fn(|_| AtomicU32::new(0)) }
    }

    /// Posts an interrupt. Returns what the caller must do then.
    #[inline] // On the path of every interprocessor interrupt.
    pub fn post(&self, attention: &Attention, vector: u8, level: bool) -> Posted {
        if level {
            // Relaxed: the post to the inbox releases it.
            self.levels[usize::from(vector >> 5)].fetch_or(1 << (vector & 31), Ordering::Relaxed);
        }
        self.posted.post(attention, u32::from(vector))
    }

    /// Hands each interrupt to `deliver`, with whether it is level-triggered. For the owner, after it has taken
    /// [`Reasons::INBOX`](turnstile_vm::attention::Reasons::INBOX).
    #[inline] // Called in few places, and `deliver` is small.
    pub fn drain(&self, mut deliver: impl FnMut(u8, bool)) {
        self.posted.drain(|vector| {
            let level = &self.levels[(vector >> 5) as usize & 7];
            let bit = 1 << (vector & 31);
            // Relaxed: the inbox has acquired what its poster set before. This may take the mark of a later post of the
            // same vector, which then comes as an edge; that loses no end of interrupt, see `Lapic::latch`.
            let is_level = level.load(Ordering::Relaxed) & bit != 0;
            if is_level {
                level.fetch_and(!bit, Ordering::Relaxed);
            }
            deliver(vector as u8, is_level);
        });
    }

    /// Forgets everything, when a life or an INIT begins. Of what is posted meanwhile each is forgotten, or comes with its reason.
    pub fn clear(&self) {
        self.drain(|_, _| {});
    }
}
