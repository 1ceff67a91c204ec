// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Services: their address spaces, and the way in and out.
//!
//! | file | what |
//! |---|---|
//! | `entry.S` | the way in and out: what is exchanged |
//! | `context` | what is kept of a service and of who has entered it |
//! | `space` | entering, going on, and what it means how a service was left |
//! | `strikes` | interrupts and breakpoints of the guest that strike in a service |
//! | `report` | where a service was, and why it was left |
//!
//! The memory of a service is in `memory/service.rs`.

pub(crate) mod context;
mod report;
mod space;
mod strikes;

pub use space::{ISA, Space};
pub use turnstile_arch_common::service::{
    Device, Figures, Outside, Over, Port, Storage, Touch, Typed, Window,
};

/// A service on this architecture.
pub type Service = turnstile_arch_common::service::Service<Space>;
/// A device of a VM that a service serves.
pub type Served = turnstile_arch_common::served::Served<Space>;
/// What services are to a VM.
pub type Services = turnstile_arch_common::served::Services<Space>;
/// A BAR of a PCI function that a service is.
pub type Bar = turnstile_arch_common::served::Bar<Space>;
