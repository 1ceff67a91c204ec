// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The exit frame at the top of each stack.

use crate::cpu::PerCpu;

/// The general registers of the resident vCPU, and whose they are. `boot.S` and `vectors.S` know this layout.
#[repr(C, align(16))]
pub struct Frame {
    /// What a function of the ELFv2 ABI may store into its caller's frame.
    linkage: [u64; 4],
    /// The general registers.
    gpr: [u64; 32],
    /// Others.
    rest: [u64; 11],
    /// The CPU that runs on this stack.
    pub cpu: *const PerCpu,
}

const _: () = assert!(core::mem::offset_of!(Frame, cpu) == 376);
