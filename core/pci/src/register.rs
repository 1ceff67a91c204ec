// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Offsets and bits of a type 0 header (PCI Local Bus Specification 3.0, section 6.1).

use bitflags::bitflags;

/// Vendor ID, 16 bits.
pub const VENDOR: u8 = 0x00;
/// Device ID, 16 bits.
pub const DEVICE: u8 = 0x02;
/// Command, 16 bits: [`Command`].
pub const COMMAND: u8 = 0x04;
/// Status, 16 bits: [`Status`].
pub const STATUS: u8 = 0x06;
/// Revision ID, 8 bits.
pub const REVISION: u8 = 0x08;
/// Class code, 24 bits: programming interface, subclass, base class.
pub const CLASS: u8 = 0x09;
/// Cache line size, 8 bits; software's own.
pub const CACHE_LINE: u8 = 0x0c;
/// Header type, 8 bits: 0 for a device with one function.
pub const HEADER_TYPE: u8 = 0x0e;
/// The first of six base address registers, 32 bits each.
pub const BAR0: u8 = 0x10;
/// Subsystem vendor ID, 16 bits.
pub const SUBSYSTEM_VENDOR: u8 = 0x2c;
/// Subsystem ID, 16 bits.
pub const SUBSYSTEM: u8 = 0x2e;
/// Expansion ROM base address, 32 bits; zero where there is none.
pub const ROM: u8 = 0x30;
/// Offset of the first capability, 8 bits.
pub const CAPABILITIES: u8 = 0x34;
/// Interrupt line, 8 bits; software's own.
pub const INTERRUPT_LINE: u8 = 0x3c;
/// Interrupt pin, 8 bits: 0 for none, 1 for INTA.
pub const INTERRUPT_PIN: u8 = 0x3d;
/// Where capabilities begin.
pub const FIRST_CAPABILITY: u8 = 0x40;

/// Identifier of a vendor-specific capability.
pub const CAPABILITY_VENDOR: u8 = 0x09;
/// Identifier of the MSI-X capability.
pub const CAPABILITY_MSIX: u8 = 0x11;

bitflags! {
    /// The command register.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Command: u16 {
        /// The function answers in I/O space.
        const IO = 1 << 0;
        /// The function answers in memory space.
        const MEMORY = 1 << 1;
        /// The function may access memory, which includes messages.
        const BUS_MASTER = 1 << 2;
        /// It reports parity errors.
        const PARITY = 1 << 6;
        /// It reports system errors.
        const SERR = 1 << 8;
        /// It does not assert INTx.
        const INTX_DISABLE = 1 << 10;
    }
}

bitflags! {
    /// The status register. Functions here report no errors, so there is nothing to clear.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Status: u16 {
        /// The function has an interrupt, whether or not it may assert INTx.
        const INTERRUPT = 1 << 3;
        /// There is a list of capabilities.
        const CAPABILITIES = 1 << 4;
    }
}
