// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From power-on to the hypervisor's main function, and its end.

pub mod area;
#[cfg(target_os = "none")]
pub mod fault;
#[cfg(target_os = "none")]
mod start;

#[cfg(target_os = "none")]
pub use start::Host;
