// SPDX-License-Identifier: Apache-2.0 OR MIT
//! XIVE in exploitation mode: the calls by which a partition routes its interrupt sources and places its event queues (PAPR's
//! "External Interrupt Virtualization Engine" calls, as Linux and QEMU have them). Interrupts themselves, IPIs, EOIs and
//! priorities are between the guest and the hardware.
//!
//! | module | what |
//! |---|---|
//! | [`calls`] | the arguments of calls, checked, and what they answer |
//! | [`tables`] | where each source goes, and where each queue is |
//!
//! The tables are what the guest has asked for. What that means to the machine is done by who implements [`Machine`]: it is
//! called before a table changes, and if it fails, the table does not change.

mod calls;
mod tables;

#[cfg(test)]
mod tests;

pub use calls::{Arguments, Reply, call};
pub use tables::{Layout, PAGE_SHIFT, PRIORITIES, Queue, Route, Tables};

/// Why the machine has not done what it was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The queue is not wholly in RAM.
    Address,
    /// The interrupt controller has refused.
    Hardware,
}

/// The machine's interrupt controller. Everything it is told has been checked: sources, servers and priorities exist, queues have
/// a size that is offered and are aligned to it.
pub trait Machine {
    /// Sends a source's interrupts to a queue, or to nowhere.
    ///
    /// # Errors
    ///
    /// If the controller refuses.
    fn route(&mut self, source: u32, to: Option<Route>) -> Result<(), Failure>;

    /// Places a queue, empty, or takes it away.
    ///
    /// # Errors
    ///
    /// If it is not in RAM, or the controller refuses.
    fn place(&mut self, server: u32, priority: u8, queue: Option<Queue>) -> Result<(), Failure>;

    /// Loads from the page of a source's management, at an offset into it.
    fn load(&mut self, source: u32, offset: u64) -> u64;

    /// Stores to it.
    fn store(&mut self, source: u32, offset: u64, value: u64);

    /// Waits until the events that a source has sent are in its queue.
    fn synchronize(&mut self, source: u32);
}
