// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A disk in RAM.

use turnstile_virtio::device::Span;
use turnstile_virtio::memory::Memory;

use crate::disk::{Disk, DiskFor, Failure, SECTOR, inside};

/// Bytes that can be read, in pieces.
pub trait Image {
    /// How many there are.
    fn length(&self) -> u64;

    /// At least one and at most `most` bytes from `at`, as many as lie together; `None` behind the end.
    fn piece(&self, at: u64, most: u64) -> Option<&[u8]>;
}

/// Bytes that can be written, too.
pub trait Store: Image {
    /// As [`Image::piece`].
    fn piece_mut(&mut self, at: u64, most: u64) -> Option<&mut [u8]>;
}

impl Image for &[u8] {
    fn length(&self) -> u64 {
        self.len() as u64
    }

    #[inline] // On the path of every request.
    fn piece(&self, at: u64, most: u64) -> Option<&[u8]> {
        begin(self, at, most)
    }
}

impl Image for &mut [u8] {
    fn length(&self) -> u64 {
        self.len() as u64
    }

    #[inline] // On the path of every request.
    fn piece(&self, at: u64, most: u64) -> Option<&[u8]> {
        begin(self, at, most)
    }
}

impl Store for &mut [u8] {
    #[inline] // On the path of every request.
    fn piece_mut(&mut self, at: u64, most: u64) -> Option<&mut [u8]> {
        let rest = self.get_mut(usize::try_from(at).ok()?..)?;
        let length = rest.len().min(usize::try_from(most).unwrap_or(usize::MAX));
        rest.get_mut(..length).filter(|piece| !piece.is_empty())
    }
}

fn begin(bytes: &[u8], at: u64, most: u64) -> Option<&[u8]> {
    let rest = bytes.get(usize::try_from(at).ok()?..)?;
    let length = rest.len().min(usize::try_from(most).unwrap_or(usize::MAX));
    rest.get(..length).filter(|piece| !piece.is_empty())
}

/// Copies bytes of an image to the driver's memory.
#[inline] // On the path of every request.
pub(crate) fn to_memory<I: Image, M: Memory>(
    image: &I,
    mut at: u64,
    memory: &M,
    to: Span,
) -> Result<(), Failure> {
    let Span { mut address, length } = to;
    let mut left = u64::from(length);
    while left != 0 {
        let piece = image.piece(at, left).ok_or(Failure::Io)?;
        memory.write(address, piece)?;
        let done = piece.len() as u64;
        (at, address, left) = (at + done, address.wrapping_add(done), left.saturating_sub(done));
    }
    Ok(())
}

/// Copies bytes from the driver's memory to a store.
#[inline] // On the path of every request.
pub(crate) fn from_memory<S: Store, M: Memory>(
    store: &mut S,
    mut at: u64,
    memory: &M,
    from: Span,
) -> Result<(), Failure> {
    let Span { mut address, length } = from;
    let mut left = u64::from(length);
    while left != 0 {
        let piece = store.piece_mut(at, left).ok_or(Failure::Io)?;
        memory.read(address, piece)?;
        let done = piece.len() as u64;
        (at, address, left) = (at + done, address.wrapping_add(done), left.saturating_sub(done));
    }
    Ok(())
}

/// Fills bytes of a store with zeroes.
pub(crate) fn fill<S: Store>(store: &mut S, mut at: u64, mut left: u64) -> Result<(), Failure> {
    while left != 0 {
        let piece = store.piece_mut(at, left).ok_or(Failure::Io)?;
        piece.fill(0);
        let done = piece.len() as u64;
        (at, left) = (at + done, left.saturating_sub(done));
    }
    Ok(())
}

/// A disk whose bytes are those of a store. What is behind its last whole sector is not used.
#[derive(Debug)]
pub struct RamDisk<S> {
    store: S,
}

impl<S: Store> RamDisk<S> {
    /// Makes a disk of what the store holds.
    pub const fn new(store: S) -> Self {
        Self { store }
    }

    /// Takes the disk out of the device.
    pub fn into_store(self) -> S {
        self.store
    }
}

impl<S: Store> Disk for RamDisk<S> {
    fn sectors(&self) -> u64 {
        self.store.length() / SECTOR
    }

    /// There is nothing to do: RAM does not survive a loss of power.
    fn flush(&mut self) -> Result<(), Failure> {
        Ok(())
    }

    fn discard(&mut self, at: u64, length: u64) -> Result<(), Failure> {
        inside(at, length, self.store.length())
    }

    fn zero(&mut self, at: u64, length: u64, _: bool) -> Result<(), Failure> {
        inside(at, length, self.store.length())?;
        fill(&mut self.store, at, length)
    }
}

impl<M: Memory, S: Store> DiskFor<M> for RamDisk<S> {
    #[inline] // On the path of every request.
    fn read(&mut self, at: u64, memory: &M, to: Span) -> Result<(), Failure> {
        inside(at, to.length.into(), self.store.length())?;
        to_memory(&self.store, at, memory, to)
    }

    #[inline] // On the path of every request.
    fn write(&mut self, at: u64, memory: &M, from: Span) -> Result<(), Failure> {
        inside(at, from.length.into(), self.store.length())?;
        from_memory(&mut self.store, at, memory, from)
    }
}
