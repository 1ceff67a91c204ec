// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Drivers of disks, as pure code: registers and memory come by traits.
//!
//! | module | what |
//! |---|---|
//! | [`drive`] | the trait of disks |
#![no_std]
#![forbid(unsafe_code)]

pub mod drive;
