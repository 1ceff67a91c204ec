// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A guest's memory.

use std::cell::{Cell, RefCell};
use std::ops::Range;

use turnstile_net::transfer::Transfer;
use turnstile_virtio::memory::{Memory, Outside};

use crate::fuse::Fuse;
use crate::random::Random;

/// Plain memory at [`Ram::BASE`].
#[derive(Debug)]
pub struct Ram {
    bytes: RefCell<Vec<u8>>,
    /// Behind it, accesses have no effect; the write that it cuts off is half done.
    pub fuse: Fuse,
    /// If not zero: after each read something that was read may change, as by another CPU.
    pub restless: Cell<u64>,
    /// Other memory that devices reach behind this one, by addresses from there on.
    pub lent: Cell<Option<(u64, &'static Ram)>>,
}

impl Ram {
    /// Where memory begins.
    pub const BASE: u64 = 0x4000_0000;

    /// Makes `length` bytes, all zero.
    pub fn new(length: usize, fuse: Fuse) -> Self {
        Self { bytes: RefCell::new(vec![0; length]), fuse, restless: Cell::new(0), lent: Cell::new(None) }
    }

    /// How many bytes it has.
    pub fn length(&self) -> usize {
        self.bytes.borrow().len()
    }

    fn span(&self, address: u64, length: usize) -> Result<Range<usize>, Outside> {
        let inside = self.contains(address, length as u64);
        let begin = address.checked_sub(Self::BASE).filter(|_| inside).ok_or(Outside { address })? as usize;
        Ok(begin..begin + length)
    }

    /// The driver writes: no fuse holds it up.
    pub fn put(&self, address: u64, bytes: &[u8]) {
        let span = self.span(address, bytes.len()).expect("the test writes to memory");
        self.bytes.borrow_mut()[span].copy_from_slice(bytes);
    }

    /// The driver reads.
    pub fn get(&self, address: u64, length: usize) -> Vec<u8> {
        let span = self.span(address, length).expect("the test reads from memory");
        self.bytes.borrow()[span].to_vec()
    }

    /// A hostile driver: changes a byte among the first `length`, goes on changing what is read, and has the steps counted from here.
    pub fn disturb(&self, random: &mut Random, length: u64) {
        self.put(Self::BASE + random.below(length), &[random.any() as u8]);
        self.restless.set(random.any() | 1);
        self.fuse.mend();
    }

    /// Something that was read changes.
    fn stir(&self, span: Range<usize>) {
        if self.restless.get() == 0 || span.is_empty() {
            return;
        }
        let mut random = Random(self.restless.get());
        if random.below(2) == 0 {
            let at = span.start + random.below(span.len() as u64) as usize;
            // Small changes keep some sense.
            self.bytes.borrow_mut()[at] ^= 1 << random.below(8);
        }
        self.restless.set(random.any());
    }
}

impl Memory for Ram {
    fn contains(&self, address: u64, length: u64) -> bool {
        let end = Self::BASE + self.length() as u64;
        length == 0 || address >= Self::BASE && address.checked_add(length).is_some_and(|last| last <= end)
    }

    fn together(&self, address: u64) -> u64 {
        let behind = address.checked_sub(Self::BASE);
        behind.map_or(0, |behind| (self.length() as u64).saturating_sub(behind))
    }

    fn load(&self, address: u64) -> Result<u16, Outside> {
        assert_eq!(address % 2, 0);
        self.read_u16(address)
    }

    fn store(&self, address: u64, value: u16) -> Result<(), Outside> {
        assert_eq!(address % 2, 0);
        // At once: it is done or not.
        match self.fuse.step() {
            true => self.write_now(address, &value.to_le_bytes()),
            false => Err(Outside { address }),
        }
    }

    fn read(&self, address: u64, bytes: &mut [u8]) -> Result<(), Outside> {
        if bytes.is_empty() {
            return Ok(());
        }
        let span = self.span(address, bytes.len())?;
        if !self.fuse.step() {
            return Err(Outside { address });
        }
        bytes.copy_from_slice(&self.bytes.borrow()[span.clone()]);
        self.stir(span);
        Ok(())
    }

    fn write(&self, address: u64, bytes: &[u8]) -> Result<(), Outside> {
        let before = self.fuse.is_blown();
        if self.fuse.step() {
            return self.write_now(address, bytes);
        }
        if !before {
            self.write_now(address, &bytes[..bytes.len() / 2])?;
        }
        Err(Outside { address })
    }

    fn fence(&self) {}
}

impl Transfer for Ram {}

impl Ram {
    fn write_now(&self, address: u64, bytes: &[u8]) -> Result<(), Outside> {
        if !bytes.is_empty() {
            let span = self.span(address, bytes.len())?;
            self.bytes.borrow_mut()[span].copy_from_slice(bytes);
        }
        Ok(())
    }
}
