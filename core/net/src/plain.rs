// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A packet that lies in one buffer and asks for nothing, for a receiver with room for it in one: most are such. Its first bytes stay in registers,
//! and nothing is written down about it. All others are frames.

use turnstile_virtio::config::NetworkHeader;
use turnstile_virtio::device::{One, Queue, Span};
use turnstile_virtio::memory::Memory;
use turnstile_virtio::ring::Buffer;
use turnstile_virtio::rings::Rings;
use turnstile_virtio::violation::Violation;

use crate::packet::{FIRST, NEEDS_CHECKSUM, SHORT};
use crate::receive::Broken;
use crate::transfer::Transfer;

/// How many bytes decide where a packet goes: two addresses, and a tag with its VLAN.
pub const ENDS: usize = 16;

/// The packet. Its first bytes are read once: what is decided by them is decided by what the receiver gets.
#[derive(Clone, Copy, Debug)]
pub struct Plain {
    /// A header that asks for nothing, and behind it the first bytes.
    pub(crate) front: [u8; SHORT],
    /// The buffer, which has more.
    pub(crate) buffer: Span,
}

impl Plain {
    /// Reads a packet of at most `longest` bytes that is the only buffer of its chain. `None` if it is not one of these.
    ///
    /// # Errors
    /// When the buffer is not the driver's memory.
    #[inline(always)] // On the path of every packet.
    pub fn read<M: Memory>(memory: &M, buffer: Buffer, longest: u32) -> Result<Option<Self>, Violation> {
        let Buffer { address, length, writable } = buffer;
        let behind = length.wrapping_sub(SHORT as u32 + 1);
        if writable || behind >= longest.saturating_sub(FIRST as u32) {
            return Ok(None);
        }
        let mut front = [0; SHORT];
        memory.read(address, &mut front)?;
        let [flags, gso_type, ..] = front;
        if gso_type != 0 || flags & NEEDS_CHECKSUM != 0 {
            return Ok(None);
        }
        let (header, _) = front.split_at_mut(NetworkHeader::LENGTH);
        header.copy_from_slice(&ONE);
        Ok(Some(Self { front, buffer: Span { address, length } }))
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

/// The header of a packet in one buffer that asks for nothing.
const ONE: [u8; NetworkHeader::LENGTH] = {
    let mut bytes = [0; NetworkHeader::LENGTH];
    // The number of buffers (section 5.1.6): 1, as 16 bits at the end, little-endian.
    bytes[NetworkHeader::LENGTH - 2] = 1;
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
