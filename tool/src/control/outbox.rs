// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The lines that are on their way to a client. Whoever puts events in never waits: a client that does not read misses them, and is
//! told how much it missed when it reads again.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::event::Event;

/// How many bytes may wait for a client.
const LIMIT: usize = 1 << 20;

/// The lines of one client.
#[derive(Debug, Default)]
pub struct Outbox {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    lines: VecDeque<String>,
    bytes: usize,
    /// How many bytes of events did not get in since the last line.
    lost: u64,
    closed: bool,
    /// Whether a line was taken out and is being written.
    writing: bool,
}

impl State {
    fn push(&mut self, line: String) {
        self.bytes += line.len();
        self.lines.push_back(line);
    }

    /// Puts in what tells of lost events, if some were.
    fn tell_loss(&mut self) {
        let bytes = std::mem::take(&mut self.lost);
        if bytes > 0 {
            self.push(serde_json::to_string(&Event::Lost { bytes }).unwrap_or_default());
        }
    }
}

impl Outbox {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts an answer in. There is one for each request: [`Outbox::wait_for_room`] keeps them few.
    pub fn answer(&self, line: String) {
        self.lock().push(line);
        self.changed.notify_all();
    }

    /// Puts an event in if there is room; false if the client has left.
    pub fn offer(&self, line: &str) -> bool {
        let mut state = self.lock();
        if state.bytes + line.len() > LIMIT || (state.lost > 0 && state.bytes > LIMIT / 2) {
            state.lost += line.len() as u64;
        } else if !state.closed {
            state.tell_loss();
            state.push(line.to_owned());
        }
        self.changed.notify_all();
        !state.closed
    }

    /// Whether the client is still there.
    pub fn is_open(&self) -> bool {
        !self.lock().closed
    }

    /// Waits until there is room; false if nothing will be read any more.
    pub fn wait_for_room(&self) -> bool {
        let mut state = self.lock();
        while state.bytes > LIMIT && !state.closed {
            state = self.wait(state);
        }
        !state.closed
    }

    /// Takes the next line out; waits for one. `None` when there will be no more.
    pub fn next(&self) -> Option<String> {
        let mut state = self.lock();
        state.writing = false;
        self.changed.notify_all();
        loop {
            if state.lines.is_empty() {
                state.tell_loss();
            }
            if let Some(line) = state.lines.pop_front() {
                state.bytes -= line.len();
                state.writing = true;
                return Some(line);
            }
            if state.closed {
                return None;
            }
            state = self.wait(state);
        }
    }

    /// Lets no more in, and those go who wait.
    pub fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_all();
    }

    /// Waits until all is written, but not longer than until `deadline`.
    pub fn flush(&self, deadline: Instant) {
        let mut state = self.lock();
        while (!state.lines.is_empty() || state.writing) && !state.closed {
            let left = deadline.saturating_duration_since(Instant::now());
            if left == Duration::ZERO {
                return;
            }
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_does_not_read_misses_events_and_nobody_waits() {
        let outbox = Outbox::default();
        let line = "x".repeat(1000);
        for _ in 0..3 * LIMIT / 1000 {
            assert!(outbox.offer(&line));
        }
        let kept = LIMIT / 1000;
        assert!((0..kept).all(|_| outbox.next().is_some_and(|next| next == line)));
        let lost = (3 * LIMIT / 1000 - kept) * 1000;
        assert_eq!(outbox.next().unwrap(), format!(r#"{{"event":"lost","bytes":{lost}}}"#));
        assert!(outbox.offer(&line));
        assert_eq!(outbox.next().unwrap(), line);
    }

    #[test]
    fn the_loss_is_told_where_it_was() {
        let outbox = Outbox::default();
        let line = "x".repeat(LIMIT / 2);
        assert!(outbox.offer(&line) && outbox.offer(&line));
        assert!(outbox.offer("lost"));
        outbox.next();
        assert!(outbox.offer("here"));
        outbox.next();
        assert_eq!(outbox.next().unwrap(), r#"{"event":"lost","bytes":4}"#);
        assert_eq!(outbox.next().unwrap(), "here");
    }

    #[test]
    fn a_client_that_has_left_gets_nothing_more() {
        let outbox = Outbox::default();
        outbox.answer("last".into());
        outbox.close();
        assert!(!outbox.offer("event") && !outbox.wait_for_room());
        assert_eq!((outbox.next().as_deref(), outbox.next()), (Some("last"), None));
    }
}
