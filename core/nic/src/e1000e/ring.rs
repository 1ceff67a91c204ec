// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A ring of legacy descriptors (sections 7.1.4 and 7.2.10): an address, and a word with length and status.

use turnstile_virtio::memory::{Memory, Outside};

use super::registers::DONE;

/// Bytes of a descriptor.
pub const DESCRIPTOR: u64 = 16;
/// Where length and status are in it.
const LENGTH: u64 = 8;
const STATUS: u64 = 12;

/// What the driver remembers of a descriptor: the memory is the card's, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// The buffer's number.
    pub number: u16,
    /// How many bytes the card may write there, or is to read.
    pub bytes: u16,
}

/// A descriptor that the card has returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Returned {
    /// What it was.
    pub slot: Slot,
    /// How many bytes the card says that there are.
    pub length: u16,
    /// Its status, and its errors in the upper half.
    pub status: u16,
}

/// A ring of `N` descriptors, which has one buffer less: head and tail are the same in an empty one.
#[derive(Debug)]
pub struct Ring<const N: usize> {
    at: u64,
    slots: [Slot; N],
    /// The next descriptor that the card returns, and the next that it gets.
    head: u16,
    tail: u16,
    /// What the card was told.
    shown: u16,
}

impl<const N: usize> Ring<N> {
    /// Lengths of rings are multiples of 128 bytes (sections 10.2.5.6 and 10.2.6.6); this one is within a page.
    const FITS: () = assert!(N != 0 && N.is_multiple_of(8) && N as u64 * DESCRIPTOR <= 4096);

    /// A ring that is nowhere.
    pub const NEW: Self =
        Self { at: 0, slots: [Slot { number: 0, bytes: 0 }; N], head: 0, tail: 0, shown: 0 };

    /// How many bytes it has.
    pub const BYTES: u32 = N as u32 * DESCRIPTOR as u32;

    /// Makes it an empty ring there, in memory, too.
    pub fn begin<M: Memory>(&mut self, memory: &M, at: u64) -> Result<(), Outside> {
        let () = Self::FITS;
        (self.at, self.head, self.tail, self.shown) = (at, 0, 0, 0);
        (0..N as u16).try_for_each(|index| memory.write(self.descriptor(index), &[0; DESCRIPTOR as usize]))
    }

    /// Where it begins.
    pub const fn at(&self) -> u64 {
        self.at
    }

    const fn descriptor(&self, index: u16) -> u64 {
        self.at.wrapping_add(index as u64 * DESCRIPTOR)
    }

    const fn behind(index: u16) -> u16 {
        if index as usize + 1 < N { index + 1 } else { 0 }
    }

    /// How many more buffers have room.
    pub const fn room(&self) -> u16 {
        let used =
            if self.tail >= self.head { self.tail - self.head } else { N as u16 - self.head + self.tail };
        N as u16 - 1 - used
    }

    /// The index of the next descriptor that the card gets.
    pub const fn tail(&self) -> u16 {
        self.tail
    }

    /// Gives the card a descriptor, of which it is told later. There has to be room.
    pub fn add<M: Memory>(&mut self, memory: &M, slot: Slot, words: [u64; 2]) -> Result<(), Outside> {
        let mut bytes = [0; DESCRIPTOR as usize];
        for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        memory.write(self.descriptor(self.tail), &bytes)?;
        if let Some(place) = self.slots.get_mut(usize::from(self.tail)) {
            *place = slot;
        }
        self.tail = Self::behind(self.tail);
        Ok(())
    }

    /// Returns the tail, if the card has not been told of it.
    pub const fn news(&mut self) -> Option<u16> {
        if self.shown == self.tail {
            return None;
        }
        self.shown = self.tail;
        Some(self.tail)
    }

    /// Returns the status of the next descriptor, if the card has returned it. What it has written is seen behind it.
    fn status<M: Memory>(&self, memory: &M) -> Result<Option<u16>, Outside> {
        // What it was not told of is not its to return.
        if self.head == self.shown {
            return Ok(None);
        }
        let status = memory.load(self.descriptor(self.head) + STATUS)?;
        Ok((status & DONE != 0).then_some(status))
    }

    /// Says whether the card has returned a descriptor.
    pub fn has_returned<M: Memory>(&self, memory: &M) -> Result<bool, Outside> {
        Ok(self.status(memory)?.is_some())
    }

    /// Takes the next descriptor that the card has returned.
    #[inline] // Of each packet.
    pub fn take<M: Memory>(&mut self, memory: &M) -> Result<Option<Returned>, Outside> {
        let Some(status) = self.status(memory)? else { return Ok(None) };
        let length = memory.read_u16(self.descriptor(self.head) + LENGTH)?;
        let slot = self.slots.get(usize::from(self.head)).copied();
        self.head = Self::behind(self.head);
        Ok(slot.map(|slot| Returned { slot, length, status }))
    }
}
