// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Physical memory: what the hypervisor keeps for itself, what guests get, and the hypervisor's address space.
//!
//! All is mapped one to one, once, at boot: the image (code executable, nothing writable and executable), the arena (heap,
//! translation tables), stacks as they are given out, the bundle, the devices that the hypervisor drives; and all other
//! RAM, which is for guests, as user pages that are never executed. So no mapping changes when VMs come and go, and no TLB
//! of another CPU has to be told; SMAP keeps the hypervisor from reaching that memory but through [`user`]. What is mapped later,
//! stacks and the registers by which PCI functions interrupt, was not mapped before: no TLB has it.

#[cfg(target_os = "none")]
mod guest;
#[cfg(target_os = "none")]
mod host;
mod ram;
mod tables;
pub mod user;

#[cfg(target_os = "none")]
pub use turnstile_arch_common::demand::Backing;
#[cfg(target_os = "none")]
pub use turnstile_arch_common::pooled::{Pool, Share};

#[cfg(target_os = "none")]
pub use guest::GuestMemory;
#[cfg(target_os = "none")]
pub use host::{
    Error, NestedTables, Plan, free_bytes, gigabyte_pages, has_smap, init, map_registers, pages,
    physical_bits, pool, root, stack,
};
pub use ram::{GuestRam, MAX_PIECES, Piece};
pub use tables::with_tables;
