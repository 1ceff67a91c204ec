// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Network devices (section 5.1).

use super::bytes::{Fields, Reader};
use super::space::{Configuration, SPACE};
use crate::features::{Features, Requirement};

/// The configuration of a network device. Fields without their feature mean nothing to a driver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Network {
    /// Its address (MAC).
    pub mac: [u8; 6],
    /// Whether the link is up (STATUS).
    pub link_up: bool,
    /// The driver should announce itself (GUEST_ANNOUNCE).
    pub announce: bool,
    /// How many pairs of queues there are at most (MQ).
    pub max_pairs: u16,
    /// The largest packet without its Ethernet header, in bytes (MTU).
    pub mtu: u16,
}

impl Network {
    /// It takes packets whose checksums are not complete.
    pub const CSUM: Features = Features::bit(0);
    /// The driver takes such packets.
    pub const GUEST_CSUM: Features = Features::bit(1);
    /// `mtu` holds.
    pub const MTU: Features = Features::bit(3);
    /// `mac` holds.
    pub const MAC: Features = Features::bit(5);
    /// The driver takes large TCP segments over IPv4.
    pub const GUEST_TSO4: Features = Features::bit(7);
    /// The driver takes large TCP segments over IPv6.
    pub const GUEST_TSO6: Features = Features::bit(8);
    /// The driver takes them with ECN.
    pub const GUEST_ECN: Features = Features::bit(9);
    /// The driver takes large UDP packets.
    pub const GUEST_UFO: Features = Features::bit(10);
    /// It takes large TCP segments over IPv4.
    pub const HOST_TSO4: Features = Features::bit(11);
    /// It takes large TCP segments over IPv6.
    pub const HOST_TSO6: Features = Features::bit(12);
    /// It takes them with ECN.
    pub const HOST_ECN: Features = Features::bit(13);
    /// It takes large UDP packets.
    pub const HOST_UFO: Features = Features::bit(14);
    /// A packet may take several of the driver's buffers.
    pub const MRG_RXBUF: Features = Features::bit(15);
    /// `link_up` holds.
    pub const STATUS: Features = Features::bit(16);
    /// There is a queue for control.
    pub const CTRL_VQ: Features = Features::bit(17);
    /// Control: which packets are received.
    pub const CTRL_RX: Features = Features::bit(18);
    /// Control: VLANs.
    pub const CTRL_VLAN: Features = Features::bit(19);
    /// The driver can announce itself.
    pub const GUEST_ANNOUNCE: Features = Features::bit(21);
    /// Several pairs of queues.
    pub const MQ: Features = Features::bit(22);
    /// Control: the address.
    pub const CTRL_MAC_ADDR: Features = Features::bit(23);

    /// Which features require which others (section 5.1.3.1).
    pub const REQUIREMENTS: &'static [Requirement] = &[
        Requirement { feature: Self::GUEST_TSO4, one_of: Self::GUEST_CSUM },
        Requirement { feature: Self::GUEST_TSO6, one_of: Self::GUEST_CSUM },
        Requirement { feature: Self::GUEST_ECN, one_of: Self::GUEST_TSO4.union(Self::GUEST_TSO6) },
        Requirement { feature: Self::GUEST_UFO, one_of: Self::GUEST_CSUM },
        Requirement { feature: Self::HOST_TSO4, one_of: Self::CSUM },
        Requirement { feature: Self::HOST_TSO6, one_of: Self::CSUM },
        Requirement { feature: Self::HOST_ECN, one_of: Self::HOST_TSO4.union(Self::HOST_TSO6) },
        Requirement { feature: Self::HOST_UFO, one_of: Self::CSUM },
        Requirement { feature: Self::CTRL_RX, one_of: Self::CTRL_VQ },
        Requirement { feature: Self::CTRL_VLAN, one_of: Self::CTRL_VQ },
        Requirement { feature: Self::GUEST_ANNOUNCE, one_of: Self::CTRL_VQ },
        Requirement { feature: Self::MQ, one_of: Self::CTRL_VQ },
        Requirement { feature: Self::CTRL_MAC_ADDR, one_of: Self::CTRL_VQ },
    ];
}

impl Configuration for Network {
    const LENGTH: usize = 12;

    fn image(&self) -> [u8; SPACE] {
        let status = u16::from(self.link_up) | u16::from(self.announce) << 1;
        Fields::new().put(&self.mac).u16(status).u16(self.max_pairs).u16(self.mtu).bytes()
    }
}

/// The header of a packet (section 5.1.6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NetworkHeader {
    /// Bit 0: the checksum is not complete; bit 1: it was found to be right.
    pub flags: u8,
    /// What kind of segment it is: 0 for none, 1 for TCP over IPv4, 3 for UDP, 4 for TCP over IPv6; with ECN 0x80 more.
    pub gso_type: u8,
    /// How many bytes the headers of a segment have.
    pub header_length: u16,
    /// How many bytes each packet of a segment carries.
    pub gso_size: u16,
    /// Where the checksum begins, in bytes from the beginning of the packet.
    pub checksum_start: u16,
    /// Where it is stored, in bytes from there.
    pub checksum_offset: u16,
    /// How many buffers the packet takes (MRG_RXBUF); otherwise 1.
    pub buffers: u16,
}

impl NetworkHeader {
    /// How many bytes it has.
    pub const LENGTH: usize = 12;
    /// The header of a packet that is no segment and has its checksum.
    pub const PLAIN: Self = Self {
        flags: 0,
        gso_type: 0,
        header_length: 0,
        gso_size: 0,
        checksum_start: 0,
        checksum_offset: 0,
        buffers: 0,
    };

    /// Reads a header.
    pub fn from_bytes(bytes: &[u8; Self::LENGTH]) -> Self {
        let mut reader = Reader(bytes);
        Self {
            flags: reader.u8(),
            gso_type: reader.u8(),
            header_length: reader.u16(),
            gso_size: reader.u16(),
            checksum_start: reader.u16(),
            checksum_offset: reader.u16(),
            buffers: reader.u16(),
        }
    }

    /// Writes a header.
    pub fn to_bytes(self) -> [u8; Self::LENGTH] {
        let fields =
            Fields::new().u8(self.flags).u8(self.gso_type).u16(self.header_length).u16(self.gso_size);
        fields.u16(self.checksum_start).u16(self.checksum_offset).u16(self.buffers).bytes()
    }
}
