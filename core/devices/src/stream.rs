// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A stream of bytes between a device of a guest and somebody at its other side, who comes and goes: with flow control in both
//! directions, and counts by which a device that is killed knows how far it came.

use heapless::Deque;

use crate::{BACKLOG, Credit};

/// How many bytes a device is offered at once.
pub(crate) const OFFERED: usize = 8;

/// What a device is offered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offer {
    /// The bytes.
    pub bytes: [u8; OFFERED],
    /// How many there are: with none, the other side has come, gone, or has room again.
    pub count: usize,
    /// How many the device has taken before them.
    pub position: u64,
}

/// What the other side is to be told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// For so many bytes more there is room.
    pub room: Option<u16>,
    /// The device knows that the other side has gone: somebody may come again.
    pub closed: bool,
}

/// A stream.
#[derive(Debug, Default)]
pub struct Stream {
    /// What waits for the device.
    waiting: Deque<u8, BACKLOG>,
    credit: Credit,
    /// How many bytes the device has taken, and how many it has sent.
    taken: u64,
    sent: u64,
    /// For how many more of those there is room.
    room: u16,
    /// Somebody is at the other side.
    is_open: bool,
    /// They have gone, and the device was not told.
    is_closing: bool,
    /// The device is to look.
    has_news: bool,
    /// It did not take what it was offered.
    refused: bool,
}

impl Stream {
    /// Makes one with nobody at its other side.
    pub const fn new() -> Self {
        Self {
            waiting: Deque::new(),
            credit: Credit::new(),
            taken: 0,
            sent: 0,
            room: 0,
            is_open: false,
            is_closing: false,
            has_news: false,
            refused: false,
        }
    }

    /// Somebody comes, who has so much room. Returns for how many bytes there is room on this side; none if somebody is there, or the device
    /// does not know yet that they have gone.
    pub fn open(&mut self, room: u16) -> Option<u16> {
        if self.is_open || self.is_closing {
            return None;
        }
        (self.is_open, self.has_news, self.refused, self.room) = (true, true, false, room);
        self.credit = Credit::new();
        Some(BACKLOG as u16)
    }

    /// They go: what waits is gone, too. Returns what they are told at once.
    pub fn close(&mut self) -> Told {
        if !self.is_open {
            return Told { closed: !self.is_closing, room: None };
        }
        self.waiting.clear();
        (self.is_open, self.is_closing, self.has_news) = (false, true, true);
        Told::default()
    }

    /// The guest is gone, and with it all that waits, and who is there. Returns what they are told at once.
    pub fn end(&mut self) -> Told {
        let closed = self.is_closing;
        *self = Self { taken: self.taken, sent: self.sent, ..Self::new() };
        Told { closed, room: None }
    }

    /// Takes bytes for the device. Who sends to nobody, or more than there is room for, loses them.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.is_open {
            bytes.iter().for_each(|byte| _ = self.waiting.push_back(*byte));
            self.credit.arrived(bytes.len());
        }
    }

    /// There is room for more of what the device sends.
    pub fn add_room(&mut self, bytes: u16) {
        if self.is_open {
            (self.room, self.has_news) = (self.room.saturating_add(bytes), true);
        }
    }

    /// The device sends so many bytes. Returns how many are taken: all, if nobody is there to have them.
    pub fn send(&mut self, bytes: usize) -> usize {
        let taken = if self.is_open { bytes.min(self.room.into()) } else { bytes };
        self.sent = self.sent.wrapping_add(taken as u64);
        if self.is_open {
            self.room -= taken as u16;
        }
        taken
    }

    /// Says whether somebody is there, for how many bytes there is room, and how many were sent.
    pub const fn state(&self) -> (bool, u64, u64) {
        let room = if self.is_open { self.room as u64 } else { u64::MAX };
        (self.is_open, room, self.sent)
    }

    /// Says whether the device is to be offered something.
    pub fn has_offer(&self) -> bool {
        self.has_news || !self.refused && !self.waiting.is_empty()
    }

    /// Returns what the device is offered, if it is. News are told by that.
    pub fn offer(&mut self) -> Option<Offer> {
        if !self.has_offer() {
            return None;
        }
        let mut offer = Offer { position: self.taken, ..Offer::default() };
        if !core::mem::take(&mut self.has_news) {
            for (place, byte) in offer.bytes.iter_mut().zip(self.waiting.iter()) {
                *place = *byte;
                offer.count += 1;
            }
        }
        Some(offer)
    }

    /// The device has handled an offer of so many bytes, and taken these of them.
    pub fn took(&mut self, offered: usize, taken: usize) -> Told {
        for _ in 0..taken {
            self.waiting.pop_front();
        }
        self.taken = self.taken.wrapping_add(taken as u64);
        self.refused |= offered != 0 && taken == 0;
        // What happened meanwhile it does not know.
        let closed = self.is_closing && !self.has_news;
        self.is_closing &= !closed;
        Told { closed, room: if self.is_open { self.credit.freed(self.waiting.len()) } else { None } }
    }

    /// The device has room again for what it did not take.
    pub const fn offer_again(&mut self) {
        self.refused = false;
    }
}
