// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Puts a packet into a driver's buffers (section 5.1.6.3).

use turnstile_virtio::device::{Chain, One, Place, Queue, Span, Token};
use turnstile_virtio::memory::Memory;
use turnstile_virtio::ring::Buffer;
use turnstile_virtio::rings::Rings;
use turnstile_virtio::violation::Violation;

use crate::packet::{FRONT, Packet, SHORT};
use crate::transfer::{End, Transfer};

/// What became of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// The driver has it.
    Done,
    /// There are not enough buffers now.
    Full,
    /// It is longer than what the driver has for a packet, and never fits.
    TooLong,
}

/// Why a packet cannot be delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    /// The receiver breaks a rule.
    Receiver(Violation),
    /// The sender does.
    Sender(Violation),
}

impl From<Violation> for Broken {
    fn from(violation: Violation) -> Self {
        Self::Receiver(violation)
    }
}

impl From<End> for Broken {
    fn from(end: End) -> Self {
        match end {
            End::From(outside) => Self::Sender(outside.into()),
            End::To(outside) => Self::Receiver(outside.into()),
        }
    }
}

/// The buffers for a packet: up to `N`, in up to `N` chains. Reused for the next one.
#[derive(Debug)]
pub struct Room<const N: usize> {
    spans: [Span; N],
    count: usize,
    chains: [Option<(Token, u32)>; N],
    chain_count: usize,
    /// How many buffers were read, of use or not.
    read: u32,
}

impl<const N: usize> Room<N> {
    /// Makes an empty one.
    pub const fn new() -> Self {
        Self {
            spans: [Span { address: 0, length: 0 }; N],
            count: 0,
            chains: [const { None }; N],
            chain_count: 0,
            read: 0,
        }
    }

    /// How many buffers of drivers were read since this was asked last: also those of no use, of packets that were not delivered, too.
    pub const fn take_read(&mut self) -> u32 {
        core::mem::replace(&mut self.read, 0)
    }

    /// Copies a packet to a driver: `to` is its memory, `from` the sender's. With `merge` it may take several chains. The driver sees it at
    /// once; whether it wants an interrupt is asked by [`Queue::publish`], which must follow.
    #[inline(always)] // On the path of every packet, of which nothing need be written down for it.
    pub fn deliver<M: Transfer, R: Rings<M>>(
        &mut self,
        (queue, to): (&mut Queue<R>, &M),
        merge: bool,
        from: &M,
        mut packet: Packet<'_>,
    ) -> Result<Delivery, Broken> {
        let all = packet.front_length as u64 + u64::from(packet.rest);
        let delivery = self.take(queue, to, merge, all)?;
        if delivery != Delivery::Done {
            return Ok(delivery);
        }
        packet.header.buffers = self.chain_count as u16;
        let spans = self.spans.get(..self.count).unwrap_or_default();
        if let Some(room) = packet.front.first_chunk_mut() {
            *room = packet.header.to_bytes();
        }
        let mut place = begin(to, spans, packet.front, packet.front_length)?;
        let mut left = packet.rest;
        while left != 0 {
            // The buffers of both sides end where they want to; each piece lies in one of both.
            let (Some(source), Some(target)) = (packet.place.peek(packet.spans), place.peek(spans)) else {
                break;
            };
            let length = source.length.min(target.length).min(left);
            from.transfer(Span { length, ..source }, to, target.address)?;
            left -= length;
            if left == 0 {
                break;
            }
            packet.place.take(packet.spans, length);
            place.take(spans, length);
        }
        self.complete(queue, to, all)?;
        Ok(Delivery::Done)
    }

    /// [`Room::deliver`] for those that are not on the path of every packet.
    #[inline(never)]
    pub(crate) fn deliver_apart<M: Transfer, R: Rings<M>>(
        &mut self,
        to: (&mut Queue<R>, &M),
        merge: bool,
        from: &M,
        packet: Packet<'_>,
    ) -> Result<Delivery, Broken> {
        self.deliver(to, merge, from, packet)
    }

