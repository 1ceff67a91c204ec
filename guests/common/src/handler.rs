// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Places for functions that others call: other CPUs, or interrupts.

use core::marker::PhantomData;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

/// A place for a function that gets an `A`, or for none. It is only loaded and stored: that works with caches off, too.
pub struct Handler<A> {
    function: AtomicUsize,
    argument: PhantomData<fn(A)>,
}

impl<A> Handler<A> {
    /// Returns a place for none.
    pub const fn new() -> Self {
        Handler { function: AtomicUsize::new(0), argument: PhantomData }
    }

    /// Puts a function there, or none.
    pub fn set(&self, function: Option<fn(A)>) {
        self.function.store(function.map_or(0, |function| function as usize), Relaxed);
    }

    /// Calls it, if there is one.
    pub fn call(&self, argument: A) {
        let function = self.function.load(Relaxed);
        if function != 0 {
            // SAFETY: a value that is not zero is a function of this type, stored by `set`.
            let function: fn(A) = unsafe { core::mem::transmute(function) };
            function(argument);
        }
    }
}

impl<A> Default for Handler<A> {
    fn default() -> Self {
        Self::new()
    }
}

/// What a CPU that is started is to do: a function and its argument.
#[derive(Default)]
pub struct Work {
    function: Handler<u64>,
    argument: AtomicU64,
}

impl Work {
    /// Returns nothing to do.
    pub const fn new() -> Self {
        Work { function: Handler::new(), argument: AtomicU64::new(0) }
    }

    /// Sets what is to be done.
    pub fn set(&self, function: fn(u64), argument: u64) {
        self.function.set(Some(function));
        self.argument.store(argument, Relaxed);
    }

    /// Does it.
    pub fn run(&self) {
        self.function.call(self.argument.load(Relaxed));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static SUM: AtomicU64 = AtomicU64::new(0);

    fn add(value: u64) {
        SUM.fetch_add(value, Relaxed);
    }

    #[test]
    fn what_is_set_is_called() {
        let handler = Handler::new();
        handler.call(1);
        handler.set(Some(add));
        handler.call(2);
        handler.set(None);
        handler.call(4);
        let work = Work::new();
        work.run();
        work.set(add, 8);
        work.run();
        assert_eq!(SUM.load(Relaxed), 10);
    }
}
