// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Drivers of IOMMUs, as pure code: registers, tables and barriers come by traits.
//!
//! | module | what |
//! |---|---|
//! | [`amd_vi`] | AMD's IOMMU |
//! | `pieces` | tables of pieces of memory, of either |
//! | [`smmu`] | Arm's System Memory Management Unit, version 3 |
//!
//! What a device does is hostile, and so is what is read of an IOMMU's queues: neither makes a call take longer than its bound.
#![no_std]
#![forbid(unsafe_code)]

pub mod amd_vi;
mod pieces;
pub mod smmu;

/// The examples of the README compile and run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
