// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Physical memory: what the hypervisor keeps for itself, what guests get, and partition-scoped translation.
//!
//! The hypervisor runs in real mode and has no translation of its own: it can reach everything, and nothing has to be told
//! to a TLB when VMs come and go but what concerns their own partitions.

#[cfg(target_os = "none")]
mod guest;
#[cfg(target_os = "none")]
mod host;
pub mod kept;
pub mod partition;
mod ram;
pub mod service;
#[cfg(test)]
pub(crate) mod tests;
pub mod user;

#[cfg(target_os = "none")]
pub use turnstile_arch_common::demand::Backing;
#[cfg(target_os = "none")]
pub use turnstile_arch_common::pooled::{Pool, Share};

#[cfg(target_os = "none")]
pub use guest::GuestMemory;
#[cfg(target_os = "none")]
pub use host::{Error, STACK_BLOCK, free_bytes, init, pages, pool, stack};
pub use ram::GuestRam;
