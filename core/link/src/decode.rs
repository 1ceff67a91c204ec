// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From the line's bytes to messages and text.

use core::marker::PhantomData;

use serde::Deserialize;

use crate::message::{Down, Up};
use crate::{CRC, CRC_SIZE, MAX_STUFFED, START};

/// A direction of the line, and so the type of its messages.
pub trait Direction {
    /// The messages of this direction.
    type Message<'a>: Deserialize<'a>;
}

/// From the hypervisor to the tool.
#[derive(Debug, Clone, Copy)]
pub enum UpLink {}

/// From the tool to the hypervisor.
#[derive(Debug, Clone, Copy)]
pub enum DownLink {}

impl Direction for UpLink {
    type Message<'a> = Up<'a>;
}

impl Direction for DownLink {
    type Message<'a> = Down<'a>;
}

/// What a byte completed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Item<M> {
    /// A byte of plain text.
    Text(u8),
    /// A message.
    Message(M),
}

/// Where the reader is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// In plain text.
    Text,
    /// After a 0x00 that came in text, and so opens a frame.
    Opened,
    /// After a 0x00 that ended a frame, and opens the next one if the 0x00 between them was lost.
    Closed,
    /// After a 0x00 that may open a frame or may not: what was before it did not make sense.
    Unsure,
    /// In a frame, after its [`START`].
    Frame,
}

/// Reads one direction of the line, byte by byte.
///
/// A damaged frame is dropped and counted. After it the reader tries every 0x00 as the beginning of a
/// frame, so that the next frame is read even if the 0x00 between them was lost.
#[derive(Debug)]
pub struct Decoder<D> {
    state: State,
    buffer: [u8; MAX_STUFFED],
    length: usize,
    damaged: u32,
    unknown: u32,
    direction: PhantomData<D>,
}

impl<D: Direction> Default for Decoder<D> {
    fn default() -> Self {
        Self::new()
    }
}

impl<D: Direction> Decoder<D> {
    /// Makes a decoder that is in plain text.
    #[must_use]
    pub const fn new() -> Self {
        Decoder {
            state: State::Text,
            buffer: [0; MAX_STUFFED],
            length: 0,
            damaged: 0,
            unknown: 0,
            direction: PhantomData,
        }
    }

    /// Returns how many frames were damaged. One whose [`START`] became 0x00 is not: that is how
    /// [`crate::RESYNC`] looks.
    #[must_use]
    pub fn damaged(&self) -> u32 {
        self.damaged
    }

    /// Returns how many frames were undamaged but of no known message: the other side's version differs.
    #[must_use]
    pub fn unknown(&self) -> u32 {
        self.unknown
    }

    /// Takes the next byte and returns what it completes.
    pub fn push(&mut self, byte: u8) -> Option<Item<D::Message<'_>>> {
        match (self.state, byte) {
            (State::Frame, 0) => return self.close(),
            (State::Frame, _) => self.keep(byte),
            (State::Text | State::Closed, 0) => self.state = State::Opened,
            // An empty frame: RESYNC, or a 0x00 that came twice.
            (State::Opened | State::Unsure, 0) => self.state = State::Unsure,
            (State::Opened | State::Closed | State::Unsure, START) => {
                self.state = State::Frame;
                self.length = 0;
            }
            (state, _) => {
                // A frame whose START was changed, or whose 0x00 was: START is in no text.
                if state == State::Opened || byte == START {
                    self.damaged = self.damaged.saturating_add(1);
                }
                self.state = State::Text;
                return Some(Item::Text(byte));
            }
        }
        None
    }

    /// Keeps a byte of a frame; one that does not fit means that the frame's end was lost.
    fn keep(&mut self, byte: u8) {
        if let Some(place) = self.buffer.get_mut(self.length) {
            *place = byte;
            self.length += 1;
        } else {
            self.state = State::Text;
            self.damaged = self.damaged.saturating_add(1);
        }
    }

    /// Ends the frame in the buffer.
    fn close(&mut self) -> Option<Item<D::Message<'_>>> {
        let Some(length) = self.unstuff() else {
            self.state = State::Unsure;
            self.damaged = self.damaged.saturating_add(1);
            return None;
        };
        self.state = State::Closed;
        let message = self.buffer.get(..length).and_then(|payload| postcard::take_from_bytes(payload).ok());
        if let Some((message, [])) = message {
            return Some(Item::Message(message));
        }
        self.unknown = self.unknown.saturating_add(1);
        None
    }

    /// Removes the stuffing in place and returns the payload's length if the checksum matches.
    fn unstuff(&mut self) -> Option<usize> {
        let stuffed = self.buffer.get_mut(..self.length)?;
        let length = cobs::decode_in_place(stuffed).ok()?;
        let (payload, checksum) = stuffed.get(..length)?.split_last_chunk::<CRC_SIZE>()?;
        (CRC.checksum(payload).to_le_bytes() == *checksum).then_some(payload.len())
    }
}
