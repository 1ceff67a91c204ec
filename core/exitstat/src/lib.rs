// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What exits cost: for each vCPU and reason their number, total cost and a histogram; and how often other events happened.
//!
//! | file | what |
//! |---|---|
//! | `reason` | why a guest was left |
//! | `event` | what else is counted |
//! | `kinds` | how both are declared |
//! | `page` | where a vCPU's figures are kept; its layout is an ABI, which assembly knows |
//! | `timing` | the exit that is being handled |
//! | `exits` | a reading of one reason's figures, with mean and percentiles |
//!
//! A page has one writer, the physical CPU of its vCPU, which adds to it on every exit with plain loads and stores. Anybody may
//! read it at the same time. Costs are in ticks of a counter whose frequency is in the page.
#![no_std]
#![forbid(unsafe_code)]

mod event;
mod exits;
mod kinds;
mod page;
mod reason;
mod timing;

/// The atomics: the processor's, or loom's when the protocol is being model-checked.
mod sync {
    #[cfg(not(loom))]
    pub(crate) use core::sync::atomic::{AtomicU64, Ordering};
    #[cfg(loom)]
    pub(crate) use loom::sync::atomic::{AtomicU64, Ordering};
}

pub use event::Event;
pub use exits::{BUCKETS, Exits, bucket};
pub use page::{
    EVENTS, EVENTS_OFFSET, MAGIC, PAGE_SIZE, Page, RECORDS, RECORDS_OFFSET, Record, VERSION, event_offset,
    record_offset,
};
pub use reason::Reason;
pub use timing::Timing;
