// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One port: what is passed on, what is offered, and to which buffers the hypervisor's counts belong.

use turnstile_console::data::{Output, Sink};
use turnstile_service_rt::{Characters, Sent};

use crate::outlets::Outlets;

/// Bytes that are passed on at once.
const SENT: usize = 16;
/// Bytes that come at once.
pub const TYPED: usize = 8;

/// No buffer.
pub const NONE: u64 = u64::MAX;

/// Makes a mark: the position of a buffer above a count.
pub const fn mark(position: u16, count: u64) -> u64 {
    (position as u64) << Sent::COUNT_BITS | part(count)
}

/// Returns what a mark has of a count.
pub const fn part(count: u64) -> u64 {
    count & ((1 << Sent::COUNT_BITS) - 1)
}

/// Returns the count that belongs to the buffer at a position, if it does.
pub fn counted(mark: u64, position: u16) -> Option<u64> {
    (mark != NONE && mark >> Sent::COUNT_BITS == position.into()).then_some(part(mark))
}

/// A port.
#[derive(Debug)]
pub struct Port {
    /// What the driver writes.
    pub output: Output,
    /// How its other side is.
    pub sent: Sent,
    /// The driver has what came up to here, by an earlier life, which may have said so or not.
    pub came: Option<u64>,
}

impl Port {
    /// Makes one that nobody has heard of.
    pub const fn new() -> Self {
        let sent = Sent { is_open: false, room: 0, count: 0 };
        Self { output: Output::resume(0), sent, came: None }
    }
}

/// The other side of a port as what a queue is written to.
pub struct Outlet<'a, O> {
    /// Those of all ports.
    pub outlets: &'a mut O,
    /// Which port it is.
    pub number: usize,
    /// How it is.
    pub sent: Sent,
}

impl<O: Outlets> Sink for Outlet<'_, O> {
    fn room(&self) -> usize {
        self.sent.room as usize
    }

    fn put(&mut self, bytes: &[u8]) {
        for bytes in bytes.chunks(SENT) {
            self.sent = self.outlets.send(self.number, bytes);
        }
    }

    fn begin(&mut self, position: u16) {
        let count = self.sent.count;
        self.outlets.keep_sent(self.number, mark(position, count));
    }
}

/// What is offered for a port.
#[derive(Clone, Copy, Debug, Default)]
pub struct Offered {
    bytes: [u8; TYPED],
    count: usize,
    /// How many were taken before them.
    pub position: u64,
}

impl Offered {
    /// Makes it of an event.
    pub fn new(typed: &Characters, position: u64) -> Self {
        let mut offered = Self { position, ..Self::default() };
        for (to, from) in offered.bytes.iter_mut().zip(typed.iter()) {
            *to = from;
            offered.count += 1;
        }
        offered
    }

    /// Returns the bytes.
    pub fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.count).unwrap_or_default()
    }

    /// Returns how many of them the driver has already, if it has all up to there.
    pub fn taken_by(&self, came: Option<u64>) -> usize {
        match came.map(|came| part(came.wrapping_sub(self.position))) {
            Some(came) if came <= TYPED as u64 => self.count.min(came as usize),
            _ => 0,
        }
    }
}
