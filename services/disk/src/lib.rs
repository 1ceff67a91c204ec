// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The block device of disks in memory, of whatever kind: the programs `disk` and `overlay` have it.
#![no_std]
#![forbid(unsafe_code)]

pub mod model;
