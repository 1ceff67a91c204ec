// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which of several queues a packet goes to: packets of a flow keep to one, so that they stay in order, and to the one by which its receiver has
//! last sent packets of it (virtio 1.2, section 5.1.6.5.6).

/// How many flows a receiver tells apart. Those that have the same place share it.
const PLACES: usize = 64;
/// The receiver has sent nothing of a flow with this place.
const UNKNOWN: u8 = u8::MAX;

/// A number for the flow of a packet, by its first bytes: the same for both directions.
pub fn flow(head: &[u8]) -> u64 {
    // TCP or UDP over IP without options or fragments: addresses and ports. Otherwise addresses; otherwise those of Ethernet.
    let (addresses, ports) = match head {
        [_, _, _, _, _, _, _, _, _, _, _, _, 8, 0, 0x45, _, _, _, _, _, high, low, _, 6 | 17, ..]
            if high & 0x3f == 0 && *low == 0 =>
        {
            (head.get(26..34), head.get(34..38))
        }
        [_, _, _, _, _, _, _, _, _, _, _, _, 8, 0, ..] => (head.get(26..34), None),
        [_, _, _, _, _, _, _, _, _, _, _, _, 0x86, 0xdd, _, _, _, _, _, _, 6 | 17, ..] => {
            (head.get(22..54), head.get(54..58))
        }
        [_, _, _, _, _, _, _, _, _, _, _, _, 0x86, 0xdd, ..] => (head.get(22..54), None),
        _ => (head.get(..12), None),
    };
    let sum = between(addresses.unwrap_or_default()) << 16 ^ between(ports.unwrap_or_default());
    let product = sum.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    product ^ product >> 32
}

/// What two ends of the same length have between them: the same number, whichever comes first.
fn between(ends: &[u8]) -> u64 {
    let (one, other) = ends.split_at(ends.len() / 2);
    let differences = one.iter().zip(other).map(|(one, other)| u64::from(one ^ other));
    differences.fold(0, |sum, byte| sum.rotate_left(8) ^ byte)
}

/// By which of its pairs of queues a receiver has last sent packets of a flow. The table is bounded, and whoever sends to the receiver changes nothing in it.
#[derive(Debug)]
pub struct Steering([u8; PLACES]);

impl Steering {
    /// Nothing was sent.
    pub const NEW: Self = Self([UNKNOWN; PLACES]);

    /// The receiver has sent a packet of a flow by a pair.
    pub fn sent(&mut self, flow: u64, pair: usize) {
        if let Some(place) = self.0.get_mut(flow as usize % PLACES) {
            *place = pair as u8;
        }
    }

    /// The pair that packets of a flow go to, if so many are in use.
    pub fn pair(&self, flow: u64, pairs: u16) -> usize {
        let known = self.0.get(flow as usize % PLACES).filter(|pair| u16::from(**pair) < pairs);
        known.map_or_else(|| (flow >> 16) as usize % usize::from(pairs.max(1)), |pair| usize::from(*pair))
    }
}
