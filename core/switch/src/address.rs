// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An Ethernet address with its VLAN.

/// An address (48 bits) and the VLAN in which it is (12 bits; 0 for none).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Address(u64);

impl Address {
    /// Makes one.
    #[inline] // On the path of every packet.
    pub const fn new(mac: [u8; 6], vlan: u16) -> Self {
        let [a, b, c, d, e, f] = mac;
        Self((vlan as u64 & 0xfff) << 48 | u64::from_be_bytes([0, 0, a, b, c, d, e, f]))
    }

    /// The address without its VLAN.
    #[inline] // On the path of every packet.
    pub const fn mac(self) -> u64 {
        self.0 & 0xffff_ffff_ffff
    }

    /// Whether it is of a group, or of all.
    #[inline] // On the path of every packet.
    pub const fn is_group(self) -> bool {
        self.0 & 1 << 40 != 0
    }

    /// Whether switches keep packets to it (IEEE 802.1Q, table 8-1): 01-80-C2-00-00-00 to -0F.
    #[inline] // On the path of every packet.
    pub const fn is_reserved(self) -> bool {
        self.mac() >> 4 == 0x0180_c200_0000 >> 4
    }

    /// A number that differs much for addresses that differ little.
    #[inline] // On the path of every packet.
    pub const fn hash(self) -> u64 {
        // The golden ratio, as Knuth has it: the upper bits are the best.
        (self.0.wrapping_mul(0x9e37_79b9_7f4a_7c15)) >> 32
    }
}

/// Destination and source of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ends {
    /// Where it goes.
    pub to: Address,
    /// Where it comes from.
    pub from: Address,
}

impl Ends {
    /// Reads them from a packet's first bytes.
    #[inline] // On the path of every packet.
    pub fn read(head: &[u8]) -> Option<Self> {
        // Words: each of two has an address.
        let (first, second) = (head.first_chunk::<8>()?, head.get(4..12)?.first_chunk::<8>()?);
        let [a, b, c, d] = *head.get(12..16)?.first_chunk::<4>()?;
        let (to, from) = (u64::from_be_bytes(*first) >> 16, u64::from_be_bytes(*second) & 0xffff_ffff_ffff);
        // A customer's tag; a provider's is not looked into.
        let vlan = if [a, b] == [0x81, 0] { u64::from(u16::from_be_bytes([c, d]) & 0xfff) } else { 0 };
        Some(Self { to: Address(vlan << 48 | to), from: Address(vlan << 48 | from) })
    }
}
