// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Why the hypervisor stops a VM.

/// Why a VM was stopped by the hypervisor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum Crash {
    /// The guest's exceptions led to a shutdown (a triple fault).
    Shutdown = 1,
    /// The delivery of an exception or interrupt ran into memory that is not there.
    Delivery = 2,
    /// VMRUN refused the guest's state.
    State = 3,
    /// The guest's page tables are not in memory.
    Tables = 4,
}
