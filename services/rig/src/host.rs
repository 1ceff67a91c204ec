// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A hypervisor with one VM and a service of it.

use turnstile_rig::{Computer, Ram};
use turnstile_service_rt::{AGAIN, Answer, Doorbells, Event};

use crate::{Board, Kills};

/// The service that a test is about, and what it reaches beside the [`Board`].
pub trait Subject {
    /// Where it is rung.
    const DOORBELLS: Doorbells;

    /// Begins a life with its first event. Of the life before, `self` has what is outside the service alone.
    fn begin(&mut self, board: &Board, kept: bool, bars: u64) -> Answer;

    /// Handles an event.
    fn event(&mut self, board: &Board, event: Event) -> Answer;

    /// Takes note of what else the lines of an answer say.
    fn answered(&mut self, _lines: u64) {}
}

/// A hypervisor with one VM and its service, which it starts anew whenever it is killed.
pub struct Host<S> {
    /// What calls reach.
    pub board: Board,
    /// The service.
    pub subject: S,
    /// The service wants another event.
    pub again: bool,
    /// When it is killed.
    pub kills: Kills,
}

impl<S: Subject> Host<S> {
    /// The VM has started. The service is killed after `left` steps.
    pub fn new(board: Board, subject: S, left: Option<u64>) -> Self {
        let kills = Kills::new(board.fuse.clone(), left);
        let mut host = Self { board, subject, again: false, kills };
        host.begin(false);
        host
    }

    /// Begins a life of the service, until one gets so far: with what is `kept`, or because the VM starts.
    pub fn begin(&mut self, mut kept: bool) {
        let bars = self.board.bars();
        while self.enter(|subject, board| subject.begin(board, kept, bars)).is_none() {
            kept = true;
        }
    }

    /// Hands an event to the service until it has answered.
    pub fn event(&mut self, event: Event) -> u64 {
        loop {
            if let Some(value) = self.enter(|subject, board| subject.event(board, event)) {
                return value;
            }
            self.begin(true);
        }
    }

    /// Lets the service do something. `None` if it was killed.
    fn enter(&mut self, act: impl FnOnce(&mut S, &Board) -> Answer) -> Option<u64> {
        self.kills.arm();
        let Answer { value, lines, .. } = act(&mut self.subject, &self.board);
        if self.kills.is_dead() {
            return None;
        }
        self.again |= lines & AGAIN != 0;
        self.subject.answered(lines);
        Some(value)
    }

    /// Kills it between two events.
    pub fn kill(&mut self) {
        self.kills.deaths += 1;
        self.begin(true);
    }
}

impl<S: Subject> Computer for Host<S> {
    fn read(&mut self, address: u64, size: u64) -> u64 {
        let event = self.board.load(address, size);
        event.map_or(u64::MAX >> (64 - 8 * size), |event| self.event(event))
    }

    fn write(&mut self, address: u64, size: u64, value: u64) {
        if let Some(event) = self.board.store(S::DOORBELLS, address, size, value) {
            self.event(event);
        }
    }

    fn ram(&self) -> &Ram {
        &self.board.ram
    }

    fn messages(&mut self) -> Vec<u32> {
        self.board.messages.take()
    }

    fn wait(&mut self) -> bool {
        let again = std::mem::take(&mut self.again);
        if again {
            self.event(Event::Alarm(0));
        }
        again
    }
}
