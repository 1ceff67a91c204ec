// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The records that KVM's paravirtual interface puts into the memory of an x86 guest (Linux,
//! Documentation/virt/kvm/x86/msr.rst): the clock of a vCPU, the wall clock, stolen time.
//!
//! | file | what |
//! |---|---|
//! | `scale` | how a guest makes nanoseconds of ticks |
//! | `clock` | the clock of a vCPU, and the wall clock |
//! | `steal` | stolen time, and that a vCPU does not run |
//! | `request` | what a guest may write to the registers that name the records' places |
//!
//! A guest may read a record while it is written. The stores happen in the order of the calls of [`Memory`]. The version is odd from
//! the first store to the last, so a reader that sees the same even version before and after has seen one record.
#![no_std]
#![forbid(unsafe_code)]

mod clock;
mod request;
mod scale;
mod steal;

pub use clock::{ClockRecord, WallClock};
pub use request::{Request, clock_request, steal_request};
pub use scale::Scale;
pub use steal::{FLUSH_TLB, PREEMPTED, StealRecord};

/// The memory of a record. Stores become visible to the guest in their order.
pub trait Memory {
    /// Stores 32 bits at an offset that is a multiple of four.
    fn write_u32(&mut self, offset: u64, value: u32);
    /// Stores 64 bits at an offset that is a multiple of eight.
    fn write_u64(&mut self, offset: u64, value: u64);
}
