// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Memory for stacks.

use core::cell::UnsafeCell;

/// Memory that one CPU uses as its stack, or as several.
#[repr(C, align(4096))]
pub struct Stack<const SIZE: usize>(UnsafeCell<[u8; SIZE]>);

// SAFETY: no Rust reference to the bytes exists; this type gives only their address.
unsafe impl<const SIZE: usize> Sync for Stack<SIZE> {}

impl<const SIZE: usize> Stack<SIZE> {
    /// Returns memory of zeros.
    pub const fn new() -> Self {
        Stack(UnsafeCell::new([0; SIZE]))
    }

    /// Returns its first address.
    pub fn bottom(&self) -> u64 {
        self.0.get() as u64
    }

    /// Returns the first address behind it.
    pub fn top(&self) -> u64 {
        self.bottom() + SIZE as u64
    }
}

impl<const SIZE: usize> Default for Stack<SIZE> {
    fn default() -> Self {
        Self::new()
    }
}
