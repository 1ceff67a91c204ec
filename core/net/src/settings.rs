// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the device announces, and what a driver accepts.

use turnstile_virtio::config::Network;
use turnstile_virtio::features::Features;

/// What a device is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Its address.
    pub mac: [u8; 6],
    /// Whether the driver may change that.
    pub may_change: bool,
    /// The largest packet without its Ethernet header, in bytes; 0 to leave it open.
    pub mtu: u16,
    /// How many pairs of queues, at least 1.
    pub pairs: u16,
    /// Whether packets may come with their checksums open and as large TCP segments.
    pub offloads: bool,
}

impl Settings {
    /// A device with an address, one pair of queues, and offloads.
    pub const fn new(mac: [u8; 6]) -> Self {
        Self { mac, may_change: false, mtu: 0, pairs: 1, offloads: true }
    }

    /// The features to offer, those of rings included.
    pub fn features(&self) -> Features {
        let mut features = Features::INDIRECT_DESC | Features::EVENT_IDX | Features::RING_RESET;
        features |= Network::MAC | Network::STATUS | Network::MRG_RXBUF;
        features |= Network::CTRL_VQ | Network::CTRL_RX | Network::CTRL_VLAN | Network::GUEST_ANNOUNCE;
        let mut offer = |feature, on| features |= if on { feature } else { Features::empty() };
        offer(Network::MTU, self.mtu != 0);
        offer(Network::MQ, self.pairs > 1);
        offer(Network::CTRL_MAC_ADDR, self.may_change);
        offer(Network::CSUM | Network::GUEST_CSUM, self.offloads);
        offer(Network::HOST_TSO4 | Network::HOST_TSO6 | Network::HOST_ECN, self.offloads);
        offer(Network::GUEST_TSO4 | Network::GUEST_TSO6 | Network::GUEST_ECN, self.offloads);
        features
    }

    /// The configuration.
    pub const fn configuration(&self, link_up: bool) -> Network {
        Network { mac: self.mac, link_up, announce: false, max_pairs: self.pairs, mtu: self.mtu }
    }

    /// How many bytes a packet of the driver has at most, that is no segment: with the Ethernet header and a VLAN tag.
    pub const fn longest(&self) -> u32 {
        if self.mtu == 0 { 65535 + 18 } else { self.mtu as u32 + 18 }
    }
}

/// What a driver has agreed to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Accepts {
    /// Open checksums: sends, takes.
    pub checksum: [bool; 2],
    /// Segments of TCP over IPv4.
    pub tso4: [bool; 2],
    /// Segments of TCP over IPv6.
    pub tso6: [bool; 2],
    /// Segments with ECN.
    pub ecn: [bool; 2],
    /// A packet may take several buffers.
    pub merge: bool,
}

/// The index of what a driver sends.
pub const SENDS: usize = 0;
/// The index of what it takes.
pub const TAKES: usize = 1;

impl From<Features> for Accepts {
    fn from(features: Features) -> Self {
        let pair = |sends, takes| [features.contains(sends), features.contains(takes)];
        Self {
            checksum: pair(Network::CSUM, Network::GUEST_CSUM),
            tso4: pair(Network::HOST_TSO4, Network::GUEST_TSO4),
            tso6: pair(Network::HOST_TSO6, Network::GUEST_TSO6),
            ecn: pair(Network::HOST_ECN, Network::GUEST_ECN),
            merge: features.contains(Network::MRG_RXBUF),
        }
    }
}
