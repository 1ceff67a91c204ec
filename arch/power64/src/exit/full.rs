// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Full exits: all general registers are in the frame.

/// Why a VM was stopped by the hypervisor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum Crash {
    /// An interrupt of the guest that nobody knows.
    Unknown = 1,
}
