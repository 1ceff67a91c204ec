// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Services: what the hypervisor and the programs that it enters agree on.
//!
//! A service is a small program in an address space of its own. It has no thread: whoever has an event for it enters it, on its own
//! CPU, and leaves it with the answer. One may have a physical CPU that alone enters it.
//!
//! | module | what |
//! |---|---|
//! | [`abi`] | events, calls, and the registers they are in |
//! | [`backoff`] | how long a shared service does without a member that has it begin anew again and again |
//! | [`drive`] | what the program that drives a disk controller gets to know of the disk |
//! | [`gate`] | who is inside, and what waits: one word |
//! | [`image`] | the format of a service's program |
//! | [`port`] | what the program of a network gets to know of a member |
//! | [`request`] | events that need an answer, of a service that has a CPU of its own |
#![cfg_attr(not(loom), no_std)]
#![forbid(unsafe_code)]

pub mod abi;
pub mod backoff;
pub mod drive;
pub mod gate;
pub mod image;
pub mod port;
pub mod request;
