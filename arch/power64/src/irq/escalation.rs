// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What comes for a vCPU that is resident nowhere: the controller keeps it, and has an event of its own for that, the
//! escalation, which interrupts the hypervisor on some CPU. That wakes the vCPU.
//!
//! Only a vCPU that shares its CPU is ever resident nowhere. All others have no escalation, and nothing here costs them
//! anything.

use core::sync::atomic::{AtomicU64, Ordering};

use super::event;
use crate::vcpu;

/// How a vCPU is woken.
#[derive(Debug)]
pub(super) struct Escalation {
    /// The virtual processor whose queues escalate, plus one; zero if there is nothing to wake.
    processor: u64,
    /// The page of management of the escalation's source; zero until it has one.
    page: AtomicU64,
}

impl Escalation {
    /// For a guest whose interrupts do not come from the controller.
    pub(super) const NONE: Self = Self { processor: 0, page: AtomicU64::new(0) };

    /// That of a virtual processor.
    pub(super) fn new(processor: u64) -> Self {
        Self { processor: processor + 1, page: AtomicU64::new(0) }
    }

    /// The vCPU has left its CPU: the next event for it escalates.
    pub(super) fn arm(&self, _: &'static vcpu::Vcpu) {
        let page = self.page.load(Ordering::Relaxed);
        if page != 0 {
            event::arm(page);
        }
    }
}
