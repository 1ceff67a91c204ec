// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The bytes of a disk of the machine, and what was done with them.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;

use turnstile_block::disk::{Disk, DiskFor, Failure, SECTOR};
use turnstile_block::ram::RamDisk;
use turnstile_virtio::device::Span;
use turnstile_virtio::memory::Memory;

/// Bytes, some of them in sectors that are bad.
#[derive(Debug)]
pub struct Platter {
    /// The bytes.
    pub bytes: RefCell<Vec<u8>>,
    /// Sectors that can be neither read nor written.
    pub bad: RefCell<BTreeSet<u64>>,
    /// How often it was flushed.
    pub flushes: Cell<u32>,
    /// What was discarded, in bytes: from where, how many. It holds ones then.
    pub discarded: RefCell<Vec<(u64, u64)>>,
    /// What was filled with zeroes, and whether it might be discarded.
    pub zeroed: RefCell<Vec<(u64, u64, bool)>>,
}

impl Platter {
    /// Makes so many sectors of zeroes.
    pub fn new(sectors: u64) -> Self {
        Self {
            bytes: RefCell::new(vec![0; (sectors * SECTOR) as usize]),
            bad: RefCell::default(),
            flushes: Cell::new(0),
            discarded: RefCell::default(),
            zeroed: RefCell::default(),
        }
    }

    /// Does something with a disk of its bytes, if none of these is in a bad sector.
    fn with<R>(
        &self,
        (at, length): (u64, u64),
        work: impl FnOnce(&mut RamDisk<&mut [u8]>) -> Result<R, Failure>,
    ) -> Result<R, Failure> {
        let end = at.checked_add(length).ok_or(Failure::Io)?;
        let sectors = at / SECTOR..end.div_ceil(SECTOR);
        if self.bad.borrow().range(sectors).next().is_some() {
            return Err(Failure::Io);
        }
        work(&mut RamDisk::new(&mut self.bytes.borrow_mut()[..]))
    }
}

impl Disk for &Platter {
    fn sectors(&self) -> u64 {
        self.bytes.borrow().len() as u64 / SECTOR
    }

    fn flush(&mut self) -> Result<(), Failure> {
        self.flushes.update(|count| count + 1);
        Ok(())
    }

    fn discard(&mut self, at: u64, length: u64) -> Result<(), Failure> {
        self.with((at, length), |disk| disk.discard(at, length))?;
        self.bytes.borrow_mut()[at as usize..][..length as usize].fill(0xff);
        self.discarded.borrow_mut().push((at, length));
        Ok(())
    }

    fn zero(&mut self, at: u64, length: u64, may_discard: bool) -> Result<(), Failure> {
        self.with((at, length), |disk| disk.zero(at, length, may_discard))?;
        self.zeroed.borrow_mut().push((at, length, may_discard));
        Ok(())
    }
}

impl<M: Memory> DiskFor<M> for &Platter {
    fn read(&mut self, at: u64, memory: &M, to: Span) -> Result<(), Failure> {
        self.with((at, to.length.into()), |disk| disk.read(at, memory, to))
    }

    fn write(&mut self, at: u64, memory: &M, from: Span) -> Result<(), Failure> {
        self.with((at, from.length.into()), |disk| disk.write(at, memory, from))
    }
}
