// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Stolen time: the records that guests read ([`turnstile_vm::stolen`]), each written when its vCPU is loaded.

use core::sync::atomic::{AtomicU64, Ordering};

use turnstile_vm::stolen::{Account, COUNT, RECORD};

use crate::cpu::regs;

/// Memory for the records of a VM.
#[derive(Clone, Copy, Debug)]
pub struct Records {
    base: u64,
    size: u64,
}

impl Records {
    /// Takes `size` bytes at `base`.
    ///
    /// # Safety
    /// They must be cleared, mapped for ever, aligned to a page, and used for nothing else.
    pub const unsafe fn new(base: u64, size: u64) -> Self {
        Self { base, size }
    }

    /// Returns the physical address.
    pub const fn base(&self) -> u64 {
        self.base
    }

    /// Returns the size in bytes.
    pub const fn size(&self) -> u64 {
        self.size
    }
}

/// The record of one vCPU, as the hypervisor sees it.
#[derive(Debug)]
pub struct StolenTime {
    count: &'static AtomicU64,
    account: Account,
}

impl StolenTime {
    /// Takes the record of vCPU `index`, if there is one.
    pub fn new(records: Records, index: usize) -> Option<Self> {
        let offset = index as u64 * RECORD;
        (offset + RECORD <= records.size).then(|| Self {
            // SAFETY: inside the records, which live for ever; aligned, because a record is.
            count: unsafe { &*((records.base + offset + COUNT) as *const AtomicU64) },
            account: Account::new(regs::CNTFRQ_EL0.read()),
        })
    }

    /// A life begins, when `ticks` were stolen from the vCPU in all.
    pub fn begin(&self, ticks: u64) {
        self.account.begin(ticks);
        self.count.store(0, Ordering::Relaxed);
    }

    /// Tells the guest, when `ticks` were stolen from the vCPU in all.
    #[inline] // A few instructions of each switch.
    pub fn update(&self, ticks: u64) {
        self.count.store(self.account.until(ticks), Ordering::Relaxed);
    }
}
