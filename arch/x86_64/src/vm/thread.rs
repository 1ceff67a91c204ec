// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a vCPU has that shares its CPUs: a thread of the hypervisor.

use turnstile_vm::stolen::Account;

use crate::time;

/// What a vCPU has that shares its CPUs.
pub struct Thread {
    /// What it has on every architecture.
    pub(crate) common: turnstile_threads::Thread,
    /// The end of its stack's block.
    pub(crate) stack_end: u64,
    /// The time that it was ready and did not run.
    pub(crate) account: Account,
}

impl AsRef<turnstile_threads::Thread> for Thread {
    fn as_ref(&self) -> &turnstile_threads::Thread {
        &self.common
    }
}

impl Thread {
    /// Makes thread `number` with the stack whose block ends at `stack_end`.
    pub fn new(number: u32, stack_end: u64) -> Self {
        Self {
            common: turnstile_threads::Thread::new(number),
            stack_end,
            account: Account::new(time::frequency()),
        }
    }
}
