// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A submission queue and its completion queue (NVM Express 1.4, section 4.1).
//!
//! The caller has fewer commands under way than the queues have entries. What the controller has not fetched is under way and lies together, so the
//! submission queue does not run over, and what the controller says of its head is of no use.

use turnstile_virtio::driver::pci::Function;
use turnstile_virtio::memory::{Memory, Outside};

use super::command::{self, Command};
use super::registers;
use crate::drive::Failure;

/// How many bytes a completion has.
const COMPLETION: u64 = 16;
/// Where its status and its phase tag are.
const STATUS: u64 = 14;

/// A command that is finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Completion {
    /// Its tag: nothing says yet that there was such a command.
    pub(super) tag: u16,
    /// What became of it: zero if it was done (section 4.6.1).
    pub(super) status: u16,
}

/// Where a pair of queues is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Places {
    /// Its number: that of both queues.
    pub(super) number: u16,
    /// How many entries each of them has.
    pub(super) entries: u16,
    pub(super) submission: u64,
    pub(super) completion: u64,
    /// The doorbells: of the tail, of the head.
    pub(super) bells: [u64; 2],
}

/// A pair of queues.
#[derive(Debug)]
pub(super) struct Pair {
    places: Places,
    /// Where the next command comes.
    tail: u16,
    /// The tail that the controller knows.
    rung: u16,
    /// Where the next completion comes.
    head: u16,
    /// The head that the controller knows.
    freed: u16,
    /// What the phase tag of that completion will be.
    phase: bool,
}

impl Pair {
    /// Queues that are nowhere.
    pub(super) const NEW: Self = Self {
        places: Places { number: 0, entries: 1, submission: 0, completion: 0, bells: [0; 2] },
        tail: 0,
        rung: 0,
        head: 0,
        freed: 0,
        phase: true,
    };

    /// Makes them empty queues, in memory, too, before the controller is told of them.
    pub(super) fn begin<M: Memory>(&mut self, memory: &M, places: Places) -> Result<(), Outside> {
        *self = Self { places, ..Self::NEW };
        for entry in 0..u64::from(places.entries) {
            memory.write(places.completion + COMPLETION * entry, &[0; COMPLETION as usize])?;
        }
        Ok(())
    }

    /// Where they are.
    pub(super) const fn places(&self) -> &Places {
        &self.places
    }

    /// Adds a command, which the controller sees behind [`Pair::ring`].
    #[inline(always)] // On the path of every command.
    pub(super) fn submit<M: Memory>(
        &mut self,
        memory: &M,
        tag: u16,
        command: Command,
    ) -> Result<(), Outside> {
        let at = self.places.submission + command::LENGTH * u64::from(self.tail);
        let [first, second] = command.to_bytes(tag);
        memory.write(at, &first)?;
        memory.write(at + command::HALF as u64, &second)?;
        self.tail = self.behind(self.tail);
        Ok(())
    }

    /// Tells the controller of new commands.
    pub(super) fn ring<F: Function>(&mut self, function: &F) {
        // Room for their completions first.
        self.free(function);
        if self.rung != self.tail {
            let [bell, _] = self.places.bells;
            registers::ring(function, bell, self.tail);
            self.rung = self.tail;
        }
    }

    /// Tells the controller which completions were taken. A pin is low if these are all.
    pub(super) fn free<F: Function>(&mut self, function: &F) {
        if self.freed != self.head {
            let [_, bell] = self.places.bells;
            registers::ring(function, bell, self.head);
            self.freed = self.head;
        }
    }

    /// Says whether there is a completion to take.
    pub(super) fn is_waiting<M: Memory>(&self, memory: &M) -> Result<bool, Outside> {
        // Acquire: what the controller wrote before the phase tag is there, the entry and the data that it is about.
        let status = memory.load(self.next() + STATUS)?;
        Ok((status & 1 != 0) == self.phase)
    }

    /// Takes the next completion. `None` if there is none now.
    pub(super) fn take<M: Memory>(&mut self, memory: &M) -> Result<Option<Completion>, Failure> {
        if !self.is_waiting(memory)? {
            return Ok(None);
        }
        let [_, rest] = memory.read_words(self.next())?;
        let (queue, tag, status) = ((rest >> 16) as u16, (rest >> 32) as u16, (rest >> 49) as u16);
        if queue != self.places.number {
            return Err(Failure::Finished { queue, tag });
        }
        self.head = self.behind(self.head);
        self.phase ^= self.head == 0;
        Ok(Some(Completion { tag, status }))
    }

    /// Where the next completion comes.
    const fn next(&self) -> u64 {
        self.places.completion + COMPLETION * self.head as u64
    }

    /// The entry behind another one.
    const fn behind(&self, index: u16) -> u16 {
        if index + 1 >= self.places.entries { 0 } else { index + 1 }
    }
}
