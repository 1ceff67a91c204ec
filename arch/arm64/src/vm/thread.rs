// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a vCPU has that shares its CPUs.

use core::cell::UnsafeCell;

use crate::irq::InterfaceState;
use crate::memory::stolen::StolenTime;
use crate::state::{Deferred, SystemState, Timers};

/// What a vCPU has that shares its CPUs.
pub struct Thread {
    /// What it has on every architecture.
    pub(crate) common: turnstile_threads::Thread,
    /// Where its stack ends: there is its exit frame.
    pub(crate) stack_top: u64,
    /// What its guest is told of stolen time, if it asks.
    pub(crate) stolen: Option<StolenTime>,
    /// What is in no CPU while the vCPU is in none: load and put, and who has claimed it, touch it.
    pub(crate) state: UnsafeCell<State>,
}

// SAFETY: `state` is touched by load and put, and by who has claimed the vCPU: by the CPU that has it.
unsafe impl Sync for Thread {}

/// What is in no CPU while the vCPU is in none.
#[derive(Default)]
pub(crate) struct State {
    pub(crate) system: SystemState,
    pub(crate) deferred: Deferred,
    pub(crate) timers: Timers,
    pub(crate) interface: InterfaceState,
}

impl Thread {
    /// Makes thread `number` with the stack that ends at `stack_top`.
    pub fn new(number: u32, stack_top: u64, stolen: Option<StolenTime>) -> Self {
        let common = turnstile_threads::Thread::new(number);
        Self { common, stack_top, stolen, state: UnsafeCell::default() }
    }
}

impl AsRef<turnstile_threads::Thread> for Thread {
    fn as_ref(&self) -> &turnstile_threads::Thread {
        &self.common
    }
}
