// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Instructions of an x86 guest that reach a device: what they are, and what they do.
//!
//! | module | what |
//! |---|---|
//! | [`walk`] | the guest's page tables: from linear to physical addresses |
//! | [`operation`] | an instruction as far as a device sees it |
//! | [`decode`] | from bytes to operations, by `iced-x86` |
//! | [`cache`] | decoded instructions by their bytes |
//! | [`execute`] | carrying an operation out |
//! | `strings` | string instructions |
//! | [`control`] | moves to CR8, which reach the local APIC |
//!
//! Nothing here knows a machine: memory, registers and devices are behind traits, and all of it runs in tests on the host.
//! A guest may present any bytes, any tables and any addresses.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod arithmetic;
pub mod cache;
pub mod control;
pub mod decode;
pub mod execute;
mod machine;
pub mod operation;
mod strings;
pub mod walk;

/// An instruction has at most so many bytes (APM vol. 3, 1.1).
pub const MAX_LENGTH: usize = 15;
