// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where a packet goes.

use crate::address::{Address, Ends};
use crate::port::{Counters, Port, Rules};
use crate::table::Table;

/// How long addresses are remembered, in nanoseconds: 300 seconds (IEEE 802.1Q, table 8-6).
pub const AGE: u64 = 300_000_000_000;

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It goes to these ports: a bit each; none if nobody may have it.
    To(u64),
    /// It must wait so many nanoseconds, as what comes behind it.
    Wait(u64),
    /// Its sender may not use the address.
    Spoofed,
    /// It is no packet of Ethernet that goes anywhere.
    Malformed,
}

/// A switch with `P` ports, up to 64, and 4 * `SETS` places for addresses.
#[derive(Debug)]
pub struct Switch<const P: usize, const SETS: usize> {
    ports: [Port; P],
    table: Table<P, SETS>,
    up: u64,
    isolated: u64,
}

impl<const P: usize, const SETS: usize> Switch<P, SETS> {
    /// A place in a set of ports has one bit.
    const FITS: () = assert!(P <= 64 && SETS > 0);

    /// Makes a switch to which nothing is connected.
    pub const fn new() -> Self {
        let () = Self::FITS;
        Self { ports: [Port::NEW; P], table: Table::new(AGE), up: 0, isolated: 0 }
    }

    /// Connects a port. Whatever was known of it is forgotten, but its counters.
    pub fn attach(&mut self, number: usize, rules: Rules) {
        self.detach(number);
        let Some(port) = self.ports.get_mut(number) else { return };
        (port.rules, port.is_up) = (rules, true);
        // No packet comes from zero, nor from what has more bits than an address.
        port.own = rules.mac.map_or(0, |mac| match Address::new(mac, 0).mac() {
            0 => u64::MAX,
            own => own,
        });
        self.up |= 1 << number;
        self.isolated |= u64::from(rules.isolated) << number;
        // Whoever used its address before is asked again.
        rules.mac.into_iter().for_each(|mac| self.table.forget_address(mac));
    }

    /// Disconnects a port.
    pub fn detach(&mut self, number: usize) {
        let Some(port) = self.ports.get_mut(number) else { return };
        port.is_up = false;
        self.up &= !(1 << number);
        self.isolated &= !(1 << number);
        self.table.forget(number);
    }

    /// What a port did.
    pub fn counters(&self, number: usize) -> Counters {
        self.ports.get(number).map(|port| port.counters).unwrap_or_default()
    }

    /// The same, to be counted on.
    #[inline] // On the path of every packet.
    pub(crate) fn count(&mut self, number: usize, add: impl FnOnce(&mut Counters)) {
        if let Some(port) = self.ports.get_mut(number) {
            add(&mut port.counters);
        }
    }

    /// Where a packet with these first bytes goes that comes from a port. It is not counted and not paid for: that is [`Switch::sent`]. Its
    /// source is learned.
    #[inline(always)] // On the path of every packet.
    pub fn judge(&mut self, number: usize, head: &[u8], now: u64) -> Verdict {
        let Some(port) = self.ports.get(number).filter(|port| port.is_up) else { return Verdict::To(0) };
        let Some(Ends { to, from }) = Ends::read(head) else { return Verdict::Malformed };
        if from.is_group() || from.mac() == 0 || to.is_reserved() {
            return Verdict::Malformed;
        }
        if port.own != 0 && port.own != from.mac() {
            return Verdict::Spoofed;
        }
        let wait = port.rules.rate.map_or(0, |rate| rate.wait(now));
        if wait != 0 {
            return Verdict::Wait(wait);
        }
        if !self.note(number, from, now) {
            return Verdict::Spoofed;
        }
        let isolated = if self.isolated >> number & 1 == 1 { self.isolated } else { 0 };
        let others = self.up & !(1 << number) & !isolated;
        let known = if to.is_group() { None } else { self.table.find(to, now) };
        Verdict::To(known.map_or(others, |port| others & 1 << port))
    }

    /// Learns a source. False if it is the address of another port alone.
    #[inline] // On the path of every packet.
    fn note(&mut self, number: usize, from: Address, now: u64) -> bool {
        // Who sends all the time is where it was.
        self.table.renew(from, number, now) || self.learn(number, from, now)
    }

    #[cold]
    #[inline(never)] // Once for each source, mostly.
    fn learn(&mut self, number: usize, from: Address, now: u64) -> bool {
        let mut others = self.ports.iter().enumerate().filter(|(other, port)| *other != number && port.is_up);
        if others.any(|(_, port)| port.own == from.mac()) {
            return false;
        }
        self.table.learn(from, number, now);
        true
    }

    /// A packet has gone from a port.
    #[inline] // On the path of every packet.
    pub fn sent(&mut self, number: usize, bytes: u32, now: u64) {
        let Some(port) = self.ports.get_mut(number) else { return };
        port.counters.sent += 1;
        port.counters.sent_bytes += u64::from(bytes);
        if let Some(rate) = &mut port.rules.rate {
            rate.pay(now, bytes);
        }
    }

    /// Says whether a port may send only so much.
    #[inline] // On the path of every packet.
    pub(crate) fn is_limited(&self, number: usize) -> bool {
        self.ports.get(number).is_some_and(|port| port.rules.rate.is_some())
    }

    /// Says whether a port waits for no receiver.
    pub(crate) fn is_impatient(&self, number: usize) -> bool {
        self.ports.get(number).is_some_and(|port| port.rules.impatient)
    }

    /// A packet has come to a port.
    #[inline] // On the path of every packet.
    pub fn received(&mut self, number: usize, bytes: u32) {
        self.count(number, |counters| {
            counters.received += 1;
            counters.received_bytes += u64::from(bytes);
        });
    }
}

impl<const P: usize, const SETS: usize> Default for Switch<P, SETS> {
    fn default() -> Self {
        Self::new()
    }
}
