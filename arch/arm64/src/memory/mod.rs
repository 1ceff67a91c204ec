// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Physical memory: the hypervisor's own, and guests'.

mod bulk;
pub mod coherence;
pub mod demand;
#[cfg(target_os = "none")]
mod el2;
pub mod flash;
#[cfg(target_os = "none")]
pub mod guest;
#[cfg(target_os = "none")]
pub mod host;
pub mod service;
mod stage2;
pub mod stolen;
mod tables;
pub mod window;

#[cfg(target_os = "none")]
pub use guest::{FlashMemory, GuestMemory};
#[cfg(target_os = "none")]
pub use host::{free_bytes, pool, stolen_time_records, vcpu_stack};
#[cfg(target_os = "none")]
pub use turnstile_arch_common::demand::Backing;
#[cfg(target_os = "none")]
pub use turnstile_arch_common::memory::Error;
#[cfg(target_os = "none")]
pub use turnstile_arch_common::pooled::{Pool, Share};

pub use tables::with_tables;
