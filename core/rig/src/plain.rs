// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A guest's memory that costs little.

use std::cell::RefCell;

use turnstile_net::transfer::{End, Transfer};
use turnstile_virtio::device::Span;
use turnstile_virtio::memory::{Memory, Outside};

use crate::ram::Ram;

/// The bytes of a [`Ram`] without what only tests need, for programs whose instructions are counted.
#[derive(Debug)]
pub struct Plain(RefCell<Vec<u8>>);

impl Plain {
    /// Makes `length` bytes.
    pub fn new(length: usize) -> Self {
        Self(RefCell::new(vec![0; length]))
    }

    /// Replaces all bytes.
    pub fn set(&self, bytes: Vec<u8>) {
        *self.0.borrow_mut() = bytes;
    }

    /// All bytes.
    pub fn get(&self) -> Vec<u8> {
        self.0.borrow().clone()
    }

    #[inline(always)] // As a service's window is.
    fn range(&self, address: u64, length: usize) -> Result<usize, Outside> {
        match self.contains(address, length as u64) {
            true => Ok((address - Ram::BASE) as usize),
            false => Err(Outside { address }),
        }
    }
}

impl Memory for Plain {
    #[inline(always)] // As a service's window is.
    fn contains(&self, address: u64, length: u64) -> bool {
        let size = self.0.borrow().len() as u64;
        let at = address.wrapping_sub(Ram::BASE);
        at <= size && length <= size - at
    }
    #[inline(always)] // As a service's window is.
    fn load(&self, address: u64) -> Result<u16, Outside> {
        self.read_u16(address)
    }
    #[inline(always)] // As a service's window is.
    fn store(&self, address: u64, value: u16) -> Result<(), Outside> {
        self.write(address, &value.to_le_bytes())
    }
    #[inline(always)] // As a service's window is.
    fn read(&self, address: u64, bytes: &mut [u8]) -> Result<(), Outside> {
        let at = self.range(address, bytes.len())?;
        bytes.copy_from_slice(&self.0.borrow()[at..at + bytes.len()]);
        Ok(())
    }
    #[inline(always)] // As a service's window is.
    fn write(&self, address: u64, bytes: &[u8]) -> Result<(), Outside> {
        let at = self.range(address, bytes.len())?;
        self.0.borrow_mut()[at..at + bytes.len()].copy_from_slice(bytes);
        Ok(())
    }
    #[inline(always)] // As a service's window is.
    fn fence(&self) {}
}

impl Transfer for Plain {
    #[inline(always)] // As a service's window is.
    fn transfer(&self, from: Span, to: &Self, address: u64) -> Result<(), End> {
        let length = from.length as usize;
        let source = self.range(from.address, length).map_err(End::From)?;
        let target = to.range(address, length).map_err(End::To)?;
        to.0.borrow_mut()[target..target + length].copy_from_slice(&self.0.borrow()[source..source + length]);
        Ok(())
    }
}
