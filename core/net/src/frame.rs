// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A packet that a driver sends (section 5.1.6.2), checked.
//!
//! Its first bytes are read once, into [`Frame::head`]: what is decided by them is decided by what the receiver gets. Most packets are
//! decided on by few; whoever needs more reads more.

use turnstile_virtio::config::NetworkHeader;
use turnstile_virtio::device::{Chain, Place, Segments, Span};
use turnstile_virtio::memory::Memory;
use turnstile_virtio::violation::Violation;

use crate::packet::{FIRST, FRONT, HEAD, NEEDS_CHECKSUM, Open, Packet, SHORT, SHORTEST};
use crate::plain::Plain;
use crate::settings::{Accepts, SENDS, TAKES};

/// How many packets a segment becomes at most, for a receiver that does not take segments.
pub const MOST_PACKETS: u32 = 128;
/// How many bytes a segment has at most, with its headers.
const LONGEST_SEGMENT: u32 = 65535 + 18;

const ECN: u8 = 0x80;
const TCP4: u8 = 1;
const TCP6: u8 = 4;

/// Why a packet is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// It is shorter than an Ethernet header, or longer than it may be.
    Length,
    /// It is in the open in a way that was not agreed on, or that makes no sense.
    Offload,
}

/// A large segment of TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gso {
    /// Where the IP header begins.
    pub ip: usize,
    /// It is of version 6.
    pub is_v6: bool,
    /// Where the TCP header begins.
    pub tcp: usize,
    /// Where the payload begins.
    pub payload: usize,
    /// How many bytes of payload a packet has at most.
    pub size: u32,
}

/// A packet with up to `N` buffers; reused for the next one.
#[derive(Debug)]
pub struct Frame<const N: usize> {
    segments: Segments<N>,
    /// Where the bytes behind [`Frame::head`] are.
    place: Place,
    length: u32,
    /// Room for a header, and the first bytes.
    front: [u8; FRONT],
    /// How many first bytes there are.
    head_length: usize,
    header: NetworkHeader,
    open: Option<Open>,
    gso: Option<Gso>,
}

impl<const N: usize> Frame<N> {
    /// Makes an empty one.
    pub const fn new() -> Self {
        Self {
            segments: Segments::new(),
            place: Place::START,
            length: 0,
            front: [0; FRONT],
            head_length: 0,
            header: NetworkHeader::PLAIN,
            open: None,
            gso: None,
        }
    }

    /// Reads what a driver sends. Within the outer result is why the packet must be dropped, if it must; the chain is complete then.
    pub fn read<M: Memory>(
        &mut self,
        memory: &M,
        chain: &mut Chain,
        sender: &Accepts,
        longest: u32,
    ) -> Result<Result<(), Malformed>, Violation> {
        self.segments.gather(memory, chain)?;
        (self.place, self.head_length, self.open, self.gso) = (Place::START, 0, None, None);
        let length = self.segments.readable_bytes().saturating_sub(NetworkHeader::LENGTH as u64);
        if !(SHORTEST as u64..=u64::from(LONGEST_SEGMENT)).contains(&length) {
            return Ok(Err(Malformed::Length));
        }
        self.length = length as u32;
        self.begin(memory)?;
        let [flags, gso_type, ..] = self.front;
        if gso_type == 0 {
            if self.length > longest {
                return Ok(Err(Malformed::Length));
            }
            if flags & NEEDS_CHECKSUM == 0 {
                self.header = NetworkHeader::PLAIN;
                return Ok(Ok(()));
            }
        } else {
            // Usually all headers lie together with the first bytes.
            self.extend_near(memory)?;
            if self.check(sender).is_some() {
                return Ok(Ok(()));
            }
            self.extend(memory)?;
        }
        Ok(self.check(sender).ok_or(Malformed::Offload))
    }

    /// Takes a packet that has been read.
    pub fn set(&mut self, plain: &Plain) {
        let Plain { front, buffer } = plain;
        self.segments.set_one(*buffer);
        let (place, _) = self.front.split_at_mut(SHORT);
        place.copy_from_slice(front);
        (self.place, self.head_length, self.open, self.gso) =
            (Place::behind_first(SHORT as u32), FIRST, plain.open(), None);
        self.header = front.first_chunk().map(NetworkHeader::from_bytes).unwrap_or_default();
        self.length = plain.length();
    }

    /// Reads the header and the first bytes, [`FIRST`] if there are so many.
    #[inline(always)] // On the path of every packet.
    fn begin<M: Memory>(&mut self, memory: &M) -> Result<(), Violation> {
        // Usually they lie together, and there are more.
        let (front, spans) = (self.front.first_chunk_mut::<SHORT>(), self.segments.readable());
        if let (Some(front), [Span { address, length }, ..]) = (front, spans)
            && *length as usize > SHORT
        {
            memory.read(*address, front)?;
            (self.place, self.head_length) = (Place::behind_first(SHORT as u32), FIRST);
            return Ok(());
        }
        self.begin_cut(memory)
    }

    /// The same, however few they are and wherever they lie.
    #[cold]
    #[inline(never)]
    fn begin_cut<M: Memory>(&mut self, memory: &M) -> Result<(), Violation> {
        let length = NetworkHeader::LENGTH + FIRST.min(self.length as usize);
        let front = self.front.get_mut(..length).unwrap_or_default();
        let read = self.place.read(memory, self.segments.readable(), front)?;
        self.head_length = read.saturating_sub(NetworkHeader::LENGTH);
        Ok(())
    }

