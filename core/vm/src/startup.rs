// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How the processors of a PC start: INIT and startup IPIs (AMD APM vol. 2, 14.1 and 16.5; Intel SDM vol. 3A, 11.4).
//!
//! After an INIT, a vCPU waits for a startup IPI, whose vector says where it begins in real mode; a startup IPI that finds it running
//! is ignored. The sender changes the state at once, and the vCPU's owner follows when it looks. So an INIT and a startup IPI in
//! quick succession take effect in their order.
//!
//! The first vCPU does not wait: it begins where the boot protocol says. After an INIT it would execute the firmware, which finds out
//! why. Instead, [`Startup::resume`] lets it continue where its guest wants; otherwise it waits like the others.

use alloc::vec::Vec;

use crate::sync::{AtomicU32, Ordering};

/// Waits for a startup IPI.
const WAITING: u32 = 0;
/// To begin as the boot protocol says.
const BOOT: u32 = 1;
/// Runs, or is to be taken for running.
const ON: u32 = 2;
/// To go on where the guest has told the firmware to.
const RESUME: u32 = 3;
/// To begin in real mode at the page in the low eight bits.
const STARTUP: u32 = 1 << 8;

/// Where a vCPU begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// As the boot protocol says.
    Boot,
    /// In real mode, at this page of the first MiB.
    Startup(u8),
    /// In real mode, where the guest has told the firmware to go on.
    Resume,
}

/// The states of a VM's processors.
#[derive(Debug)]
pub struct Startup {
    vcpus: Vec<AtomicU32>,
}

impl Startup {
    /// Makes those of a VM with so many vCPUs. All wait.
    pub fn new(vcpus: usize) -> Self {
        Self { vcpus: (0..vcpus).map(|_| AtomicU32::new(WAITING)).collect() }
    }

    /// How many there are.
    pub fn vcpus(&self) -> usize {
        self.vcpus.len()
    }

    /// Lets the first vCPU begin, and the others wait. Only while none of them runs.
    pub fn reset(&self) {
        for (index, state) in self.vcpus.iter().enumerate() {
            // Release: who begins sees the memory that was filled for it.
            state.store(if index == 0 { BOOT } else { WAITING }, Ordering::Release);
        }
    }

    /// Takes the start of a vCPU, once; it is on from then. For its owner.
    pub fn take_start(&self, vcpu: usize) -> Option<Start> {
        let state = self.vcpus.get(vcpu)?;
        // An INIT that comes in between makes the exchange fail.
        let found = state.load(Ordering::Relaxed);
        let start = match found {
            BOOT => Start::Boot,
            RESUME => Start::Resume,
            _ if found & STARTUP != 0 => Start::Startup(found as u8),
            _ => return None,
        };
        // Acquire: pairs with `reset`, `startup` and `resume`, and with the INIT before.
        state.compare_exchange(found, ON, Ordering::Acquire, Ordering::Relaxed).is_ok().then_some(start)
    }

    /// An INIT for a vCPU. True if it ran: then its owner has to be told
    /// ([`crate::attention::Reasons::INIT`]).
    #[must_use = "a vCPU that is not told runs on"]
    pub fn init(&self, vcpu: usize) -> bool {
        // Release: what the sender did before comes before what the vCPU does after its next start.
        self.vcpus.get(vcpu).is_some_and(|state| state.swap(WAITING, Ordering::Release) == ON)
    }

    /// A startup IPI for a vCPU. True if it waited: then its owner has to be told
    /// ([`crate::attention::Reasons::START`]).
    #[must_use = "a vCPU that is not told does not start"]
    pub fn startup(&self, vcpu: usize, vector: u8) -> bool {
        let Some(state) = self.vcpus.get(vcpu) else { return false };
        let start = STARTUP | u32::from(vector);
        // Release: the code that the sender has put at the page is there.
        state.compare_exchange(WAITING, start, Ordering::Release, Ordering::Relaxed).is_ok()
    }

    /// The firmware lets a vCPU that waits go on, instead of waiting for a startup IPI. True if it waited: then its owner has
    /// to be told ([`crate::attention::Reasons::START`]), unless that is who calls.
    #[must_use = "a vCPU that is not told does not start"]
    pub fn resume(&self, vcpu: usize) -> bool {
        // Release: the code that it goes on with is there.
        self.vcpus.get(vcpu).is_some_and(|state| {
            state.compare_exchange(WAITING, RESUME, Ordering::Release, Ordering::Relaxed).is_ok()
        })
    }

    /// Says whether a vCPU waits for what lets it begin.
    pub fn waits(&self, vcpu: usize) -> bool {
        self.vcpus.get(vcpu).is_some_and(|state| state.load(Ordering::Relaxed) == WAITING)
    }

    /// Says whether a vCPU is on.
    pub fn is_on(&self, vcpu: usize) -> bool {
        self.vcpus.get(vcpu).is_some_and(|state| state.load(Ordering::Relaxed) == ON)
    }
}
