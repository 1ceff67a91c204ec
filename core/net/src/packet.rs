// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A packet between its sender and its receiver.

use turnstile_virtio::config::NetworkHeader;
use turnstile_virtio::device::{Place, Span};

/// How many bytes of a packet are read at first: its addresses, its VLAN and its type, by which it is decided where it goes.
pub const FIRST: usize = 20;
/// An Ethernet header.
pub(crate) const SHORTEST: usize = 14;
/// Those with the header: a few words.
pub(crate) const SHORT: usize = NetworkHeader::LENGTH + FIRST;
/// How many are read at most: all headers of a TCP packet.
pub const HEAD: usize = 192;
/// Those, and what is in front of them: room for a header.
pub(crate) const FRONT: usize = NetworkHeader::LENGTH + HEAD;

/// A flag of the header: the checksum is open.
pub(crate) const NEEDS_CHECKSUM: u8 = 1;

/// A checksum that is open: of the bytes from `start`, to be stored at `start + offset`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Open {
    /// Where it begins.
    pub start: usize,
    /// Where it is stored, from there.
    pub offset: usize,
}

impl Open {
    /// A checksum that may be open in a packet of so many bytes (section 5.1.6.2): all of it is in the packet, and whoever stores it does not change by
    /// what it was decided where the packet goes.
    #[inline] // On the path of every packet that has one.
    pub(crate) fn within(start: usize, offset: usize, length: usize) -> Option<Self> {
        let at = start + offset;
        (start >= SHORTEST && at >= FIRST && at + 2 <= length).then_some(Self { start, offset })
    }
}

/// A packet on its way: its first bytes, and where the others are.
#[derive(Debug)]
pub struct Packet<'a> {
    /// Its header; how many buffers it takes is filled in.
    pub header: NetworkHeader,
    /// Room for the header, and the packet's first bytes.
    pub front: &'a mut [u8; FRONT],
    /// How many bytes those are together.
    pub front_length: usize,
    /// The sender's buffers.
    pub spans: &'a [Span],
    /// Where in them the other bytes begin.
    pub place: Place,
    /// How many there are.
    pub rest: u32,
}