    /// Reads more of the first bytes, as far as they lie together: up to [`HEAD`], once.
    #[inline] // On the path of every segment.
    fn extend_near<M: Memory>(&mut self, memory: &M) -> Result<(), Violation> {
        let spans = self.segments.readable();
        let rest = self.front.get_mut(NetworkHeader::LENGTH + self.head_length..).unwrap_or_default();
        let Some(Span { address, length }) = self.place.take(spans, rest.len() as u32) else { return Ok(()) };
        memory.read(address, rest.get_mut(..length as usize).unwrap_or_default())?;
        self.head_length += length as usize;
        Ok(())
    }

    /// Reads more of the first bytes: up to [`HEAD`], once.
    pub fn extend<M: Memory>(&mut self, memory: &M) -> Result<(), Violation> {
        let end = NetworkHeader::LENGTH + HEAD.min(self.length as usize);
        let rest = self.front.get_mut(NetworkHeader::LENGTH + self.head_length..end).unwrap_or_default();
        self.head_length += self.place.read(memory, self.segments.readable(), rest)?;
        Ok(())
    }

    /// Checks what is open in the packet.
    fn check(&mut self, sender: &Accepts) -> Option<()> {
        // Of the sender's header goes on what is checked here.
        let header = self.front.first_chunk().map(NetworkHeader::from_bytes).unwrap_or_default();
        self.header = NetworkHeader { buffers: 1, flags: header.flags & NEEDS_CHECKSUM, ..header };
        let NetworkHeader { flags, gso_type, gso_size, checksum_start, checksum_offset, .. } = self.header;
        let (start, offset) = (usize::from(checksum_start), usize::from(checksum_offset));
        if flags == 0 || !sender.checksum[SENDS] {
            return None;
        }
        self.open = Some(Open::within(start, offset, self.length as usize)?);
        if gso_type == 0 {
            (self.header.header_length, self.header.gso_size) = (0, 0);
            return Some(());
        }
        let is_v6 = match gso_type & !ECN {
            TCP4 if sender.tso4[SENDS] => false,
            TCP6 if sender.tso6[SENDS] => true,
            _ => return None,
        };
        if gso_type & ECN != 0 && !sender.ecn[SENDS] {
            return None;
        }
        let gso = self.segment(is_v6, start, u32::from(gso_size)).filter(|_| offset == 16)?;
        self.header.header_length = gso.payload as u16;
        self.gso = Some(gso);
        Some(())
    }

    /// Finds the headers of a segment. They are where its header says, and all in the head.
    fn segment(&self, is_v6: bool, tcp: usize, size: u32) -> Option<Gso> {
        let head = self.head();
        let word = |at: usize| Some(u16::from_be_bytes([*head.get(at)?, *head.get(at + 1)?]));
        let (kind, ip) = match word(12)? {
            0x8100 | 0x88a8 => (word(16)?, 18),
            kind => (kind, 14),
        };
        let version = head.get(ip)? >> 4;
        let (is_ip, end) = match is_v6 {
            false => {
                let end = ip + 4 * usize::from(head.get(ip)? & 15);
                (kind == 0x0800 && version == 4 && end >= ip + 20 && *head.get(ip + 9)? == 6, end)
            }
            // Extension headers may stand between.
            true => (kind == 0x86dd && version == 6 && tcp >= ip + 40, tcp),
        };
        let length = 4 * usize::from(head.get(tcp + 12)? >> 4);
        let payload = tcp + length;
        let right = is_ip && end == tcp && length >= 20 && payload <= head.len() && size != 0;
        let bytes = self.length.checked_sub(payload as u32).filter(|_| right)?;
        // Each packet has a length that IP can say.
        let longest = (payload - ip) as u32 + size.min(bytes);
        (bytes.div_ceil(size) <= MOST_PACKETS && longest <= 65535).then_some(Gso {
            ip,
            is_v6,
            tcp,
            payload,
            size,
        })
    }

    /// The first bytes of the packet: [`FIRST`], if it has so many, or [`HEAD`] behind [`Frame::extend`].
    #[inline] // On the path of every packet.
    pub fn head(&self) -> &[u8] {
        self.front.get(NetworkHeader::LENGTH..NetworkHeader::LENGTH + self.head_length).unwrap_or_default()
    }

    /// How many bytes the packet has.
    pub const fn length(&self) -> u32 {
        self.length
    }

    /// The buffers that it is in, and where in them the bytes behind the head are.
    #[inline] // On the path of every packet.
    pub fn rest(&self) -> (&[Span], Place) {
        (self.segments.readable(), self.place)
    }

    /// The packet for a receiver that takes it as it is.
    #[inline] // On the path of every packet.
    pub fn packet(&mut self) -> Packet<'_> {
        let rest = self.length.saturating_sub(self.head_length as u32);
        let (spans, front_length) = (self.segments.readable(), NetworkHeader::LENGTH + self.head_length);
        Packet { header: self.header, front: &mut self.front, front_length, spans, place: self.place, rest }
    }

    /// The checksum that is open.
    pub const fn open(&self) -> Option<Open> {
        self.open
    }

    /// The segment that it is.
    pub const fn gso(&self) -> Option<Gso> {
        self.gso
    }

    /// Whether a receiver takes it as it is.
    #[inline] // On the path of every packet.
    pub fn suits(&self, receiver: &Accepts) -> bool {
        let segment = match self.gso {
            None => true,
            Some(Gso { is_v6, .. }) => {
                let version = if is_v6 { receiver.tso6 } else { receiver.tso4 };
                version[TAKES] && (self.header.gso_type & ECN == 0 || receiver.ecn[TAKES])
            }
        };
        segment && (self.open.is_none() || receiver.checksum[TAKES])
    }
}

impl<const N: usize> Default for Frame<N> {
    fn default() -> Self {
        Self::new()
    }
}
