// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Memory for tests, and what they have in common.

#![allow(dead_code, reason = "each test uses its part")]

pub mod disk;
pub mod model;
pub mod ring;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use turnstile_virtio::memory::{Memory, Outside};
use turnstile_virtio::ring::Areas;

/// Where memory begins.
pub const BASE: u64 = 0x4000_0000;

/// Marsaglia's xorshift64.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}

/// Plain memory at [`BASE`].
pub struct Ram {
    bytes: RefCell<Vec<u8>>,
    /// How often each byte was read, if that is counted.
    pub reads: Option<RefCell<BTreeMap<u64, u32>>>,
    /// If not zero: after each read something that was read may change, as by another CPU.
    pub restless: Cell<u64>,
}

impl Ram {
    pub fn new(length: usize) -> Self {
        Self { bytes: RefCell::new(vec![0; length]), reads: None, restless: Cell::new(0) }
    }

    fn span(&self, address: u64, length: usize) -> Result<std::ops::Range<usize>, Outside> {
        let outside = Outside { address };
        if !self.contains(address, length as u64) {
            return Err(outside);
        }
        let begin = address.checked_sub(BASE).ok_or(outside)? as usize;
        Ok(begin..begin + length)
    }

    pub fn put(&self, address: u64, bytes: &[u8]) {
        self.write(address, bytes).unwrap();
    }

    pub fn get<const N: usize>(&self, address: u64) -> [u8; N] {
        let span = self.span(address, N).unwrap();
        self.bytes.borrow()[span].try_into().unwrap()
    }

    fn after_read(&self, address: u64, length: usize) {
        if let Some(reads) = &self.reads {
            (address..address + length as u64).for_each(|at| *reads.borrow_mut().entry(at).or_default() += 1);
        }
        if self.restless.get() != 0 && length != 0 {
            let mut random = Random(self.restless.get());
            if random.below(2) == 0 {
                let span = self.span(address + random.below(length as u64), 1).unwrap();
                // Small changes keep some sense.
                self.bytes.borrow_mut()[span.start] ^= 1 << random.below(8);
            }
            self.restless.set(random.next());
        }
    }
}

impl Memory for Ram {
    fn contains(&self, address: u64, length: u64) -> bool {
        let end = BASE + self.bytes.borrow().len() as u64;
        length == 0 || address >= BASE && address.checked_add(length).is_some_and(|last| last <= end)
    }

    fn load(&self, address: u64) -> Result<u16, Outside> {
        assert_eq!(address % 2, 0);
        self.read_u16(address)
    }

    fn store(&self, address: u64, value: u16) -> Result<(), Outside> {
        assert_eq!(address % 2, 0);
        self.write(address, &value.to_le_bytes())
    }

    fn read(&self, address: u64, bytes: &mut [u8]) -> Result<(), Outside> {
        if bytes.is_empty() {
            return Ok(());
        }
        let span = self.span(address, bytes.len())?;
        bytes.copy_from_slice(&self.bytes.borrow()[span]);
        self.after_read(address, bytes.len());
        Ok(())
    }

    fn write(&self, address: u64, bytes: &[u8]) -> Result<(), Outside> {
        if bytes.is_empty() {
            return Ok(());
        }
        let span = self.span(address, bytes.len())?;
        self.bytes.borrow_mut()[span].copy_from_slice(bytes);
        Ok(())
    }

    fn fence(&self) {}
}

/// Areas of a queue at the beginning of memory, and the first address behind them.
pub fn areas(size: u16) -> (Areas, u64) {
    let [descriptors, driver, _] = Areas::lengths(size);
    let driver_area = BASE + descriptors;
    let device = (driver_area + driver).next_multiple_of(4);
    (Areas { descriptors: BASE, driver: driver_area, device }, device + Areas::lengths(size)[2])
}
