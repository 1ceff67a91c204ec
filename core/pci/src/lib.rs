// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The PCI configuration space of a guest's devices, as a pure model: PCI Local Bus Specification 3.0, chapter 6, and of the PCI
//! Express Base Specification what software needs to reach it (section 7.2.2, ECAM).
//!
//! | module | what |
//! |---|---|
//! | [`address`] | bus, device, function, and how an access names them: ECAM, the ports 0xcf8 and 0xcfc |
//! | [`register`] | offsets and bits of the header |
//! | [`bar`] | base address registers: kinds and sizes |
//! | [`function`] | one function's configuration space: what is read, what a write changes |
//! | [`msix`] | MSI-X: table, pending bits, when a message goes out |
//! | [`bus`] | a host bridge and the devices beside it |
//!
//! A model is a plain value. It allocates nothing, holds no lock and knows no guest memory: accesses go in, values and messages
//! come out, and the caller maps, unmaps and delivers. Every offset and size has an answer, whatever a guest does.
#![no_std]
#![forbid(unsafe_code)]

pub mod address;
pub mod bar;
pub mod bus;
pub mod function;
pub mod msix;
mod parts;
pub mod register;
mod space;

/// Returns what an access of `size` bytes reads where nothing answers: all ones.
pub const fn absent(size: u8) -> u32 {
    match size {
        1 => 0xff,
        2 => 0xffff,
        _ => 0xffff_ffff,
    }
}

/// The examples of the README compile and run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
