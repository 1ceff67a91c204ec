// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a vCPU has that shares its CPUs.

use turnstile_vm::stolen::Account;

use crate::cpu::STACK_HEAD;
use crate::time;

/// What a vCPU has that shares its CPUs.
pub struct Thread {
    /// What it has on every architecture.
    pub(super) common: turnstile_threads::Thread,
    /// The end of its stack.
    stack_end: u64,
    /// The time that it was ready and did not run.
    pub(super) stolen: Account,
}

impl AsRef<turnstile_threads::Thread> for Thread {
    fn as_ref(&self) -> &turnstile_threads::Thread {
        &self.common
    }
}

impl Thread {
    /// Makes thread `number` with the stack that ends at `stack_end`.
    pub fn new(number: u32, stack_end: u64) -> Self {
        Self {
            common: turnstile_threads::Thread::new(number),
            stack_end,
            stolen: Account::new(time::frequency()),
        }
    }

    /// The exit frame, at the top of its stack.
    pub(crate) fn frame(&self) -> u64 {
        self.stack_end - STACK_HEAD
    }
}
