// SPDX-License-Identifier: Apache-2.0 OR MIT
//! All buffers of a chain, of which each descriptor is read once: for requests whose end must be known at their beginning, and for
//! those that are done in several calls.

use super::chain::Chain;
use crate::memory::Memory;
use crate::ring::Buffer;
use crate::violation::Violation;

/// Bytes in the driver's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// Where they are.
    pub address: u64,
    /// How many; never none in [`Segments`].
    pub length: u32,
}

impl Span {
    /// Leaves out its first bytes, at most all. False if no others are left.
    #[inline(always)] // On the path of every buffer.
    pub(crate) const fn skip(&mut self, bytes: u32) -> bool {
        self.address = self.address.wrapping_add(bytes as u64);
        self.length -= bytes;
        self.length != 0
    }
}

/// The buffers of a chain, up to `N`. Those without bytes are left out.
#[derive(Debug)]
pub struct Segments<const N: usize> {
    spans: [Span; N],
    /// How many the device reads, and how many there are.
    readable: usize,
    count: usize,
    readable_bytes: u64,
    writable_bytes: u64,
}

impl<const N: usize> Segments<N> {
    /// Makes an empty list.
    pub const fn new() -> Self {
        let spans = [Span { address: 0, length: 0 }; N];
        Self { spans, readable: 0, count: 0, readable_bytes: 0, writable_bytes: 0 }
    }

    /// Reads a chain to its end. Whatever was there before is forgotten, also if the chain breaks a rule.
    #[inline] // On the path of every request.
    pub fn gather<M: Memory>(&mut self, memory: &M, chain: &mut Chain) -> Result<(), Violation> {
        let mut buffer = Buffer { address: 0, length: 0, writable: false };
        (self.readable, self.count) = (0, 0);
        // What changes with each buffer stays in registers.
        let (mut walk, mut readable, mut count) = (chain.take(), 0, 0);
        let (mut readable_bytes, mut writable_bytes) = (0, 0);
        loop {
            if buffer.length != 0 {
                let slot = self.spans.get_mut(count).ok_or(Violation::Long)?;
                *slot = Span { address: buffer.address, length: buffer.length };
                count += 1;
                if buffer.writable {
                    writable_bytes += u64::from(buffer.length);
                } else {
                    readable_bytes += u64::from(buffer.length);
                    readable = count;
                }
            }
            if !walk.step(memory, &mut buffer)? {
                break;
            }
        }
        (self.readable, self.count) = (readable, count);
        (self.readable_bytes, self.writable_bytes) = (readable_bytes, writable_bytes);
        Ok(())
    }

    /// One buffer, which the device reads.
    pub const fn set_one(&mut self, span: Span) {
        let [slot, ..] = self.spans.as_mut_slice() else { return };
        *slot = span;
        (self.readable, self.count) = (1, 1);
        (self.readable_bytes, self.writable_bytes) = (span.length as u64, 0);
    }

    /// What the device reads.
    #[inline] // On the path of every request.
    pub fn readable(&self) -> &[Span] {
        self.spans.get(..self.readable).unwrap_or_default()
    }

    /// What it writes.
    #[inline] // On the path of every request.
    pub fn writable(&self) -> &[Span] {
        self.spans.get(self.readable..self.count).unwrap_or_default()
    }

    /// How many bytes it reads: up to 2^32.
    pub const fn readable_bytes(&self) -> u64 {
        self.readable_bytes
    }

    /// How many bytes it writes: up to 2^32.
    pub const fn writable_bytes(&self) -> u64 {
        self.writable_bytes
    }
}

impl<const N: usize> Default for Segments<N> {
    fn default() -> Self {
        Self::new()
    }
}

/// A place among the bytes of spans.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    index: usize,
    /// How many bytes of that span are behind it.
    offset: u32,
}

impl Place {
    /// The first byte.
    pub const START: Self = Self { index: 0, offset: 0 };

    /// So many bytes behind the first one, which are fewer than lie together there.
    #[inline(always)] // A few moves.
    pub const fn behind_first(bytes: u32) -> Self {
        Self { index: 0, offset: bytes }
    }

    /// The next bytes that lie together. `None` behind the last.
    #[inline(always)] // On the path of every packet.
    pub fn peek(&self, spans: &[Span]) -> Option<Span> {
        let span = spans.get(self.index)?;
        let length = span.length.saturating_sub(self.offset);
        Some(Span { address: span.address.wrapping_add(self.offset.into()), length })
    }

    /// The next bytes that lie together, and the spans behind them.
    #[inline(always)] // On the path of every packet.
    pub(crate) fn rest(self, spans: &[Span]) -> (Option<Span>, &[Span]) {
        (self.peek(spans), spans.get(self.index + 1..).unwrap_or_default())
    }

    /// Takes the next bytes that lie together, at most `most`, which is not 0. `None` behind the last.
    #[inline] // On the path of every request.
    pub fn take(&mut self, spans: &[Span], most: u32) -> Option<Span> {
        let Span { address, length: left } = self.peek(spans)?;
        let piece = Span { address, length: left.min(most) };
        if piece.length == left {
            *self = Self { index: self.index + 1, offset: 0 };
        } else {
            self.offset += piece.length;
        }
        Some(piece)
    }

    /// Goes on by `bytes`, or to the end.
    #[inline] // On the path of every request.
    pub fn skip(&mut self, spans: &[Span], mut bytes: u64) {
        while bytes != 0 {
            let most = u32::try_from(bytes).unwrap_or(u32::MAX);
            let Some(piece) = self.take(spans, most) else { break };
            bytes -= u64::from(piece.length);
        }
    }

    /// Reads bytes; returns how many there were.
    #[inline] // On the path of every request.
    pub fn read<M: Memory>(
        &mut self,
        memory: &M,
        spans: &[Span],
        bytes: &mut [u8],
    ) -> Result<usize, Violation> {
        let mut done = 0;
        while let Some(rest) = bytes.get_mut(done..).filter(|rest| !rest.is_empty()) {
            let Some(piece) = self.take(spans, clamp(rest.len())) else { break };
            let length = piece.length as usize;
            memory.read(piece.address, rest.get_mut(..length).unwrap_or_default())?;
            done += length;
        }
        Ok(done)
    }

    /// Writes bytes; returns for how many there was room.
    #[inline] // On the path of every request.
    pub fn write<M: Memory>(&mut self, memory: &M, spans: &[Span], bytes: &[u8]) -> Result<usize, Violation> {
        let mut done = 0;
        while let Some(rest) = bytes.get(done..).filter(|rest| !rest.is_empty()) {
            let Some(piece) = self.take(spans, clamp(rest.len())) else { break };
            let length = piece.length as usize;
            memory.write(piece.address, rest.get(..length).unwrap_or_default())?;
            done += length;
        }
        Ok(done)
    }
}

fn clamp(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}
