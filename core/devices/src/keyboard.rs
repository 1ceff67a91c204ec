// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is typed for a console whose device may be killed: with flow control, a count by which the device knows how far it came, and the terminal's size.

use heapless::Deque;

use crate::stream::OFFERED;
use crate::{BACKLOG, Credit, Offer};

/// A keyboard, and the terminal that it belongs to.
#[derive(Debug, Default)]
pub struct Keyboard {
    /// What waits, until the device takes it.
    waiting: Deque<u8, BACKLOG>,
    credit: Credit,
    /// How many characters the device has taken, in all its lives.
    taken: u64,
    /// The size of the terminal; 0 if nobody has said it.
    size: u64,
    /// The device was not told that size yet.
    is_resized: bool,
}

impl Keyboard {
    /// The terminal has another size.
    pub const fn resize(&mut self, size: u64) {
        (self.size, self.is_resized) = (size, true);
    }

    /// The guest begins anew: its device is told the size again.
    pub const fn begin(&mut self) {
        self.is_resized = self.size != 0;
    }

    /// Characters are typed. Who sends more than there is room for loses them.
    pub fn push(&mut self, characters: &[u8]) {
        characters.iter().for_each(|character| _ = self.waiting.push_back(*character));
        self.credit.arrived(characters.len());
    }

    /// Returns how many characters may be typed if none are under way.
    pub fn room(&self) -> u16 {
        self.credit.room()
    }

    /// What was typed and not taken is gone. Returns for how many characters more there is room, if that is to be told.
    pub fn clear(&mut self) -> Option<u16> {
        self.waiting.clear();
        self.credit.freed(0)
    }

    /// Returns what the device is offered, perhaps nothing, the terminal's size, and whether that is news.
    pub fn offer(&mut self) -> (Offer, u64, bool) {
        let mut bytes = [0; OFFERED];
        bytes.iter_mut().zip(self.waiting.iter()).for_each(|(place, byte)| *place = *byte);
        let offer = Offer { bytes, count: self.waiting.len().min(OFFERED), position: self.taken };
        (offer, self.size, core::mem::take(&mut self.is_resized))
    }

    /// The device has taken so much of what it was offered. Returns for how many characters more there is room, if that is to be told, and whether there is
    /// more for the device: perhaps it has room, or the terminal has got another size meanwhile.
    pub fn took(&mut self, count: u64) -> (Option<u16>, bool) {
        for _ in 0..count {
            self.waiting.pop_front();
        }
        self.taken = self.taken.wrapping_add(count);
        (self.credit.freed(self.waiting.len()), count != 0 || self.is_resized)
    }
}
