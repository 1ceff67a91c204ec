// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Puts a packet into a driver's buffers (section 5.1.6.3).

use turnstile_virtio::device::{Chain, One, Place, Queue, Run, Span};
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
    /// How many buffers were read, of use or not.
    read: u32,
}

/// How much of a [`Room`] a packet has, if it has enough.
enum Taken {
    /// So many buffers, in so many chains.
    Enough(usize, usize),
    /// Why not.
    Not(Delivery),
}

impl<const N: usize> Room<N> {
    /// Makes an empty one.
    pub const fn new() -> Self {
        Self { spans: [Span { address: 0, length: 0 }; N], read: 0 }
    }

    /// How many buffers of drivers were read since this was asked last: also those of no use, of packets that were not delivered, too.
    pub const fn take_read(&mut self) -> u32 {
        core::mem::replace(&mut self.read, 0)
    }

    /// Copies a packet to a driver: `to` is its memory, `from` the sender's. With `merge` it may take several chains. The driver sees it at
    /// once; whether it wants an interrupt is asked by [`Queue::publish`], which must follow. If it is not done, no chain was taken.
    #[inline(always)] // On the path of every packet, of which nothing need be written down for it.
    pub fn deliver<M: Transfer, R: Rings<M>>(
        &mut self,
        (queue, to): (&mut Queue<R>, &M),
        merge: bool,
        from: &M,
        mut packet: Packet<'_>,
    ) -> Result<Delivery, Broken> {
        let mut run = Run::new(queue);
        let all = packet.front_length as u64 + u64::from(packet.rest);
        let (spans, chains) = match self.take(&mut run, to, merge, all)? {
            Taken::Enough(spans, chains) => (spans, chains),
            Taken::Not(delivery) => return Ok(delivery),
        };
        packet.header.buffers = chains as u16;
        let spans = self.spans.get(..spans).unwrap_or_default();
        if let Some(room) = packet.front.first_chunk_mut() {
            *room = packet.header.to_bytes();
        }
        let place = begin(to, spans, packet.front, packet.front_length)?;
        if packet.rest != 0 {
            from.transfer_spans((packet.spans, packet.place), to, (spans, place), packet.rest)?;
        }
        run.complete(to)?;
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

    /// Goes on to the next chain until there is room.
    #[inline(always)] // Once above, where the run and the counts stay in registers.
    fn take<M: Transfer, R: Rings<M>>(
        &mut self,
        run: &mut Run<'_, R>,
        to: &M,
        merge: bool,
        mut left: u64,
    ) -> Result<Taken, Violation> {
        let mut count = Count { spans: 0, last: Span::default(), read: self.read };
        let mut chains = 0;
        let most = if merge { N } else { 1 };
        let mut delivery = Delivery::TooLong;
        while chains < most {
            let (head, bytes) = match run.pop_one(to)? {
                Some(One::Buffer(head, buffer)) => (head, count.add(&mut self.spans, buffer, to)),
                Some(One::Not(head)) => {
                    let bytes;
                    (count, bytes) = count.add_all(&mut self.spans, run.chain(head), to)?;
                    (head, bytes)
                }
                None => {
                    delivery = Delivery::Full;
                    break;
                }
            };
            let Some(bytes) = bytes else { break };
            // All but the last one are full.
            let written = left.min(bytes);
            run.give_back(to, head, written as u32)?;
            chains += 1;
            left -= written;
            if left == 0 {
                delivery = Delivery::Done;
                break;
            }
        }
        self.read = count.read;
        Ok(match delivery {
            Delivery::Done => match count.finish(&mut self.spans) {
                Some(spans) => Taken::Enough(spans, chains),
                None => Taken::Not(Delivery::TooLong),
            },
            delivery => Taken::Not(delivery),
        })
    }
}

/// How many spans were found for a packet, of one buffer or of several that lie behind each other, and how many buffers were read.
#[derive(Clone, Copy)]
struct Count {
    /// Those that are written down.
    spans: usize,
    /// The one that is not yet; without length if there is none.
    last: Span,
    read: u32,
}

impl Count {
    /// Takes a buffer. Returns how many bytes of it are of use; `None` if there are too many buffers.
    #[inline(always)] // On the path of every buffer.
    fn add<M: Memory>(&mut self, spans: &mut [Span], buffer: Buffer, to: &M) -> Option<u64> {
        let Buffer { address, length, writable } = buffer;
        self.read = self.read.wrapping_add(1);
        if !writable || length == 0 {
            return Some(0);
        }
        // Pages of large packets often lie behind each other: then they are one, if they also do where they are found.
        let Span { address: first, length: before } = self.last;
        match before.checked_add(length) {
            Some(whole)
                if first.wrapping_add(before.into()) == address && to.contains(first, whole.into()) =>
            {
                self.last.length = whole;
            }
            _ => {
                self.write_down(spans)?;
                self.last = Span { address, length };
            }
        }
        Some(length.into())
    }

