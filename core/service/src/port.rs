// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the program of a network gets to know of a member: the two words of [`Kind::Attach`](crate::abi::Kind::Attach).
//!
//! The first word has the address in bits 0 to 47, its first byte in the lowest ones; bit 48: [`Port::guard`]; bit 49:
//! [`Port::isolated`]; bits 52 to 55: how many pairs of queues beyond one. The second word is [`Port::rate`]; 0: there is none.

/// The member sends from its own address alone.
const GUARD: u64 = 1 << 48;
/// It exchanges packets only with members that are not isolated.
const ISOLATED: u64 = 1 << 49;
/// Where it says how many pairs of queues there are beyond one.
const PAIRS_SHIFT: u32 = 52;
/// The most pairs of queues of a port.
pub const MAX_PAIRS: u16 = 4;

/// A member's port of a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Port {
    /// Its address.
    pub mac: [u8; 6],
    /// It sends from that address alone, and nobody else does.
    pub guard: bool,
    /// It exchanges packets only with ports that are not isolated.
    pub isolated: bool,
    /// How many bits per second it may send; not zero.
    pub rate: Option<u64>,
    /// How many pairs of queues it has: 1 to [`MAX_PAIRS`].
    pub pairs: u16,
}

impl Port {
    /// Returns it as words.
    pub fn words(&self) -> [u64; 2] {
        let [a, b, c, d, e, f] = self.mac;
        let flag = |is: bool, bit| if is { bit } else { 0 };
        let mac = u64::from_le_bytes([a, b, c, d, e, f, 0, 0]);
        let more = u64::from(self.pairs.clamp(1, MAX_PAIRS) - 1) << PAIRS_SHIFT;
        [mac | flag(self.guard, GUARD) | flag(self.isolated, ISOLATED) | more, self.rate.unwrap_or(0)]
    }

    /// Returns it from words. Any will do.
    pub fn from_words([first, rate]: [u64; 2]) -> Self {
        let [a, b, c, d, e, f, ..] = first.to_le_bytes();
        let (guard, isolated) = (first & GUARD != 0, first & ISOLATED != 0);
        let pairs = ((first >> PAIRS_SHIFT & 0xf) as u16 + 1).min(MAX_PAIRS);
        Self { mac: [a, b, c, d, e, f], guard, isolated, rate: (rate != 0).then_some(rate), pairs }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_say_all_of_a_port() {
        let port = Port { mac: [2, 0, 0, 0, 0, 9], guard: true, isolated: false, rate: Some(1000), pairs: 1 };
        assert_eq!(port.words(), [0x0001_0900_0000_0002, 1000]);
        let most = Port { pairs: MAX_PAIRS, ..port };
        for other in [port, Port { guard: false, isolated: true, rate: None, ..port }, most] {
            assert_eq!(Port::from_words(other.words()), other);
        }
        assert_eq!(Port::from_words([u64::MAX, 0]).pairs, MAX_PAIRS, "any words will do");
    }
}
