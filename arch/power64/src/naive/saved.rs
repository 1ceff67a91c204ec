// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where a vCPU's state goes on an exit that does without techniques.

use core::sync::atomic::AtomicU64;

use spin::Mutex;

use crate::facility::parts::{Branches, Common, Monitor, Transactions, Vectors};

/// A vCPU's state in memory.
#[derive(Debug)]
pub struct Saved {
    /// The call that is looked for.
    pub(super) number: u64,
    pub(super) common: Common,
    pub(super) monitor: Monitor,
    pub(super) branches: Branches,
    pub(super) transactions: Transactions,
    pub(super) vectors: Vectors,
    /// What others would look at to see whether the vCPU is in its guest.
    pub(super) inside: AtomicU64,
    /// What guards what others have posted.
    pub(super) lock: Mutex<()>,
}

impl Default for Saved {
    fn default() -> Self {
        Self {
            number: 0,
            common: Common::RESET,
            monitor: Monitor::RESET,
            branches: Branches::RESET,
            transactions: Transactions::RESET,
            vectors: Vectors::new(),
            inside: AtomicU64::new(0),
            lock: Mutex::new(()),
        }
    }
}
