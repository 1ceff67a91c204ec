// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the pairs of queues of a member have to send. A member has one turn among the others, however many pairs it has: its pairs share that.

use crate::port::PAIRS;

/// Pairs whose numbers are even: those whose queues have the first two bits of doorbells.
const EVEN: u8 = 0x55;

const _: () = assert!(PAIRS <= 8, "each pair has a bit");

/// The pairs of a member.
#[derive(Clone, Copy, Debug)]
pub struct Pairs {
    /// How many its driver knows of.
    count: u16,
    /// A bit for each that has something to send, perhaps.
    ready: u8,
    /// A bit for each that has, and waits for a receiver.
    held: u8,
    /// The pair that is next, if it is ready.
    next: u32,
}

impl Pairs {
    /// One pair, of which nothing is written down here.
    pub const ONE: Self = Self::new(1);

    /// So many pairs.
    pub const fn new(count: u16) -> Self {
        Self { count, ready: 0, held: 0, next: 0 }
    }

    /// How many there are.
    pub const fn count(&self) -> u16 {
        self.count
    }

    /// One of the even pairs, or of the odd ones, has something to send: the bits of doorbells do not say which.
    pub const fn ring(&mut self, is_odd: bool) {
        let all = ((1_u32 << self.count) - 1) as u8;
        self.ready |= all & if is_odd { !EVEN } else { EVEN };
    }

    /// Returns the pair whose turn it is.
    pub const fn turn(&mut self) -> Option<usize> {
        if self.ready == 0 {
            return None;
        }
        let behind = self.ready >> self.next << self.next;
        let pair = if behind == 0 { self.ready } else { behind }.trailing_zeros();
        self.next = (pair + 1) % u8::BITS;
        Some(pair as usize)
    }

    /// A pair has nothing more to send.
    pub const fn done(&mut self, pair: usize) {
        self.ready &= !(1 << pair);
    }

    /// A pair waits for a receiver.
    pub const fn hold(&mut self, pair: usize) {
        self.ready &= !(1 << pair);
        self.held |= 1 << pair;
    }

    /// Those that wait go on.
    pub const fn resume(&mut self) {
        self.ready |= core::mem::replace(&mut self.held, 0);
    }

    /// What a pair had to send is of no use.
    pub const fn stop(&mut self, pair: usize) {
        self.ready &= !(1 << pair);
        self.held &= !(1 << pair);
    }

    /// Says whether none is ready.
    pub const fn is_idle(&self) -> bool {
        self.ready == 0
    }
}
