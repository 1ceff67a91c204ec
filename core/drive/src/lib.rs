// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Drivers of disks, as pure code: registers and memory come by traits.
//!
//! | module | what |
//! |---|---|
//! | [`drive`] | the trait of disks |
//! | [`any`] | a disk of either kind, by what its function says |
//! | [`virtio`] | disks of virtio 1.0 and later |
//! | [`nvme`] | disks of NVM Express 1.1 and later |
//!
//! A disk that breaks its rules is a [`Failure`](drive::Failure) of the call that notices; none can make a call take longer, or have a tag finished
//! that is not under way.
#![no_std]
#![forbid(unsafe_code)]

pub mod any;
pub mod drive;
pub mod nvme;
mod tags;
pub mod virtio;

/// The examples of the README compile and run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
