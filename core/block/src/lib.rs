// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A virtio block device (virtio 1.2, section 5.2) as a pure model, and disks for it.
//!
//! | module | what |
//! |---|---|
//! | [`disk`] | what a disk does: the trait |
//! | [`ram`] | a disk in RAM |
//! | [`overlay`] | a read-only image, and what was written over it |
//! | [`gpt`] | finds a partition in a GUID partition table |
//! | [`partition`] | a part of a disk as a disk |
//! | [`settings`] | what the device announces |
//! | [`request`] | a request of the driver, checked, and done piece by piece |
//! | [`queue`] | a queue of requests |
//! | [`staged`] | a drive, which does commands later, as a disk |
//! | [`deep`] | a queue of requests to a drive that does several at once |
//!
//! **Crash-only.** A queue completes its requests in the order in which they were offered, each when it is done. So what is
//! available and not used has not been done, or not to its end. A device that was killed takes up each queue at its used index and does
//! the request that it finds there again: all of them may be done twice.
#![no_std]
#![forbid(unsafe_code)]

pub mod deep;
pub mod disk;
pub mod gpt;
pub mod overlay;
pub mod partition;
pub mod queue;
pub mod ram;
pub mod request;
pub mod settings;
pub mod staged;

/// The examples of the README compile and run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
