// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where a vCPU's state goes on an exit that does without techniques.

use core::sync::atomic::AtomicU64;

use spin::Mutex;

use super::fp::Vectors;
use super::registers::{Branches, Common, Monitor, Transactions};

/// A vCPU's state in memory.
#[derive(Debug)]
pub struct Saved {
    /// The call that is looked for.
    pub(crate) number: u64,
    pub(crate) common: Common,
    pub(crate) monitor: Monitor,
    pub(crate) branches: Branches,
    pub(crate) transactions: Transactions,
    pub(crate) vectors: Vectors,
    /// What others would look at to see whether the vCPU is in its guest.
    pub(crate) inside: AtomicU64,
    /// What guards what others have posted.
    pub(crate) lock: Mutex<()>,
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
