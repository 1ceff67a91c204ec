// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is found out once, when a guest begins.

use core::cell::UnsafeCell;

/// A value that is written before anybody reads it.
pub struct Global<T>(UnsafeCell<T>);

// SAFETY: `write` is only for the time before other CPUs run, and from then on the value is only read.
unsafe impl<T: Sync> Sync for Global<T> {}

impl<T> Global<T> {
    /// Returns one with a first value.
    pub const fn new(value: T) -> Self {
        Global(UnsafeCell::new(value))
    }

    /// Returns the value.
    pub fn get(&self) -> &T {
        // SAFETY: whoever calls `write` promises that its reference and this one do not meet.
        unsafe { &*self.0.get() }
    }

    /// Returns the value for writing.
    ///
    /// # Safety
    /// Only one CPU runs, and no other reference to the value is used while this one is.
    #[expect(clippy::mut_from_ref, reason = "the caller promises that there is no other")]
    pub unsafe fn write(&self) -> &mut T {
        // SAFETY: the caller's promise.
        unsafe { &mut *self.0.get() }
    }
}
