// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Services: their address spaces, and the way in and out.
//!
//! A service runs at EL0 with `HCR_EL2.TGE` = 1: whatever it does that is not an instruction of a plain program comes to EL2, by
//! vectors of its own (`entry.S`). EL1 has no part in it, so the vCPU's state of EL1 stays in its registers.
//!
//! | file | what |
//! |---|---|
//! | `space` | a service: its memory, its time |
//! | `state` | its registers while it is out |
//! | `exchange` | what is exchanged on the way in and out: the one list of what a service could see or change |
//! | `entry.S` | general registers, and the vectors |
//! | `explain` | where it was when it did what it must not do |

mod exchange;
mod explain;
mod space;
mod state;

pub use exchange::{Entrance, start_cpu};
#[cfg(test)]
pub(crate) use space::pretend;
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
