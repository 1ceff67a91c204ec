// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The modes of a local APIC.

/// The modes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Mode {
    /// Neither page nor MSRs.
    Disabled,
    /// A page of registers.
    XApic,
    /// MSRs.
    X2Apic,
}
