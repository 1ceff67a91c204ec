// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Services: their address spaces, and the way in and out.
//!
//! | file | what |
//! |---|---|
//! | `pages` | a service's memory, and the tables that translate its addresses |
//! | `block` | its control block: what a service can do, and why not more |
//! | [`space`](mod@space) | entering it, and what it was left with |
//! | `entry.S` | the way in and out |

mod block;
mod pages;
mod space;

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

#[cfg(not(target_os = "none"))]
pub use space::{Registers, pretend};
/// A BAR of a PCI function that a service is.
pub type Bar = turnstile_arch_common::served::Bar<Space>;
