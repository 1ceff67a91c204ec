// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which of several queues a packet goes to: packets of a flow keep to one, so that they stay in order, and to the one by which its receiver has
//! last sent packets of it (virtio 1.2, section 5.1.6.5.6).

/// How many flows a receiver tells apart. Those that have the same place share it.
const PLACES: usize = 64;
/// The receiver has sent nothing of a flow with this place.
const UNKNOWN: u8 = u8::MAX;

/// How many first bytes of a packet tell its flow.
pub const HEAD: usize = 58;

/// IPv4 and IPv6 as types of Ethernet.
const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
/// TCP and UDP, both of which have two ports first.
const HAVE_PORTS: [u8; 2] = [6, 17];
/// In IPv4: it is a fragment, if this is not zero.
const FRAGMENT: u16 = 0x3fff;
/// Version 4, and a header without options.
const NO_OPTIONS: u8 = 0x45;

/// A number for the flow of a packet, by its first bytes: the same for both directions.
#[inline] // On the path of every packet between devices with several pairs.
pub fn flow(head: &[u8]) -> u64 {
    // TCP or UDP over IP without options or fragments: addresses and ports. Otherwise addresses; otherwise those of Ethernet.
    let (addresses, ports) = match word(head, 12).map(u16::from_be_bytes) {
        Some(IPV4) => {
            let has_ports = HAVE_PORTS.contains(&byte(head, 23))
                && byte(head, 14) == NO_OPTIONS
                && u16::from_be_bytes(word(head, 20).unwrap_or_default()) & FRAGMENT == 0;
            (between::<4>(head, 26), if has_ports { between::<2>(head, 34) } else { 0 })
        }
        Some(IPV6) => {
            let has_ports = HAVE_PORTS.contains(&byte(head, 20));
            let [near, far] = [22, 30].map(|at| number::<8>(head, at) ^ number::<8>(head, at + 16));
            (near.rotate_left(8) ^ far, if has_ports { between::<2>(head, 54) } else { 0 })
        }
        _ => (between::<6>(head, 0), 0),
    };
    // Hosts of a network differ in the last bytes of their addresses, which are in the upper bits: those are to matter to all bits of the flow.
    let both = addresses.rotate_left(16) ^ ports;
    let product = (both ^ both >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    product ^ product >> 32
}

/// `N` bytes from a place on, if there are so many.
#[inline] // A comparison and a move.
fn word<const N: usize>(head: &[u8], at: usize) -> Option<[u8; N]> {
    head.get(at..)?.first_chunk().copied()
}

#[inline] // As above.
fn byte(head: &[u8], at: usize) -> u8 {
    head.get(at).copied().unwrap_or_default()
}

/// `N` bytes, at most 8, as a number; 0 if they are not there.
#[inline] // As above.
fn number<const N: usize>(head: &[u8], at: usize) -> u64 {
    let mut bytes = [0; 8];
    if let (Some(word), Some((place, _))) = (word::<N>(head, at), bytes.split_first_chunk_mut()) {
        *place = word;
    }
    u64::from_le_bytes(bytes)
}

/// What two ends of `N` bytes each have between them: the same number, whichever comes first.
#[inline] // As above.
fn between<const N: usize>(head: &[u8], at: usize) -> u64 {
    number::<N>(head, at) ^ number::<N>(head, at + N)
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
