// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What happens between vCPUs, and to them: lock-free, without knowing any architecture's registers.
//!
//! | module | what |
//! |---|---|
//! | [`asid`] | address space identifiers of physical CPUs (AMD SVM) |
//! | [`attention`] | the word each vCPU looks at before it enters its guest, and who must be kicked |
//! | [`inbox`] | interrupts posted to a vCPU by others |
//! | [`remote`] | an operation that only the owner of a vCPU's state may do, asked for by another |
//! | [`psci`] | the guest's view of turning CPUs on and off (Arm DEN0022), and SMCCC discovery |
//! | `power` | the power state of a vCPU |
//! | [`lifecycle`] | start, stop and restart of a whole VM |
//! | [`pause`] | pausing a VM that runs |
//! | [`startup`] | how the processors of a PC start: INIT and startup IPIs |
//! | [`stolen`] | the guest's view of the time it waited for its CPU (DEN0057) |
//!
//! Each vCPU has one **owner**, the physical CPU it is resident on; all others are **posters**. The owner's
//! memory is its own; posters reach it through the atomics here and nothing else. Every ordering is argued where
//! it is used and checked with loom (`tests/loom.rs`).
#![cfg_attr(not(loom), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod asid;
pub mod attention;
pub mod inbox;
pub mod lifecycle;
pub mod pause;
mod power;
pub mod psci;
pub mod remote;
pub mod startup;
pub mod stolen;

/// The atomics: the real ones, or the model checker's.
mod sync {
    #[cfg(not(loom))]
    pub(crate) use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
    #[cfg(loom)]
    pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

    /// Lets another CPU go on.
    pub(crate) fn relax() {
        #[cfg(not(loom))]
        core::hint::spin_loop();
        #[cfg(loom)]
        loom::thread::yield_now();
    }
}

/// The examples of the README compile and run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
