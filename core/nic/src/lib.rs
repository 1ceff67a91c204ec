// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Drivers of network cards, as pure code: registers and memory come by traits.
//!
//! | module | what |
//! |---|---|
//! | [`any`] | whichever of these cards there is |
//! | [`card`] | the trait of cards |
//! | [`e1000e`] | Intel's 82574, which QEMU calls e1000e |
//! | [`ring`] | a queue of virtio whose chains are buffers with numbers: `core/virtio` has it |
//! | [`virtio`] | network cards of virtio 1.0 and later |
//!
//! A card that breaks its rules is a [`Failure`](card::Failure) of the call that notices; none can make a call take longer, or reach other
//! buffers.
#![no_std]
#![forbid(unsafe_code)]

pub mod any;
pub mod card;
pub mod e1000e;
pub mod virtio;

pub use turnstile_virtio::driver::ring;

/// The examples of the README compile and run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
