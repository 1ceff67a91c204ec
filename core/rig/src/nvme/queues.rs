// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Submission and completion queues (section 4).

use std::collections::BTreeMap;

use turnstile_virtio::memory::Memory;

use crate::ram::Ram;
use crate::slot::Dma;

/// A command that was fetched.
#[derive(Clone, Debug)]
pub(super) struct Command {
    /// The submission queue.
    pub(super) queue: u16,
    /// Its words.
    pub(super) words: [u32; 16],
}

impl Command {
    pub(super) const fn operation(&self) -> u8 {
        self.words[0] as u8
    }

    pub(super) const fn wide(&self, at: usize) -> u64 {
        self.words[at] as u64 | (self.words[at + 1] as u64) << 32
    }
}

/// A submission queue: where it is, how many entries it has, what was fetched, where its completions come.
#[derive(Clone, Debug)]
pub(super) struct Submission {
    pub(super) at: u64,
    pub(super) entries: u16,
    pub(super) head: u16,
    pub(super) completions: u16,
}

/// A completion queue.
#[derive(Clone, Debug)]
pub(super) struct Completions {
    pub(super) at: u64,
    pub(super) entries: u16,
    pub(super) head: u16,
    pub(super) tail: u16,
    pub(super) phase: bool,
    pub(super) interrupts: bool,
    /// Completions that have no room.
    pub(super) owed: Vec<[u32; 4]>,
}

impl Completions {
    pub(super) const fn new(at: u64, entries: u16, interrupts: bool) -> Self {
        Self { at, entries, head: 0, tail: 0, phase: true, interrupts, owed: Vec::new() }
    }

    pub(super) const fn behind(&self, index: u16) -> u16 {
        (index + 1) % self.entries
    }
}

/// The queues of a controller.
#[derive(Debug, Default)]
pub(super) struct Queues {
    pub(super) submissions: BTreeMap<u16, Submission>,
    pub(super) completions: BTreeMap<u16, Completions>,
    /// Commands that were fetched and are not done.
    pub(super) fetched: Vec<Command>,
    /// The pin is high.
    pub(super) line: bool,
}

impl Queues {
    /// The controller is ready, with admin queues of so many entries at these addresses.
    pub(super) fn begin(&mut self, [submissions, completions]: [u16; 2], [submission, completion]: [u64; 2]) {
        let admin = Submission { at: submission, entries: submissions, head: 0, completions: 0 };
        self.submissions.insert(0, admin);
        self.completions.insert(0, Completions::new(completion, completions, true));
    }

    /// The last thing that it does before its reset ends: it fills the completion queues with entries that look new.
    pub(super) fn linger(&self, ram: &Ram) {
        for queue in self.completions.values() {
            for entry in 0..u64::from(queue.entries) {
                let _ = Dma(ram).write(queue.at + 16 * entry, &[0xff; 16]);
            }
        }
    }

    /// Fetches commands up to a new tail. False if there is no such queue or entry.
    pub(super) fn fetch(&mut self, ram: &Ram, number: u16, tail: u32) -> bool {
        let Some(queue) = self.submissions.get_mut(&number).filter(|queue| tail < queue.entries.into())
        else {
            return false;
        };
        while u32::from(queue.head) != tail {
            let mut bytes = [0; 64];
            if Dma(ram).read(queue.at + 64 * u64::from(queue.head), &mut bytes).is_err() {
                return false;
            }
            let mut words = bytes.as_chunks().0.iter().copied().map(u32::from_le_bytes);
            let words = [(); 16].map(|()| words.next().expect("there are 16"));
            self.fetched.push(Command { queue: number, words });
            queue.head = (queue.head + 1) % queue.entries;
        }
        true
    }

    /// The driver has taken completions up to a new head. False if there are not as many.
    pub(super) fn free(&mut self, number: u16, head: u32) -> bool {
        let Some(queue) = self.completions.get_mut(&number).filter(|queue| head < queue.entries.into())
        else {
            return false;
        };
        while u32::from(queue.head) != head {
            if queue.head == queue.tail {
                return false;
            }
            queue.head = queue.behind(queue.head);
        }
        true
    }
}
