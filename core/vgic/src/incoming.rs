// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where the senders of a GICv2's SGIs wait to be taken by their target.

use crate::sync::{AtomicU8, Ordering};

/// The senders of one vCPU's SGIs that it has not taken yet. A cache line of its own: the senders write it.
#[repr(align(64))]
pub(crate) struct Incoming(pub(crate) [AtomicU8; 16]);

impl Incoming {
    pub(crate) fn new() -> Self {
        Self(core::array::from_fn(|_| AtomicU8::new(0)))
    }

    pub(crate) fn clear(&self) {
        self.0.iter().for_each(|senders| senders.store(0, Ordering::Relaxed));
    }

    /// Takes the senders of an SGI.
    #[inline] // Hot: the receiving half of every SGI.
    pub(crate) fn take(&self, intid: u32) -> u8 {
        let senders = &self.0[intid as usize & 15];
        // Relaxed: what this misses is announced by a post still to come.
        if senders.load(Ordering::Relaxed) == 0 { 0 } else { senders.swap(0, Ordering::Acquire) }
    }
}
