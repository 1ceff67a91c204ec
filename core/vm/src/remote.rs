// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Remote operations: what only the owner of a vCPU's state may do, asked for by another vCPU.
//!
//! A guest may, for instance, read the redistributor registers of another vCPU, whose state the hypervisor keeps
//! with that vCPU's owner and in its list registers. It is rare, and the requester waits for the answer.
//!
//! Each vCPU has one cell. A requester draws a number at the target's cell; when it is its turn it fills the cell, posts
//! [`Reasons::REMOTE`], kicks, and waits. So several requesters to one target come in the order in which they asked: each
//! waits for those who were there before it, and for nobody who asks again and again.
//!
//! # No deadlock
//! While it waits, a requester must serve its own cell: two vCPUs asking each other would otherwise wait for
//! ever. That is what `relax` is for; it calls [`RemoteCell::serve`] on the requester's own cell, and pauses the
//! CPU. An operation, in turn, does not wait for anything: it must not make a remote call itself. So a cell that
//! is requested is served as long as its owner either enters its guest (the attention word stops it), waits in a
//! call (it relaxes), or idles. **Every idle loop serves its cell**: of a vCPU that is off, of one that waits for
//! an interrupt, of one whose VM is stopping and that has acknowledged it. Therefore a requester needs no way to
//! give up, and an operation is done exactly once.

use crate::attention::{Attention, Posted, Reasons};
use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// Nothing is requested: nobody uses the cell, or the requester whose turn it is fills it.
const FREE: u32 = 0;
/// The request is there.
const REQUESTED: u32 = 1;
/// The owner is at it.
const SERVED: u32 = 2;
/// The result is there; the requester will free the cell.
const DONE: u32 = 3;

/// An operation as it travels: up to four words, made by the requester and read by the owner.
pub type Payload = [u64; 4];

/// The place where one vCPU receives requests.
#[derive(Debug)]
pub struct RemoteCell {
    /// The number that the next requester draws.
    next: AtomicU32,
    /// The number of the requester whose turn it is.
    turn: AtomicU32,
    state: AtomicU32,
    payload: [AtomicU64; 4],
    result: AtomicU64,
}

impl Default for RemoteCell {
    fn default() -> Self {
        Self::new()
    }
}

impl RemoteCell {
    /// Makes a cell nobody uses.
    pub fn new() -> Self {
        let payload = core::array::from_fn(|_| AtomicU64::new(0));
        let [next, turn, state] = [0, 0, FREE].map(AtomicU32::new);
        Self { next, turn, state, payload, result: AtomicU64::new(0) }
    }

    /// Has the owner of this cell do an operation, and returns its result. `attention` is the owner's; `notify`
    /// kicks or wakes it as it is told; `relax` serves the caller's own cell (see the module) and pauses.
    /// Not for the owner itself: it does the operation directly.
    pub fn call<T: Into<Payload>>(
        &self,
        attention: &Attention,
        operation: T,
        notify: impl FnOnce(Posted),
        mut relax: impl FnMut(),
    ) -> u64 {
        // Relaxed: the number is all that matters. Before it can come round, there would have to be 2^32 requesters at once.
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        // Acquire: what is written below must not reach the cell before the former requester has read its
        // result; pairs with the store that ends its turn.
        while self.turn.load(Ordering::Acquire) != number {
            relax();
        }
        for (slot, word) in self.payload.iter().zip(operation.into()) {
            slot.store(word, Ordering::Relaxed);
        }
        // Release: the owner that sees REQUESTED sees the payload.
        self.state.store(REQUESTED, Ordering::Release);
        notify(attention.post(Reasons::REMOTE));
        // Acquire: pairs with the store of DONE; the result, and whatever else the owner wrote, is visible.
        while self.state.load(Ordering::Acquire) != DONE {
            relax();
        }
        let result = self.result.load(Ordering::Relaxed);
        self.state.store(FREE, Ordering::Relaxed);
        self.turn.store(number.wrapping_add(1), Ordering::Release);
        result
    }

    /// Does what is requested, if anything is; says whether it was. For the owner, after it has taken
    /// [`Reasons::REMOTE`], in its idle loop, and in `relax`. Cheap when nothing is requested: one load.
    pub fn serve<T: From<Payload>>(&self, operate: impl FnOnce(T) -> u64) -> bool {
        // Acquire: pairs with the store of REQUESTED.
        if self.state.load(Ordering::Acquire) != REQUESTED {
            return false;
        }
        // Relaxed: for this CPU alone, which would otherwise start over if `operate` came by here again.
        self.state.store(SERVED, Ordering::Relaxed);
        let payload = self.payload.each_ref().map(|slot| slot.load(Ordering::Relaxed));
        self.result.store(operate(T::from(payload)), Ordering::Relaxed);
        self.state.store(DONE, Ordering::Release);
        true
    }
}