    /// Writes the last span down.
    #[inline(always)] // On the path of every packet.
    fn write_down(&mut self, spans: &mut [Span]) -> Option<()> {
        if self.last.length != 0 {
            *spans.get_mut(self.spans)? = self.last;
            self.spans += 1;
        }
        Some(())
    }

    /// Returns how many spans there are; `None` if they are too many.
    #[inline(always)] // On the path of every packet.
    fn finish(mut self, spans: &mut [Span]) -> Option<usize> {
        self.write_down(spans)?;
        Some(self.spans)
    }

    /// Takes all buffers of a chain.
    #[inline(never)] // Most chains have one. What is counted stays in registers elsewhere.
    fn add_all<M: Memory>(
        mut self,
        spans: &mut [Span],
        mut chain: Chain,
        to: &M,
    ) -> Result<(Self, Option<u64>), Violation> {
        let mut bytes = 0;
        while let Some(buffer) = chain.next(to)? {
            match self.add(spans, buffer, to) {
                Some(more) => bytes += more,
                None => return Ok((self, None)),
            }
        }
        Ok((self, Some(bytes)))
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
    begin_any(to, spans, front.get(..length).unwrap_or_default())
}

/// The same, however many they are and wherever they go.
#[inline(never)] // Long. Those of a segment are more, and usually lie together, too.
fn begin_any<M: Memory>(to: &M, spans: &[Span], front: &[u8]) -> Result<Place, Violation> {
    if let [Span { address, length: room }, ..] = spans
        && *room as usize > front.len()
    {
        to.write(*address, front)?;
        return Ok(Place::behind_first(front.len() as u32));
    }
    let mut place = Place::START;
    place.write(to, spans, front)?;
    Ok(place)
}

impl<const N: usize> Default for Room<N> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::vec;
    use std::vec::Vec;

    use turnstile_virtio::memory::Outside;

    use super::*;

    /// Bytes of a piece.
    const PIECE: u64 = 0x1_0000;

    /// Pieces of memory whose addresses follow each other, and that do not lie together where they are found.
    struct Pieces;

    impl Memory for Pieces {
        fn contains(&self, address: u64, length: u64) -> bool {
            length <= PIECE && address % PIECE <= PIECE - length
        }

        fn load(&self, address: u64) -> Result<u16, Outside> {
            Err(Outside { address })
        }

        fn store(&self, address: u64, _: u16) -> Result<(), Outside> {
            Err(Outside { address })
        }

        fn read(&self, address: u64, _: &mut [u8]) -> Result<(), Outside> {
            Err(Outside { address })
        }

        fn write(&self, address: u64, _: &[u8]) -> Result<(), Outside> {
            Err(Outside { address })
        }

        fn fence(&self) {}
    }

    fn spans(buffers: &[(u64, u32, bool)]) -> Option<Vec<(u64, u32)>> {
        let (mut spans, mut count) =
            ([Span::default(); 3], Count { spans: 0, last: Span::default(), read: 0 });
        for (address, length, writable) in buffers.iter().copied() {
            let of_use = if writable { length.into() } else { 0 };
            let buffer = Buffer { address, length, writable };
            assert_eq!(count.add(&mut spans, buffer, &Pieces)?, of_use);
        }
        assert_eq!(count.read as usize, buffers.len());
        let found = count.finish(&mut spans)?;
        Some(spans[..found].iter().map(|span| (span.address, span.length)).collect())
    }

    #[test]
    fn buffers_behind_each_other_are_one_span() {
        let page = |at| (at, 0x1000, true);
        assert_eq!(spans(&[page(0x1000), page(0x2000), page(0x3000)]), Some(vec![(0x1000, 0x3000)]));
        assert_eq!(spans(&[page(0), page(0x1000)]), Some(vec![(0, 0x2000)]));
        assert_eq!(
            spans(&[page(0x2000), page(0x1000), page(0x2800)]),
            Some(vec![(0x2000, 0x1000), (0x1000, 0x1000), (0x2800, 0x1000)])
        );
        // What is of no use between them is no matter.
        let nothing = [page(0x1000), (0x2000, 0, true), (0x2000, 0x1000, false), page(0x2000)];
        assert_eq!(spans(&nothing), Some(vec![(0x1000, 0x2000)]));
        assert_eq!(spans(&[(0x2000, 0x1000, false)]), Some(vec![]));
    }

    #[test]
    fn buffers_of_two_pieces_are_two_spans() {
        let two = [(PIECE - 0x1000, 0x1000, true), (PIECE, 0x1000, true)];
        assert_eq!(spans(&two), Some(vec![(PIECE - 0x1000, 0x1000), (PIECE, 0x1000)]));
    }

    #[test]
    fn more_spans_than_there_is_room_for_are_too_many() {
        let apart = [0, 2, 4, 6].map(|page| (page * 0x1000, 0x1000, true));
        assert_eq!(spans(&apart), None);
        assert_eq!(spans(&apart[..3]).map(|spans| spans.len()), Some(3));
    }
}
