// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The bytes on their way to a program at a port. Whoever puts some in never waits: the program has told for how many there is room.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How many bytes are taken out at once.
const PIECE: usize = 4096;

/// The bytes on their way to a program.
#[derive(Debug, Default)]
pub struct Outbox {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    bytes: VecDeque<u8>,
    /// Nothing more comes.
    is_closed: bool,
    /// All was written, or nothing can be.
    is_done: bool,
}

impl Outbox {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts bytes in.
    pub fn push(&self, bytes: &[u8]) {
        self.lock().bytes.extend(bytes);
        self.changed.notify_all();
    }

    /// Nothing more comes: the connection ends when all is written.
    pub fn close(&self) {
        self.lock().is_closed = true;
        self.changed.notify_all();
    }

    /// Waits until the connection has ended, but not longer than until `deadline`.
    pub fn finish(&self, deadline: Instant) {
        let mut state = self.lock();
        while !state.is_done {
            let left = deadline.saturating_duration_since(Instant::now());
            if left == Duration::ZERO {
                return;
            }
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Takes some bytes out; waits for some. `None` if there will be no more.
    pub fn next(&self) -> Option<Vec<u8>> {
        let mut state = self.lock();
        while state.bytes.is_empty() && !state.is_closed {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let count = state.bytes.len().min(PIECE);
        (count != 0).then(|| state.bytes.drain(..count).collect())
    }

    /// All was written, or nothing can be any more.
    pub fn end(&self) {
        self.lock().is_done = true;
        self.changed.notify_all();
    }
}
