// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the bare-metal guests of all architectures have in common: words of the command line, the lines of tests and
//! measurements, repeatable numbers. Nothing here touches a machine.
#![no_std]
#![forbid(unsafe_code)]

pub mod bench;
pub mod options;
pub mod random;
pub mod test;
