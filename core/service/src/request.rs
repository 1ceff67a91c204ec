// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Events that need an answer, of a service that has a CPU of its own: who has one hands it to that CPU, and waits.
//!
//! Each service has one place for it. A requester draws a number; when it is its turn it fills the place, posts
//! [`Pending::REQUEST`](crate::gate::Pending::REQUEST), and waits for the answer. So requesters come in the order in which they asked.
//! While it waits, a requester does what others wait for, as who waits to get inside does.
//!
//! The CPU that has taken the bit finds the event ([`Request::event`]), and always answers: an event that the service cannot handle has
//! the answer of an absent device. So no requester needs a way to give up.

use crate::abi::{Answer, Event, REGISTERS};

/// The atomics: the real ones, or the model checker's.
mod sync {
    #[cfg(not(loom))]
    pub(super) use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
    #[cfg(loom)]
    pub(super) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};
}

use sync::{AtomicU32, AtomicU64, Ordering};

/// Nobody waits for an answer: the place is free, or being filled.
const FREE: u32 = 0;
/// The event is there.
const ASKED: u32 = 1;
/// The answer is there.
const ANSWERED: u32 = 2;

/// How many words an answer has.
const WORDS: usize = 5;

/// The place of one service.
#[derive(Debug)]
pub struct Request {
    /// The number that the next requester draws.
    next: AtomicU32,
    /// The number of the requester whose turn it is.
    turn: AtomicU32,
    state: AtomicU32,
    event: [AtomicU64; REGISTERS],
    answer: [AtomicU64; WORDS],
}

impl Default for Request {
    fn default() -> Self {
        Self::new()
    }
}

impl Request {
    /// Makes a place that nobody uses.
    pub fn new() -> Self {
        let [next, turn, state] = [0, 0, FREE].map(AtomicU32::new);
        let event = core::array::from_fn(|_| AtomicU64::new(0));
        let answer = core::array::from_fn(|_| AtomicU64::new(0));
        Self { next, turn, state, event, answer }
    }

    /// Has the service's CPU handle an event, and returns the answer. `post` tells that CPU that there is one; `wait` does what others
    /// wait for, and lets time pass.
    pub fn ask(&self, event: &Event, post: impl FnOnce(), mut wait: impl FnMut()) -> Answer {
        // Relaxed: the number is all that matters. Before it can come round, there would have to be 2^32 requesters at once.
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        // Acquire: what is written below does not reach the place before the former requester has read its answer.
        while self.turn.load(Ordering::Acquire) != number {
            wait();
        }
        for (place, word) in self.event.iter().zip(event.0) {
            place.store(word, Ordering::Relaxed);
        }
        // Release: who finds this finds the event.
        self.state.store(ASKED, Ordering::Release);
        post();
        // Acquire: the answer, and whatever else the service's CPU wrote, is visible.
        while self.state.load(Ordering::Acquire) != ANSWERED {
            wait();
        }
        let [value, lines, count, first, second] =
            self.answer.each_ref().map(|word| word.load(Ordering::Relaxed));
        self.state.store(FREE, Ordering::Relaxed);
        self.turn.store(number.wrapping_add(1), Ordering::Release);
        Answer { value, lines, count, words: [first, second] }
    }

    /// Returns the event that waits for an answer, if one does; for the service's CPU, which [answers](Request::answer) it.
    pub fn event(&self) -> Option<Event> {
        // Acquire: pairs with the store of ASKED.
        (self.state.load(Ordering::Acquire) == ASKED)
            .then(|| Event(self.event.each_ref().map(|word| word.load(Ordering::Relaxed))))
    }

    /// Answers the event.
    pub fn answer(&self, answer: &Answer) {
        let Answer { value, lines, count, words: [first, second] } = *answer;
        for (place, word) in self.answer.iter().zip([value, lines, count, first, second]) {
            place.store(word, Ordering::Relaxed);
        }
        // Release: who finds this finds the answer.
        self.state.store(ANSWERED, Ordering::Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::abi::Kind;

    #[test]
    fn an_event_gets_its_own_answer() {
        let request = Request::new();
        assert_eq!(request.event(), None);
        for number in [7, 8] {
            let event = Event::new(Kind::Read, [1, 2, 3, 4, number]);
            let expected = Answer { value: number, lines: 2, count: 3, words: [4, 5] };
            let mut posted = false;
            let answer = request.ask(
                &event,
                || posted = true,
                || {
                    assert_eq!(request.event(), Some(event));
                    request.answer(&expected);
                    assert_eq!(request.event(), None, "once");
                },
            );
            assert_eq!(answer, expected);
            assert!(posted);
        }
        assert_eq!(request.event(), None);
    }
}
