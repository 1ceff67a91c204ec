// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a hypervisor owes a partition, as pure models: Linux on Power Architecture Platform Reference (LoPAPR 1.1), with what
//! later POWER processors have added to it, as Linux uses it (`arch/powerpc/include/asm/hvcall.h`).
//!
//! | module | what |
//! |---|---|
//! | [`hcall`] | the numbers of calls, and which call a number is |
//! | [`code`] | what calls answer |
//! | [`processors`] | how the vCPUs of a partition start and stop |
//! | [`rtas`] | the firmware's functions: tokens, arguments, what they do |
//! | [`calendar`] | the firmware's date and time of day |
//! | [`terminal`] | characters to and from the console |
//! | [`vpa`] | areas that a vCPU shares with the hypervisor |
//! | [`dispatch`] | what is told there of a vCPU's turns |
//! | [`mode`] | H_SET_MODE |
//! | [`page_init`] | H_PAGE_INIT |
//! | [`process_table`] | H_REGISTER_PROC_TBL |
//! | [`xics`] | the interrupt controller that is driven by calls |
//! | [`xive`] | the interrupt controller that a guest drives itself: what calls remain |
//!
//! Nothing here knows a register of the processor or a place in the hypervisor's memory: guest memory is reached through
//! [`Memory`], whose addresses are whatever a guest has given.
#![cfg_attr(not(loom), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod calendar;
pub mod code;
pub mod dispatch;
pub mod hcall;
pub mod mode;
pub mod page_init;
pub mod process_table;
pub mod processors;
pub mod rtas;
pub mod terminal;
mod turns;
pub mod vpa;
pub mod xics;
pub mod xive;

/// The atomics: the real ones, or the model checker's.
mod sync {
    #[cfg(not(loom))]
    pub(crate) use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
    #[cfg(loom)]
    pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
}

/// Memory of a guest, by the guest's real addresses. What is shared with the hypervisor is big-endian, whatever the guest is.
pub trait Memory {
    /// Reads bytes. False, with nothing promised of `bytes`, if not all of them are RAM.
    #[must_use = "what was not read is not there"]
    fn read(&self, address: u64, bytes: &mut [u8]) -> bool;

    /// Writes bytes. False, with nothing written, if not all of them are RAM.
    #[must_use = "what was not written is not there"]
    fn write(&self, address: u64, bytes: &[u8]) -> bool;

    /// Reads a word.
    fn word(&self, address: u64) -> Option<u32> {
        let mut bytes = [0; 4];
        self.read(address, &mut bytes).then(|| u32::from_be_bytes(bytes))
    }

    /// Writes a word.
    #[must_use = "what was not written is not there"]
    fn set_word(&self, address: u64, value: u32) -> bool {
        self.write(address, &value.to_be_bytes())
    }
}
