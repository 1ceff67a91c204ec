// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a function is made from.

use core::fmt;

/// Who a function says it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Vendor ID.
    pub vendor: u16,
    /// Device ID.
    pub device: u16,
    /// Revision ID.
    pub revision: u8,
    /// Class code: base class in bits 23 to 16, subclass in 15 to 8, programming interface in 7 to 0.
    pub class: u32,
    /// Subsystem vendor ID.
    pub subsystem_vendor: u16,
    /// Subsystem ID.
    pub subsystem: u16,
    /// Whether it has INTA.
    pub interrupt_pin: bool,
}

/// Where the structures of MSI-X are: a BAR, and an offset in it that is a multiple of 8.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MsixPlaces {
    /// How many vectors there are, 1 to 2048.
    pub vectors: u16,
    /// The table.
    pub table: (u8, u32),
    /// The pending bits.
    pub pending: (u8, u32),
}

/// Why a part cannot be added to a function. These are mistakes of whoever builds a device, never of a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unfit {
    /// A BAR's number, or that of its upper half, is not below 6 or is taken.
    BarNumber(u8),
    /// A BAR's size is no power of two, or too small or large for its kind.
    BarSize(u64),
    /// The capabilities do not fit into the space.
    Full,
    /// Vectors of MSI-X out of bounds, or a structure that does not lie in its BAR.
    Msix,
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BarNumber(index) => write!(f, "BAR {index} does not exist or is taken"),
            Self::BarSize(size) => write!(f, "a BAR cannot have {size:#x} bytes"),
            Self::Full => f.write_str("the capabilities do not fit into the configuration space"),
            Self::Msix => f.write_str("MSI-X has too many vectors, or lies outside its BAR"),
        }
    }
}

impl core::error::Error for Unfit {}
