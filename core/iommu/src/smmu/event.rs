// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The event queue (sections 3.5 and 7).

use turnstile_paging::{PhysAddr, Tables};

use super::platform::{Error, Platform};
use super::registers::{EVENTQ_BASE, EVENTQ_CONS, EVENTQ_IRQ_CFG0, EVENTQ_PROD, Features};

/// The most entries, as a logarithm: a page.
const MOST: u32 = 7;
/// Words of an entry.
const WORDS: usize = 4;
/// The register of a queue's address: what is written is allocated in caches.
const ALLOCATE: u64 = 1 << 62;
/// Events were lost, and that this is known.
const OVERFLOW: u32 = 1 << 31;

/// What kind an event is of (section 7.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// F_UUT: what a device asks for cannot be.
    Unsupported,
    /// F_TRANSL_FORBIDDEN: it says that its address is translated.
    Translated,
    /// F_WALK_EABT: a table cannot be read.
    Walk,
    /// F_TRANSLATION: the address is not mapped.
    Translation,
    /// F_ADDR_SIZE: it has too many bits.
    AddressSize,
    /// F_ACCESS: the access flag is clear.
    Access,
    /// F_PERMISSION: the address is mapped, but not for that.
    Permission,
    /// Another one, by its number: none with an address.
    Other(u8),
}

/// What an SMMU records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Its kind.
    pub kind: Kind,
    /// Whose it is.
    pub stream: u32,
    /// What the stream has reached for, if the kind has that.
    pub address: Option<u64>,
}

impl Event {
    /// Reads one. Any words will do.
    pub fn decode([first, _, third, _]: [u64; WORDS]) -> Self {
        let kind = match first as u8 {
            0x01 => Kind::Unsupported,
            0x07 => Kind::Translated,
            0x0b => Kind::Walk,
            0x10 => Kind::Translation,
            0x11 => Kind::AddressSize,
            0x12 => Kind::Access,
            0x13 => Kind::Permission,
            other => Kind::Other(other),
        };
        let address = if let Kind::Other(_) = kind { None } else { Some(third) };
        Self { kind, stream: (first >> 32) as u32, address }
    }
}

/// The event queue.
#[derive(Debug)]
pub(super) struct Events {
    queue: PhysAddr,
    /// The logarithm of its entries.
    bits: u32,
    /// Which is read next; the bit above the index changes each time round.
    next: u32,
}

impl Events {
    /// Makes an empty one.
    pub fn new(features: &Features, tables: &mut impl Tables) -> Result<Self, Error> {
        let [_, bits] = features.queues;
        let queue = tables.allocate(32 << MOST).ok_or(turnstile_paging::Error::OutOfTables)?;
        Ok(Self { queue, bits: bits.min(MOST), next: 0 })
    }

    /// Tells the SMMU where it is, and that it interrupts by its wire.
    pub fn set_up(&self, platform: &mut impl Platform) {
        platform.set64(EVENTQ_BASE, self.queue.0 | ALLOCATE | u64::from(self.bits));
        platform.set32(EVENTQ_PROD, self.next);
        platform.set32(EVENTQ_CONS, self.next);
        platform.set64(EVENTQ_IRQ_CFG0, 0);
    }

    /// How many it holds.
    pub fn size(&self) -> u32 {
        1 << self.bits
    }

    /// Takes an event out, if there is one.
    pub fn next(&mut self, platform: &mut impl Platform) -> Option<Event> {
        let round = (2 << self.bits) - 1;
        if platform.get32(EVENTQ_PROD) & round == self.next {
            return None;
        }
        // What was written before that register says so.
        platform.synchronize();
        let at = (self.next & (round >> 1)) as usize * WORDS;
        let words = [0, 1, 2, 3].map(|word| platform.read(self.queue, at + word));
        self.next = self.next.wrapping_add(1) & round;
        Some(Event::decode(words))
    }

    /// Gives the room back of what was taken out.
    pub fn acknowledge(&self, platform: &mut impl Platform) {
        let overflow = platform.get32(EVENTQ_PROD) & OVERFLOW;
        // What was read before that room is written again.
        platform.synchronize();
        platform.set32(EVENTQ_CONS, self.next | overflow);
    }
}
