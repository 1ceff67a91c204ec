// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A part of a disk as a disk.

use turnstile_virtio::device::Span;
use turnstile_virtio::memory::Memory;

use crate::disk::{Disk, DiskFor, Failure, SECTOR, inside};

/// A part of a disk.
#[derive(Debug)]
pub struct Partition<D> {
    disk: D,
    first: u64,
    sectors: u64,
}

impl<D: Disk> Partition<D> {
    /// Makes a disk of `sectors` from `first`; `None` if they are not all on the disk.
    pub fn new(disk: D, first: u64, sectors: u64) -> Option<Self> {
        let end = first.checked_add(sectors)?;
        (end <= disk.sectors()).then_some(Self { disk, first, sectors })
    }

    /// The position on the whole disk.
    #[inline] // On the path of every request.
    fn position(&self, at: u64, length: u64) -> Result<u64, Failure> {
        inside(at, length, self.sectors * SECTOR)?;
        Ok(self.first * SECTOR + at)
    }
}

impl<D: Disk> Disk for Partition<D> {
    fn sectors(&self) -> u64 {
        self.sectors
    }

    fn piece(&self, at: u64) -> u64 {
        self.disk.piece(self.first * SECTOR + at)
    }

    fn range_piece(&self) -> u64 {
        self.disk.range_piece()
    }

    fn flush(&mut self) -> Result<(), Failure> {
        self.disk.flush()
    }

    fn discard(&mut self, at: u64, length: u64) -> Result<(), Failure> {
        self.disk.discard(self.position(at, length)?, length)
    }

    fn zero(&mut self, at: u64, length: u64, may_discard: bool) -> Result<(), Failure> {
        self.disk.zero(self.position(at, length)?, length, may_discard)
    }
}

impl<M: Memory, D: DiskFor<M>> DiskFor<M> for Partition<D> {
    #[inline] // On the path of every request.
    fn read(&mut self, at: u64, memory: &M, to: Span) -> Result<(), Failure> {
        self.disk.read(self.position(at, to.length.into())?, memory, to)
    }

    #[inline] // On the path of every request.
    fn write(&mut self, at: u64, memory: &M, from: Span) -> Result<(), Failure> {
        self.disk.write(self.position(at, from.length.into())?, memory, from)
    }
}
