// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a guest sees of an x86 processor: its CPUID leaves and its model-specific registers.
//!
//! * [`CpuidTable`]: the leaves of one vCPU, composed once from those of the physical CPU, so that an exit looks one up.
//! * [`msr::policy`]: for every MSR, whether the guest has the CPU's own, an emulated one, a constant, or none.
//!
//! Both are allow-lists. A feature that is not in them is not offered: a guest would use state that nobody switches, or an
//! instruction that nobody emulates.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod compose;
pub mod features;
pub mod msr;
mod table;

pub use compose::{Host, Processor};
pub use table::{Answer, CpuidTable, Follows};
