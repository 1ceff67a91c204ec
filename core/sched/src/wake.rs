// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The wake list: vCPUs that others hand to a CPU, without a lock.
//!
//! A stack of links: a pusher puts its vCPU in front of what is there; the owner takes all at once. A vCPU is on one
//! list at a time, because exactly one CPU has it when it is pushed: its waker, or the home that gives it away.

use crate::sync::{AtomicU32, Ordering};

/// No vCPU.
const NONE: u32 = u32::MAX;

/// A list of vCPUs on their way to one CPU.
#[derive(Debug)]
pub struct WakeList {
    head: AtomicU32,
}

/// The place of a vCPU on a list: which one was pushed before it.
#[derive(Debug)]
pub struct Link(AtomicU32);

impl Default for Link {
    fn default() -> Self {
        Self(AtomicU32::new(NONE))
    }
}

impl Default for WakeList {
    fn default() -> Self {
        Self::new()
    }
}

impl WakeList {
    /// Makes an empty list.
    pub fn new() -> Self {
        Self { head: AtomicU32::new(NONE) }
    }

    /// Pushes `thread` with its `link`. True if the list was empty: then the owner must be
    /// interrupted; otherwise whoever made it non-empty does that.
    #[must_use = "an owner that is not interrupted does not look"]
    pub fn push(&self, thread: u32, link: &Link) -> bool {
        let mut head = self.head.load(Ordering::Relaxed);
        loop {
            link.0.store(head, Ordering::Relaxed);
            // Release: the owner that finds the vCPU sees its link, and the state that was left for it.
            match self.head.compare_exchange_weak(head, thread, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return head == NONE,
                Err(seen) => head = seen,
            }
        }
    }

    /// Says whether there is something to take. HOT: one load.
    #[inline] // One load of every visit to the scheduler.
    pub fn is_empty(&self) -> bool {
        // Relaxed: it only decides whether to take, which acquires.
        self.head.load(Ordering::Relaxed) == NONE
    }

    /// Takes all vCPUs and hands each to `receive`, the latest first. Only for the owner.
    pub fn take<'a>(&self, link: impl Fn(u32) -> &'a Link, mut receive: impl FnMut(u32)) {
        if self.is_empty() {
            return;
        }
        // Acquire: pairs with every push; each continues the release sequence of those before.
        let mut at = self.head.swap(NONE, Ordering::Acquire);
        while at != NONE {
            // Read first: once received, the vCPU may be pushed again, here or elsewhere.
            let next = link(at).0.load(Ordering::Relaxed);
            receive(at);
            at = next;
        }
    }
}
