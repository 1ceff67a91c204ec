// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What lies in a physical CPU's area and is that CPU's alone.

use core::cell::Cell;
use core::ops::Deref;
use core::ptr;

/// What one physical CPU alone touches, though every CPU could name it.
#[derive(Debug)]
pub struct OfCpu<T>(T);

// SAFETY: whoever made it has promised that one CPU alone touches it.
unsafe impl<T> Sync for OfCpu<T> {}
// SAFETY: as above; before its CPU starts, the boot CPU alone has it.
unsafe impl<T> Send for OfCpu<T> {}

impl<T> OfCpu<T> {
    /// Makes what belongs to a CPU that has not started.
    ///
    /// # Safety
    /// From its start on, that CPU alone touches it, and no interrupt comes while it does.
    pub const unsafe fn new(value: T) -> Self {
        Self(value)
    }
}

impl<T> Deref for OfCpu<T> {
    type Target = T;

    #[inline(always)] // The same address.
    fn deref(&self) -> &T {
        &self.0
    }
}

/// The vCPU whose state a physical CPU has in its registers: the last one that needed them.
pub struct Holder<V: 'static>(OfCpu<Cell<*const V>>);

impl<V> Holder<V> {
    /// Makes that of a CPU that has not started: nobody.
    ///
    /// # Safety
    /// As for [`OfCpu::new`].
    pub const unsafe fn nobody() -> Self {
        // SAFETY: the caller's promise.
        Self(unsafe { OfCpu::new(Cell::new(ptr::null())) })
    }

    /// Says whether it is this vCPU.
    #[inline(always)] // A comparison, in each switch.
    pub fn is(&self, vcpu: &V) -> bool {
        ptr::eq(self.0.get(), vcpu)
    }

    /// Returns it, if there is one.
    #[inline(always)] // A load, in each switch.
    pub fn get(&self) -> Option<&'static V> {
        // SAFETY: null, or what `set` got: a vCPU, which lives for ever.
        unsafe { self.0.get().as_ref() }
    }

    /// From now on it is this vCPU.
    #[inline(always)] // A store, in each switch.
    pub fn set(&self, vcpu: &'static V) {
        self.0.set(vcpu);
    }

    /// From now on it is nobody.
    #[inline(always)] // A store, in each switch.
    pub fn forget(&self) {
        self.0.set(ptr::null());
    }
}
