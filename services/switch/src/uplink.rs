// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The uplink: a network card of the machine behind a port of the switch.
//!
//! The port is like a member's, and its driver is here: two rings in the memory that the card reaches, too. A buffer that the switch has filled
//! goes to the card as it is, and a packet that has come is sent by the port from the buffer where it lies. So a packet is copied once here, too,
//! between the buffer and a member's memory.

use turnstile_nic::card::{Bus, Card, Failure, HEADROOM};
use turnstile_nic::ring::{self, Ring};
use turnstile_virtio::memory::Memory;
use turnstile_virtio::ring::{Buffer, Layout, Options};

/// How many buffers each way.
pub const BUFFERS: usize = 128;
/// How many bytes each has.
const BUFFER: u64 = 2048;
/// How many bytes the largest packet has: 1500, with the Ethernet header and a VLAN tag.
pub const LONGEST: u32 = 1518;
/// Of an Ethernet header: who sends less sends no packet.
const SHORTEST: u32 = 14;
/// With fewer buffers left for the switch to fill, it is worth an interrupt when the card has sent one.
const FEW: u16 = BUFFERS as u16 / 2;

/// What a turn has brought.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Turn {
    /// The port has packets to send.
    pub sends: bool,
    /// The port has more buffers to fill, for which somebody waits.
    pub refilled: bool,
    /// The card has sent or received something.
    pub moved: bool,
    /// There is more, for which no interrupt comes.
    pub again: bool,
    /// Another turn is due at this time, though nothing comes.
    pub until: Option<u64>,
}

/// A card, and the driver of its port.
#[derive(Debug)]
pub struct Uplink<C> {
    card: C,
    /// Buffers that the switch fills, and that come here then.
    filled: Ring<BUFFERS>,
    /// Packets that have come, and that the switch takes.
    came: Ring<BUFFERS>,
    /// Where buffers are: those of `filled`, and behind them those of `came`.
    buffers: u64,
    /// The card has interrupted, and nothing has come yet.
    asked: bool,
}

impl<C: Card> Uplink<C> {
    /// How many bytes of memory it needs, wherever that begins.
    pub const BYTES: u64 = ring::BYTES + C::BYTES + 2 * ring::BYTES + 2 * BUFFERS as u64 * BUFFER;

    /// Without a card.
    pub const NEW: Self = Self { card: C::NEW, filled: Ring::NEW, came: Ring::NEW, buffers: 0, asked: false };

    /// Resets the card: it touches no memory then.
    pub fn reset<B: Bus>(bus: &B) -> Result<(), Failure> {
        C::reset(bus)
    }

    /// Begins with the card, and returns where the port's rings are: what it receives, what it sends. The memory begins at `first`; the port
    /// reaches it as `memory`.
    pub fn begin<B: Bus, M: Memory>(
        &mut self,
        bus: &B,
        memory: &M,
        (first, size): (u64, u64),
    ) -> Result<[(Layout, Options); 2], Failure> {
        let at = first.checked_next_multiple_of(ring::BYTES).filter(|_| size >= Self::BYTES);
        let at = at.ok_or(Failure::Memory)?;
        let options = Options::default();
        let rings = at + C::BYTES;
        let layout = |at| Ring::<BUFFERS>::layout(memory, BUFFERS as u16, at);
        let layouts = [layout(rings)?, layout(rings + ring::BYTES)?];
        let [filled, came] = layouts;
        self.filled.begin(memory, filled, options)?;
        self.came.begin(memory, came, options)?;
        (self.buffers, self.asked) = (rings + 2 * ring::BYTES, false);
        self.card.begin(bus, at)?;
        self.fill(bus, memory)?;
        Ok(layouts.map(|layout| (layout, options)))
    }

    /// Gives all buffers to those who fill them.
    fn fill<B: Bus, M: Memory>(&mut self, bus: &B, memory: &M) -> Result<(), Failure> {
        for number in 0..BUFFERS as u16 {
            self.empty(memory, number)?;
            // A card may have room for fewer.
            if self.card.room_to_receive() != 0 {
                self.offer(bus, number)?;
            }
        }
        self.filled.publish(memory)?;
        self.card.flush(bus)?;
        self.card.arm(bus, false)?;
        Ok(())
    }

    /// Where a buffer is that the switch fills.
    fn filled_at(&self, number: u16) -> u64 {
        self.buffers + u64::from(number) * BUFFER
    }

    /// Where a buffer is that the card fills.
    fn came_at(&self, number: u16) -> u64 {
        self.filled_at(number) + BUFFERS as u64 * BUFFER
    }

    /// The switch may fill a buffer.
    fn empty<M: Memory>(&mut self, memory: &M, number: u16) -> Result<(), Failure> {
        let buffer = Buffer { address: self.filled_at(number), length: HEADROOM + LONGEST, writable: true };
        Ok(self.filled.add(memory, number, buffer)?)
    }

    /// The card may fill a buffer.
    fn offer<B: Bus>(&mut self, bus: &B, number: u16) -> Result<(), Failure> {
        self.card.offer(bus, number, self.came_at(number), BUFFER as u32)
    }

    /// Goes on with a card that is not ready yet. Returns when a turn is due for that.
    pub fn settle<B: Bus>(&mut self, bus: &B) -> Result<Option<u64>, Failure> {
        self.card.settle(bus)
    }

    /// The card has interrupted: a turn is due.
    pub fn interrupted<B: Bus>(&mut self, bus: &B) -> Result<(), Failure> {
        self.asked = true;
        self.card.interrupted(bus)
    }

    /// Moves buffers on, all that there are: sent ones to the switch and filled ones to the card, packets that have come to the switch and those that
    /// it has taken to the card.
    pub fn turn<B: Bus, M: Memory>(&mut self, bus: &B, memory: &M) -> Result<Turn, Failure> {
        let until = self.settle(bus)?;
        let mut moved = false;
        while let Some(number) = self.card.sent(bus)? {
            self.empty(memory, number)?;
            moved = true;
        }
        while self.card.room_to_send() != 0
            && let Some((number, length)) = self.filled.take(memory)?
        {
            self.card.send(bus, number, self.filled_at(number), length)?;
        }
        while let Some((number, _)) = self.came.take(memory)? {
            self.offer(bus, number)?;
        }
        // A card has no more of them at once; what it returns meanwhile has its turn later.
        let mut sends = false;
        for _ in 0..BUFFERS {
            let Some((number, length)) = self.card.receive(bus)? else { break };
            moved = true;
            if !(HEADROOM + SHORTEST..=HEADROOM + LONGEST).contains(&length) {
                self.offer(bus, number)?;
                continue;
            }
            let buffer = Buffer { address: self.came_at(number), length, writable: false };
            self.came.add(memory, number, buffer)?;
            sends = true;
        }
        self.came.publish(memory)?;
        let refilled = self.filled.publish(memory)?;
        self.card.flush(bus)?;
        // Whoever fills them waits for none, as long as there are enough.
        let is_short = self.filled.in_flight() < FEW || self.card.room_to_send() == 0;
        let again = self.card.arm(bus, is_short)?;
        if core::mem::take(&mut self.asked) && !moved {
            self.card.check(bus)?;
        }
        Ok(Turn { sends, refilled, moved, again, until })
    }

    /// Resets the card.
    pub fn end<B: Bus>(&mut self, bus: &B) {
        self.card.stop(bus);
    }
}
