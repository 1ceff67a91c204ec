// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A learning Ethernet switch between virtio network devices, as a pure model.
//!
//! | module | what |
//! |---|---|
//! | [`address`] | an Ethernet address with its VLAN |
//! | [`table`] | which address is behind which port |
//! | [`rate`] | how much a port may send |
//! | [`port`] | what a port may do, and what it did |
//! | [`flow`] | which packets belong together |
//! | [`patience`] | how long a port without buffers holds up others |
//! | [`switch`] | where a packet goes |
//! | [`relay`] | packets from the queues of devices to those of others |
#![no_std]
#![forbid(unsafe_code)]

pub mod address;
pub mod flow;
pub mod patience;
pub mod port;
pub mod rate;
pub mod relay;
pub mod switch;
pub mod table;

/// The examples of the README compile and run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
