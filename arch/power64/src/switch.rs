// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is loaded when a vCPU becomes resident, and its reset.

/// What the first vCPU begins with; all other registers are zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BootState {
    /// Where it begins.
    pub pc: u64,
    /// R3: the device tree's address.
    pub r3: u64,
}

/// Sets this CPU up.
pub fn start_cpu() {}