    /// Takes chains until there is room; gives them back if there is not.
    #[inline(always)] // Once above, where the queue stays in registers.
    fn take<M: Transfer, R: Rings<M>>(
        &mut self,
        queue: &mut Queue<R>,
        to: &M,
        merge: bool,
        all: u64,
    ) -> Result<Delivery, Violation> {
        (self.count, self.chain_count) = (0, 0);
        let mut room = 0;
        while room < all {
            let full = !merge && self.chain_count != 0 || self.chain_count == N;
            let one = if full { None } else { queue.pop_one(to)? };
            let Some(one) = one else {
                self.give_back(queue);
                return Ok(if full { Delivery::TooLong } else { Delivery::Full });
            };
            let (token, bytes) = match one {
                One::Buffer(token, buffer) => (token, self.add(buffer)),
                One::Not(token) => self.add_all(queue.chain(token), to)?,
            };
            let Some(bytes) = bytes else {
                queue.put_back(token);
                self.give_back(queue);
                return Ok(Delivery::TooLong);
            };
            room += bytes;
            if let Some(slot) = self.chains.get_mut(self.chain_count) {
                *slot = Some((token, u32::try_from(bytes).unwrap_or(u32::MAX)));
                self.chain_count += 1;
            }
        }
        Ok(Delivery::Done)
    }

    /// Takes a buffer. Returns how many bytes of it are of use; `None` if there are too many buffers.
    #[inline(always)] // On the path of every buffer.
    fn add(&mut self, buffer: Buffer) -> Option<u64> {
        self.read = self.read.wrapping_add(1);
        if !buffer.writable || buffer.length == 0 {
            return Some(0);
        }
        *self.spans.get_mut(self.count)? = Span { address: buffer.address, length: buffer.length };
        self.count += 1;
        Some(buffer.length.into())
    }

    /// Takes all buffers of a chain.
    #[inline(never)] // Most chains have one.
    fn add_all<M: Memory>(&mut self, mut chain: Chain, to: &M) -> Result<(Token, Option<u64>), Violation> {
        let mut bytes = 0;
        while let Some(buffer) = chain.next(to)? {
            match self.add(buffer) {
                Some(more) => bytes += more,
                None => return Ok((chain.finish(), None)),
            }
        }
        Ok((chain.finish(), Some(bytes)))
    }

    /// Gives all chains back, the last one first.
    #[cold]
    fn give_back<R>(&mut self, queue: &mut Queue<R>) {
        let chains = self.chains.get_mut(..self.chain_count).unwrap_or_default();
        chains.iter_mut().rev().filter_map(Option::take).for_each(|(token, _)| queue.put_back(token));
    }

    /// Returns all chains at once: the driver sees the whole packet or nothing.
    #[inline(always)] // On the path of every packet.
    fn complete<M: Transfer, R: Rings<M>>(
        &mut self,
        queue: &mut Queue<R>,
        to: &M,
        mut left: u64,
    ) -> Result<(), Violation> {
        let chains = self.chains.get_mut(..self.chain_count).unwrap_or_default();
        for (token, bytes) in chains.iter_mut().filter_map(Option::take) {
            let written = left.min(bytes.into());
            queue.complete(to, token, written as u32)?;
            left -= written;
        }
        queue.show(to)
    }
}

/// Writes the first bytes of a packet to a driver's buffers. Returns the place behind them.
#[inline(always)] // On the path of every packet.
fn begin<M: Memory>(to: &M, spans: &[Span], front: &[u8; FRONT], length: usize) -> Result<Place, Violation> {
    // Most packets have as many, and most buffers have room for more.
    if let (Some(front), [Span { address, length: room }, ..]) = (front.first_chunk::<SHORT>(), spans)
        && length == SHORT
        && *room as usize > SHORT
    {
        to.write(*address, front)?;
        return Ok(Place::behind_first(SHORT as u32));
    }
    begin_cut(to, spans, front.get(..length).unwrap_or_default())
}

/// The same, however many they are and wherever they go.
#[cold]
#[inline(never)]
fn begin_cut<M: Memory>(to: &M, spans: &[Span], front: &[u8]) -> Result<Place, Violation> {
    let mut place = Place::START;
    place.write(to, spans, front)?;
    Ok(place)
}

impl<const N: usize> Default for Room<N> {
    fn default() -> Self {
        Self::new()
    }
}
