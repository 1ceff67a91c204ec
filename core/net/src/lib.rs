// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A virtio network device (virtio 1.2, section 5.1) as a pure model: what its driver sends, and what it receives, from another VM's memory.
//!
//! | module | what |
//! |---|---|
//! | [`transfer`] | the trait that copies from one guest's memory to another's |
//! | [`settings`] | what the device announces, and what a driver accepts |
//! | [`frame`] | a packet that a driver sends, checked |
//! | [`plain`] | the same of most packets: one buffer, and nothing open |
//! | [`packet`] | a packet between its sender and its receiver |
//! | [`receive`] | puts a packet into a driver's buffers |
//! | [`software`] | checksums and segments for drivers that do not take the offloads |
//! | [`checksum`] | the Internet's checksum |
//! | [`control`] | the queue of commands: which packets are received, how many queues |
//!
//! **Crash-only.** A packet that was received is completed before it is completed as sent. A device that is killed in between sends it again,
//! as networks may; none is lost. What the queue of commands has changed is small, `Copy`, and kept by the caller; without it the device
//! receives everything on its first queue, which is right for any driver.
#![no_std]
#![forbid(unsafe_code)]

pub mod checksum;
pub mod control;
pub mod frame;
pub mod packet;
pub mod plain;
pub mod receive;
pub mod settings;
pub mod software;

pub use turnstile_virtio::transfer;

/// The examples of the README compile and run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
