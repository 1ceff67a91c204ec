// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Puts a packet into a driver's buffers (section 5.1.6.3).

use turnstile_virtio::device::{Chain, Place, Queue, Run, Span};
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
    /// In so many spans.
    Enough(usize),
    /// Why not.
    Not(Delivery),
}

impl<const N: usize> Room<N> {
    const FITS: () = assert!(N <= u16::MAX as usize, "a queue has no more chains");

    /// Makes an empty one.
    pub const fn new() -> Self {
        let () = Self::FITS;
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
        let mut run = Run::new(queue, if merge { N as u16 } else { 1 });
        let all = packet.front_length as u64 + u64::from(packet.rest);
        let spans = match self.take(&mut run, to, all)? {
            Taken::Enough(spans) => spans,
            Taken::Not(delivery) => return Ok(delivery),
        };
        packet.header.buffers = run.count();
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
        mut left: u64,
    ) -> Result<Taken, Violation> {
        let mut count = Count::NONE;
        let delivery = loop {
            let Some((head, descriptor)) = run.pop(to)? else {
                break if run.is_full() { Delivery::TooLong } else { Delivery::Full };
            };
            let behind = descriptor.only_written().and_then(|buffer| count.go_on(buffer));
            let bytes = match (behind, descriptor.only()) {
                (Some(bytes), _) => Some(bytes),
                (None, Some(buffer)) => count.begin(&mut self.spans, buffer, to)?,
                (None, None) => {
                    let bytes;
                    (count, bytes) = count.add_all(&mut self.spans, run.chain(head), to)?;
                    bytes
                }
            };
            let Some(bytes) = bytes else { break Delivery::TooLong };
            match left.checked_sub(bytes) {
                // All but the last one are full.
                Some(more) if more != 0 => {
                    run.give_back(to, head, bytes as u32)?;
                    left = more;
                }
                _ => {
                    run.give_back(to, head, left as u32)?;
                    break Delivery::Done;
                }
            }
        };
        self.read = self.read.wrapping_add(count.others.wrapping_add(run.count().into()));
        Ok(match delivery {
            Delivery::Done => match count.finish(&mut self.spans) {
                Some(spans) => Taken::Enough(spans),
                None => Taken::Not(Delivery::TooLong),
            },
            delivery => Taken::Not(delivery),
        })
    }
}

/// The spans that were found for a packet, of one buffer or of several that lie behind each other.
#[derive(Clone, Copy)]
struct Count {
    /// How many are written down.
    spans: usize,
    /// The one that is not yet: where it begins, and where it ends. Without length if there is none.
    begin: u64,
    end: u64,
    /// How many bytes behind it lie together with it, at most as many as a span can have.
    room: u64,
    /// How many buffers were read, of use or not, besides one of each chain.
    others: u32,
}

impl Count {
    const NONE: Self = Self { spans: 0, begin: 0, end: 0, room: 0, others: 0 };

    /// Takes a buffer that the device writes and that lies behind the last one: pages of large packets often do, and then they are one, if they also do where
    /// they are found. Returns how many bytes it has. `None` if that is not so: then it is not taken.
    #[inline(always)] // On the path of every buffer.
    fn go_on(&mut self, Buffer { address, length, .. }: Buffer) -> Option<u64> {
        if address != self.end {
            return None;
        }
        self.room = self.room.checked_sub(length.into())?;
        self.end = address.wrapping_add(length.into());
        Some(length.into())
    }

    /// Takes a buffer that does not lie behind the last one. Returns how many bytes of it are of use; `None` if there are too many buffers.
    #[inline(always)] // On the path of every buffer.
    fn begin<M: Memory>(
        &mut self,
        spans: &mut [Span],
        buffer: Buffer,
        to: &M,
    ) -> Result<Option<u64>, Violation> {
        let Buffer { address, length, writable } = buffer;
        let (bytes, room) = (u64::from(length), to.together(address));
        if room < bytes && !to.contains(address, bytes) {
            return Err(Violation::Outside(address));
        }
        if !writable || length == 0 {
            return Ok(Some(0));
        }
        if self.write_down(spans).is_none() {
            return Ok(None);
        }
        (self.begin, self.end) = (address, address.wrapping_add(bytes));
        self.room = room.min(u32::MAX.into()).saturating_sub(bytes);
        Ok(Some(bytes))
    }

    /// Takes a buffer, wherever it lies. As [`Self::begin`].
    #[inline(always)] // Once below.
    fn add<M: Memory>(
        &mut self,
        spans: &mut [Span],
        buffer: Buffer,
        to: &M,
    ) -> Result<Option<u64>, Violation> {
        match if buffer.writable { self.go_on(buffer) } else { None } {
            Some(bytes) => Ok(Some(bytes)),
            None => self.begin(spans, buffer, to),
        }
    }

    /// Writes the last span down.
    #[inline(always)] // On the path of every packet.
    fn write_down(&mut self, spans: &mut [Span]) -> Option<()> {
        if self.begin != self.end {
            let length = self.end.wrapping_sub(self.begin) as u32;
            *spans.get_mut(self.spans)? = Span { address: self.begin, length };
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
        self.others = self.others.wrapping_sub(1);
        while let Some(buffer) = chain.next(to)? {
            self.others = self.others.wrapping_add(1);
            match self.add(spans, buffer, to)? {
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
    const PIECE: u64 = 1 << 33;

    /// Pieces of memory whose addresses follow each other, and that do not lie together where they are found.
    struct Pieces;

    impl Memory for Pieces {
        fn contains(&self, address: u64, length: u64) -> bool {
            length <= PIECE && address % PIECE <= PIECE - length
        }

        fn together(&self, address: u64) -> u64 {
            PIECE - address % PIECE
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
        let (mut spans, mut count) = ([Span::default(); 3], Count::NONE);
        for (address, length, writable) in buffers.iter().copied() {
            let of_use = if writable { length.into() } else { 0 };
            let buffer = Buffer { address, length, writable };
            assert_eq!(count.add(&mut spans, buffer, &Pieces).unwrap()?, of_use);
        }
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
    fn a_span_has_no_more_bytes_than_it_can_say() {
        let all = [(PIECE, u32::MAX, true), (PIECE + u64::from(u32::MAX), 1, true)];
        assert_eq!(spans(&all), Some(vec![(PIECE, u32::MAX), (PIECE + u64::from(u32::MAX), 1)]));
    }

    #[test]
    fn what_is_not_memory_is_refused_though_it_is_of_no_use() {
        for writable in [true, false] {
            let buffer = Buffer { address: PIECE - 1, length: 2, writable };
            let mut count = Count::NONE;
            assert_eq!(count.add(&mut [], buffer, &Pieces), Err(Violation::Outside(PIECE - 1)));
        }
    }

    #[test]
    fn more_spans_than_there_is_room_for_are_too_many() {
        let apart = [0, 2, 4, 6].map(|page| (page * 0x1000, 0x1000, true));
        assert_eq!(spans(&apart), None);
        assert_eq!(spans(&apart[..3]).map(|spans| spans.len()), Some(3));
    }
}
