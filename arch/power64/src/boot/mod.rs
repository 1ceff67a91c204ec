// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From the firmware to the hypervisor's main function, and its end.
//!
//! | file | what |
//! |---|---|
//! | `boot.S`, `start` | from skiboot to the hypervisor's main function |
//! | `host` | the machine as the hypervisor uses it; the start of its other CPUs |
//! | `area` | all that each physical CPU has for itself |
//! | `fault` | the last words of the hypervisor |

mod area;
#[cfg(target_os = "none")]
pub mod fault;
#[cfg(target_os = "none")]
mod host;
#[cfg(target_os = "none")]
mod start;

pub use crate::irq::Bridge;
#[cfg(target_os = "none")]
pub use host::Host;
#[cfg(target_os = "none")]
pub use start::NO_INPUT;
