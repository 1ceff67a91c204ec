// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A virtio device as a service, behind PCI or MMIO: what all of them have in common. What the device does is a [`Model`].
//!
//! | module | what |
//! |---|---|
//! | [`model`] | the trait of devices |
//! | [`world`] | what a device reaches: its VM's memory, calls, words that are kept |
//! | [`last`] | the message that goes with the answer |
//! | `record` | the state that survives a crash |
//! | `front` | the registers, behind PCI or MMIO |
//! | [`function`] | events and their answers |
//!
//! **Crash-only.** A device may be killed at any instruction. Each write of a register ends with a record of all registers beside the
//! last one, and then one word says which of both is valid. What matters of a queue is in the driver's memory. So whoever begins anew
//! restores the registers, says again which addresses it decodes, takes up each queue at its used index, and raises the interrupt that
//! may be owed; then the hypervisor repeats the event.
#![no_std]
#![forbid(unsafe_code)]

mod front;
pub mod function;
pub mod last;
pub mod model;
mod record;
pub mod world;

pub use function::{Virtio, doorbells, words};
pub use last::answered;
pub use model::{Broken, Model, Rest, Served, Serves};
pub use world::{Runtime, World};
