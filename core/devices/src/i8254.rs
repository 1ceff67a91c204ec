// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The 8254 timer of a PC (Intel 231164), with what port 61h shows of it.
//!
//! Everything is computed from the time that comes with each call, in nanoseconds from any fixed origin, so no call is needed in
//! between. Channel 0 drives an interrupt: [`I8254::deadline`] says when, [`I8254::ring`] whether it did. Channel 1, which
//! refreshed memory, is visible only as a bit of port 61h. Channel 2 has its gate there.

mod channel;

use channel::Channel;

/// Its clock, in ticks per second.
pub const I8254_FREQUENCY: u64 = 1_193_182;

/// Ticks in a nanosecond, in units of 2^-64.
const TICKS_PER_NANOSECOND: u64 = (((I8254_FREQUENCY as u128) << 64) / 1_000_000_000) as u64;

/// Returns the tick of a time in nanoseconds.
#[inline]
fn tick(nanoseconds: u64) -> u64 {
    ((u128::from(nanoseconds) * u128::from(TICKS_PER_NANOSECOND)) >> 64) as u64
}

/// Returns the first nanosecond of a tick.
fn nanosecond(tick: u64) -> u64 {
    (u128::from(tick) << 64).div_ceil(u128::from(TICKS_PER_NANOSECOND)).try_into().unwrap_or(u64::MAX)
}

/// The 8254 of a PC.
#[derive(Clone, Debug)]
pub struct I8254 {
    channels: [Channel; 3],
    /// Port 61h, bit 1: the speaker listens to channel 2.
    speaker: bool,
}

impl Default for I8254 {
    fn default() -> Self {
        Self::new()
    }
}

impl I8254 {
    /// Port 61h: the gate of channel 2.
    const GATE: u8 = 1 << 0;
    const SPEAKER: u8 = 1 << 1;
    /// A refresh of memory toggles it: every 15 microseconds, 18 ticks.
    const REFRESH: u8 = 1 << 4;
    const OUTPUT: u8 = 1 << 5;
    const REFRESH_TICKS: u64 = 18;

    /// Makes one in which no channel counts.
    pub const fn new() -> Self {
        Self { channels: [Channel::new(true), Channel::new(true), Channel::new(false)], speaker: false }
    }

    /// Says whether a port is its: 0x40 to 0x43, and 0x61.
    #[inline]
    pub const fn has(port: u16) -> bool {
        matches!(port, 0x40..=0x43 | 0x61)
    }

    /// Reads a port at a time in nanoseconds.
    pub fn read(&mut self, port: u16, now: u64) -> u8 {
        let now = tick(now);
        match port {
            0x40..=0x42 => self.channels[usize::from(port - 0x40)].read(now),
            0x61 => self.read_port_b(now),
            // The control word cannot be read.
            _ => 0xff,
        }
    }

    fn read_port_b(&mut self, now: u64) -> u8 {
        let channel = &mut self.channels[2];
        channel.settle(now);
        let bit = |value: bool, bit: u8| if value { bit } else { 0 };
        bit(channel.gate, Self::GATE)
            | bit(self.speaker, Self::SPEAKER)
            | bit((now / Self::REFRESH_TICKS) & 1 != 0, Self::REFRESH)
            | bit(channel.output(now), Self::OUTPUT)
    }

    /// Writes a port at a time in nanoseconds. What [`I8254::deadline`] says may have changed then.
    pub fn write(&mut self, port: u16, value: u8, now: u64) {
        let now = tick(now);
        match port {
            0x40..=0x42 => self.channels[usize::from(port - 0x40)].write(value, now),
            0x43 => self.control(value, now),
            0x61 => {
                self.channels[2].set_gate(value & Self::GATE != 0, now);
                self.speaker = value & Self::SPEAKER != 0;
            }
            _ => {}
        }
    }

    fn control(&mut self, value: u8, now: u64) {
        match (value >> 6, value >> 4 & 3) {
            (3, _) => self.read_back(value, now),
            (channel, 0) => self.channels[usize::from(channel)].latch(now),
            (channel, _) => self.channels[usize::from(channel)].program(value, now),
        }
    }

    /// The read-back command: its bits are active low.
    fn read_back(&mut self, value: u8, now: u64) {
        for (index, channel) in self.channels.iter_mut().enumerate() {
            if value >> (index + 1) & 1 == 0 {
                continue;
            }
            if value & 1 << 5 == 0 {
                channel.latch(now);
            }
            if value & 1 << 4 == 0 {
                channel.latch_status(now);
            }
        }
    }

    /// Says whether channel 0's output rose since the last call: line 0 of the 8259 and pin 2 of the I/O APIC get a pulse.
    /// Edges that were not asked for in time are one, and the others are owed: [`I8254::make_up`].
    pub fn ring(&mut self, now: u64) -> bool {
        self.channels[0].ring(tick(now), Self::SHORTEST, Self::MOST_OWED)
    }

    /// Takes one of the edges that are owed: true if there was one. For when the guest has ended the interrupt of the one
    /// before: a guest that counts its ticks gets them all, though its CPU was somebody else's meanwhile. A new count ends
    /// the debt.
    pub fn make_up(&mut self) -> bool {
        let owed = &mut self.channels[0].owed;
        let owes = *owed != 0;
        *owed = owed.saturating_sub(1);
        owes
    }

    /// Says whether edges are owed.
    pub fn owes(&self) -> bool {
        self.channels[0].owed != 0
    }

    /// Edges that are owed at most: a guest that cannot keep up shall do something else, too.
    pub const MOST_OWED: u32 = 16;

    /// Returns the time in nanoseconds of channel 0's next rising edge after those that [`I8254::ring`] reported; it may
    /// have passed. At least [`I8254::SHORTEST`] ticks after the last call of that: a guest that sets a period of one tick
    /// gets fewer interrupts, and does not keep its host busy with them.
    pub fn deadline(&self) -> Option<u64> {
        let channel = &self.channels[0];
        let edge = channel.next_edge(channel.reported)?;
        Some(nanosecond(edge.max(channel.reported.saturating_add(Self::SHORTEST))))
    }

    /// The shortest time between two deadlines, in ticks: 50 microseconds.
    pub const SHORTEST: u64 = 60;
}
