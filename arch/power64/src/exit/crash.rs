// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Why the hypervisor stops a VM.

/// Why a VM was stopped by the hypervisor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum Crash {
    /// A machine check while the guest ran.
    MachineCheck = 1,
    /// The guest's process or page tables are not in its memory.
    Tables = 2,
    /// The guest's first instruction is not in its memory, or it runs where there is none.
    Fetch = 3,
    /// The guest asked for it (`ibm,os-term`).
    Terminated = 4,
}
