// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The local APIC's registers by number: the offset in the xAPIC page divided by 16, or the MSR less 0x800 (APM vol. 2,
//! table 16-2 and 16.11), and which of their bits there are.

pub(crate) const ID: u32 = 0x02;
pub(crate) const VERSION: u32 = 0x03;
pub(crate) const TASK_PRIORITY: u32 = 0x08;
pub(crate) const ARBITRATION_PRIORITY: u32 = 0x09;
pub(crate) const PROCESSOR_PRIORITY: u32 = 0x0a;
pub(crate) const END_OF_INTERRUPT: u32 = 0x0b;
pub(crate) const REMOTE_READ: u32 = 0x0c;
pub(crate) const LOGICAL_DESTINATION: u32 = 0x0d;
pub(crate) const DESTINATION_FORMAT: u32 = 0x0e;
pub(crate) const SPURIOUS: u32 = 0x0f;
pub(crate) const IN_SERVICE: u32 = 0x10;
pub(crate) const IN_SERVICE_LAST: u32 = 0x17;
pub(crate) const TRIGGER_MODE: u32 = 0x18;
pub(crate) const TRIGGER_MODE_LAST: u32 = 0x1f;
pub(crate) const REQUEST: u32 = 0x20;
pub(crate) const REQUEST_LAST: u32 = 0x27;
pub(crate) const ERROR_STATUS: u32 = 0x28;
pub(crate) const COMMAND_LOW: u32 = 0x30;
pub(crate) const COMMAND_HIGH: u32 = 0x31;
pub(crate) const LVT_FIRST: u32 = 0x32;
pub(crate) const LVT_LAST: u32 = 0x37;
pub(crate) const INITIAL_COUNT: u32 = 0x38;
pub(crate) const CURRENT_COUNT: u32 = 0x39;
pub(crate) const DIVIDE: u32 = 0x3e;
pub(crate) const SELF_IPI: u32 = 0x3f;

/// Version 0x14, six LVT entries, and suppression of EOI broadcasts.
pub(crate) const VERSION_VALUE: u32 = 0x0105_0014;

/// `ASE`: the APIC is enabled by software.
pub(crate) const SPURIOUS_ENABLE: u32 = 1 << 8;
/// EOIs of level-triggered interrupts are not told to the I/O APIC.
pub(crate) const SPURIOUS_NO_BROADCAST: u32 = 1 << 12;
/// Vector, enable, focus checking (kept, without effect), suppression of broadcasts.
pub(crate) const SPURIOUS_BITS: u32 = 0x13ff;
/// After reset.
pub(crate) const SPURIOUS_RESET: u32 = 0xff;

/// Mask of an LVT entry.
pub(crate) const LVT_MASKED: u32 = 1 << 16;
/// Bits of every LVT entry that are read-only and may be written with anything: delivery status, remote IRR.
pub(crate) const LVT_STATUS: u32 = 1 << 12 | 1 << 14;

/// The LVT entries that the model itself uses, by their place: timer, thermal, performance, LINT0, LINT1, error.
pub(crate) mod lvt {
    pub(crate) const TIMER: usize = 0;
    pub(crate) const LINT0: usize = 3;
    pub(crate) const ERROR: usize = 5;

    /// The bits that software may set in each (APM vol. 2, 16.4).
    pub(crate) const BITS: [u32; 6] = [0x700ff, 0x107ff, 0x107ff, 0x1a7ff, 0x1a7ff, 0x100ff];
}

/// Bits 7:5 of the error status (APM vol. 2, 16.4.6).
pub(crate) mod error {
    pub(crate) const SENT_ILLEGAL_VECTOR: u32 = 1 << 5;
    pub(crate) const RECEIVED_ILLEGAL_VECTOR: u32 = 1 << 6;
    pub(crate) const ILLEGAL_REGISTER: u32 = 1 << 7;
}

/// The first vector that an interrupt may have.
pub(crate) const FIRST_VECTOR: u8 = 16;
