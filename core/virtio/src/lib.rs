// SPDX-License-Identifier: Apache-2.0 OR MIT
//! virtio 1.2, for hypervisors and for bare-metal drivers: split rings from both sides, and the registers of devices, as pure
//! models. Numbers of sections are those of "Virtual I/O Device (VIRTIO) Version 1.2", committee specification 01.
//!
//! | module | what |
//! |---|---|
//! | [`memory`] | the trait by which both sides reach memory that the other one writes |
//! | [`transfer`] | the trait that copies from one driver's memory to another's |
//! | [`ring`] | where the parts of a split ring are, and its descriptors |
//! | [`rings`] | how a device reaches the rings of a queue |
//! | [`device`] | the device's side of a ring: takes chains of buffers, returns them |
//! | [`driver`] | the driver's side: offers chains of buffers, takes them back |
//! | [`driver::ring`] | the same for chains that have numbers |
//! | [`driver::rung`] | such a queue with its notification |
//! | [`driver::pci`] | the driver's side of the transport over PCI |
//! | [`violation`] | the rules that the other side can break |
//! | [`features`] | feature bits, and how they are negotiated |
//! | [`registers`] | status, features, queues, interrupts of a device: what both transports show |
//! | [`pci`] | the transport over PCI, on [`turnstile_pci`] |
//! | [`mmio`] | the transport over MMIO, version 2 |
//! | [`config`] | the configuration of block, network, console and balloon devices |
//!
//! Neither side trusts the other. Each field of the shared memory is read once; every address is checked; each call does a bounded
//! amount of work. What the other side does wrong is a [`Violation`](violation::Violation) that says which rule it broke.
#![no_std]
#![forbid(unsafe_code)]

pub mod config;
pub mod device;
pub mod driver;
pub mod features;
pub mod memory;
pub mod mmio;
pub mod pci;
pub mod registers;
pub mod ring;
pub mod rings;
pub mod transfer;
pub mod violation;

/// The examples of the README compile and run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
