// SPDX-License-Identifier: Apache-2.0 OR MIT
//! XICS as a guest drives it by calls (LoPAPR 14.5.4.7): a presentation controller for each vCPU ([`Icp`]), and sources that
//! deliver to them ([`Ics`]). Priorities are better the lower they are; 0xff is none.
//!
//! All of it may be used by any CPU at any time, without locks: an [`Icp`] is one atomic word. What a vCPU's owner has to
//! do about an interrupt it is told by its attention word, see [`Servers::notify`].
//!
//! | call | function |
//! |---|---|
//! | H_XIRR, H_XIRR_X | [`Icp::accept`] |
//! | H_EOI | [`Icp::end`], then [`Ics::settle`] |
//! | H_CPPR | [`Icp::set_priority`], then [`Ics::settle`] |
//! | H_IPI | [`Icp::set_request`] of the target, then [`Ics::settle`] |
//! | H_IPOLL | [`Icp::poll`] |
//! | `ibm,get-xive` … | [`Ics::route`], [`Ics::set_route`], [`Ics::set_masked`] |
//!
//! Sources are edges: one that comes again before it was presented is one.

mod icp;
mod ics;

pub use icp::{Change, Icp};
pub use ics::Ics;

/// The interrupt number of an IPI.
pub const IPI: u32 = 2;
/// The priority that nothing has.
pub const NEVER: u8 = 0xff;

/// The presentation controllers of a VM.
pub trait Servers {
    /// Returns that of a vCPU, by its number.
    fn icp(&self, server: u32) -> Option<&Icp>;
    /// Makes the vCPU look: it has been presented an interrupt.
    fn notify(&self, server: u32);
}
