// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A packet that lies in one buffer and is no segment, for a receiver with room for it in one: most are such. Its first bytes stay in registers,
//! and nothing is written down about it. All others are frames.

use turnstile_virtio::config::NetworkHeader;
use turnstile_virtio::device::{One, Queue, Span};
use turnstile_virtio::memory::Memory;
use turnstile_virtio::ring::Buffer;
use turnstile_virtio::rings::Rings;
use turnstile_virtio::violation::Violation;

use crate::packet::{FIRST, NEEDS_CHECKSUM, Open, SHORT};
use crate::receive::Broken;
use crate::transfer::Transfer;

/// How many bytes decide where a packet goes: two addresses, and a tag with its VLAN.
pub const ENDS: usize = 16;

/// The packet. Its first bytes are read once: what is decided by them is decided by what the receiver gets.
#[derive(Clone, Copy, Debug)]
pub struct Plain {
    /// A header as the receiver gets it, and behind it the first bytes.
    pub(crate) front: [u8; SHORT],
    /// The buffer, which has more.
    pub(crate) buffer: Span,
}

impl Plain {
    /// Reads a packet of at most `longest` bytes that is the only buffer of its chain; with `OPEN` also one whose checksum is open, which its driver may or
    /// may not leave so. `None` if it is not one of these.
    ///
    /// # Errors
    /// When the buffer is not the driver's memory.
    #[inline(always)] // On the path of every packet.
    pub fn read<M: Memory, const OPEN: bool>(
        memory: &M,
        buffer: Buffer,
        longest: u32,
    ) -> Result<Option<Self>, Violation> {
        let Buffer { address, length, writable } = buffer;
        let behind = length.wrapping_sub(SHORT as u32 + 1);
        if writable || behind >= longest.saturating_sub(FIRST as u32) {
            return Ok(None);
        }
        let mut front = [0; SHORT];
        memory.read(address, &mut front)?;
        let [flags, gso_type, ..] = front;
        if gso_type != 0 {
            return Ok(None);
        }
        let buffer = Span { address, length };
        let (header, _) = front.split_at_mut(NetworkHeader::LENGTH);
        if flags & NEEDS_CHECKSUM == 0 {
            header.copy_from_slice(&ONE);
        } else {
            if !OPEN || open(header, buffer).is_none() {
                return Ok(None);
            }
            // What is open stays.
            let (before, place) = header.split_at_mut(OPEN_AT);
            before.copy_from_slice(&CHECKSUM);
            let (_, behind) = place.split_at_mut(OPEN_LENGTH);
            behind.copy_from_slice(&BUFFERS);
        }
        Ok(Some(Self { front, buffer }))
    }

    /// Whether its checksum is open.
    #[inline(always)] // A bit.
    pub const fn is_open(&self) -> bool {
        let [flags, ..] = self.front;
        flags & NEEDS_CHECKSUM != 0
    }

    /// The checksum that is open.
    pub fn open(&self) -> Option<Open> {
        if self.is_open() { open(&self.front, self.buffer) } else { None }
    }

    /// The first bytes.
    #[inline(always)] // A few moves.
    pub const fn head(&self) -> &[u8; FIRST] {
        let (_, head) = self.front.split_at(NetworkHeader::LENGTH);
        match head.first_chunk() {
            Some(head) => head,
            None => &[0; FIRST],
        }
    }

    /// Its addresses, and a tag if there is one.
    #[inline(always)] // A few moves.
    pub const fn ends(&self) -> &[u8; ENDS] {
        match self.head().first_chunk() {
            Some(ends) => ends,
            None => &[0; ENDS],
        }
    }

    /// How many bytes the packet has.
    #[inline(always)] // A subtraction.
    pub const fn length(&self) -> u32 {
        self.buffer.length - NetworkHeader::LENGTH as u32
    }

    /// Reads the bytes that tell the packet's flow, of which the first ones are [`Plain::head`]: as many as `N`, or all. Nobody is to decide by them what
    /// matters to anybody but the sender: it may change them before they are copied.
    ///
    /// # Errors
    /// When the buffer is not the driver's memory.
    #[inline(always)] // On the path of every packet of a driver with several pairs of queues.
    pub fn longer_head<M: Memory, const N: usize>(
        &self,
        memory: &M,
        head: &mut [u8; N],
    ) -> Result<usize, Violation> {
        let length = N.min(self.length() as usize);
        let (first, rest) = head.split_at_mut(FIRST);
        first.copy_from_slice(self.head());
        let address = self.buffer.address.wrapping_add(SHORT as u64);
        match length {
            // Most have so many, which is a few words then.
            _ if length == N => memory.read(address, rest)?,
            _ => memory.read(address, rest.get_mut(..length - FIRST).unwrap_or_default())?,
        }
        Ok(length)
    }

    /// Copies it to a driver whose next chain is one buffer with room for all of it. False if that is not so: then nothing has happened.
    /// As after [`Room::deliver`](crate::receive::Room::deliver), [`Queue::publish`] must follow.
    ///
    /// # Errors
    /// When one of the two breaks a rule.
    #[inline(always)] // On the path of every packet.
    pub fn deliver<M: Transfer, R: Rings<M>>(
        &self,
        (queue, to): (&mut Queue<R>, &M),
        from: &M,
    ) -> Result<bool, Broken> {
        let Span { address, length } = self.buffer;
        let (token, target) = match queue.pop_one(to)? {
            Some(One::Buffer(token, Buffer { address, length: room, writable: true })) if room >= length => {
                (token, address)
            }
            Some(One::Buffer(token, _) | One::Not(token)) => {
                queue.put_back(token);
                return Ok(false);
            }
            None => return Ok(false),
        };
        let rest = Span { address: address.wrapping_add(SHORT as u64), length: length - SHORT as u32 };
        from.transfer_behind(&self.front, rest, to, target)?;
        queue.complete(to, token, length)?;
        Ok(true)
    }
}

/// The checksum that a header leaves open, if that makes sense with such a buffer (section 5.1.6.2).
#[inline] // On the path of every packet that has one.
fn open(header: &[u8], buffer: Span) -> Option<Open> {
    let [start_low, start_high, offset_low, offset_high] = *header.get(OPEN_AT..)?.first_chunk()?;
    let start = usize::from(u16::from_le_bytes([start_low, start_high]));
    let offset = usize::from(u16::from_le_bytes([offset_low, offset_high]));
    Open::within(start, offset, buffer.length as usize - NetworkHeader::LENGTH)
}

/// Where a header says what is open, and in how many bytes.
const OPEN_AT: usize = 6;
const OPEN_LENGTH: usize = 4;
/// What is before that if a checksum is open, and nothing else is asked for.
const CHECKSUM: [u8; OPEN_AT] = [NEEDS_CHECKSUM, 0, 0, 0, 0, 0];
/// The number of buffers (section 5.1.6): 1, as 16 bits at the end, little-endian.
const BUFFERS: [u8; 2] = [1, 0];

/// The header of a packet in one buffer that asks for nothing.
const ONE: [u8; NetworkHeader::LENGTH] = {
    let mut bytes = [0; NetworkHeader::LENGTH];
    [bytes[NetworkHeader::LENGTH - 2], bytes[NetworkHeader::LENGTH - 1]] = BUFFERS;
    bytes
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_is_that_of_one_buffer() {
        assert_eq!(ONE, NetworkHeader { buffers: 1, ..NetworkHeader::PLAIN }.to_bytes());
    }
}
