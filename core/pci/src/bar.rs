// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Base address registers (PCI Local Bus Specification 3.0, section 6.2.5.1).
//!
//! Software finds the size by writing ones: address bits below the size read as zero, because they cannot be set.

/// The space in which a register decodes addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Space {
    /// Memory.
    Memory,
    /// I/O ports.
    Io,
}

/// A base address register. Sizes are in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bar {
    /// Memory below 4 GiB.
    Memory32 {
        /// A power of two, at least 16.
        size: u32,
        /// Reads have no effect, and writes may be merged.
        prefetchable: bool,
    },
    /// Memory anywhere; takes the next register for the upper half.
    Memory64 {
        /// A power of two, at least 16.
        size: u64,
        /// Reads have no effect, and writes may be merged.
        prefetchable: bool,
    },
    /// I/O ports.
    Io {
        /// A power of two, 4 to 256.
        size: u32,
    },
}

impl Bar {
    /// Its size in bytes.
    pub const fn size(self) -> u64 {
        match self {
            Self::Memory32 { size, .. } | Self::Io { size } => size as u64,
            Self::Memory64 { size, .. } => size,
        }
    }

    /// The space that it decodes.
    pub const fn space(self) -> Space {
        match self {
            Self::Memory32 { .. } | Self::Memory64 { .. } => Space::Memory,
            Self::Io { .. } => Space::Io,
        }
    }

    /// Whether it takes two registers.
    pub const fn is_wide(self) -> bool {
        matches!(self, Self::Memory64 { .. })
    }

    /// Whether its size is one that a register can have.
    pub const fn is_valid(self) -> bool {
        let size = self.size();
        let within = match self {
            Self::Io { .. } => size >= 4 && size <= 256,
            _ => size >= 16,
        };
        within && size.is_power_of_two()
    }

    /// The bits that say what it is; they cannot be written.
    pub(crate) const fn kind(self) -> u64 {
        match self {
            Self::Memory32 { prefetchable, .. } => (prefetchable as u64) << 3,
            Self::Memory64 { prefetchable, .. } => (prefetchable as u64) << 3 | 0b100,
            Self::Io { .. } => 1,
        }
    }

    /// The bits that can be written: those of the address at and above the size.
    pub(crate) const fn writable(self) -> u64 {
        let width = if self.is_wide() { u64::MAX } else { 0xffff_ffff };
        !(self.size() - 1) & width
    }
}
