// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The rules of rings that the other side can break.

use core::fmt;

use crate::memory::Outside;

/// What the other side has done wrong. A device that finds one sets DEVICE_NEEDS_RESET (section 2.1.2); a driver resets the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Violation {
    /// The queue's size is zero, no power of two, or above 32768 or the maximum (section 2.7).
    Size(u16),
    /// An area of the queue does not have its alignment (section 2.7).
    Alignment(u64),
    /// An area, a buffer or an indirect table is not within memory.
    Outside(u64),
    /// The driver's index is further ahead than the queue is long (section 2.7.13.3).
    AvailableJump {
        /// What was expected at least.
        next: u16,
        /// What was found.
        found: u16,
    },
    /// More chains are with the device than the queue has descriptors (section 2.7.13).
    TooMany,
    /// The driver offers a chain whose first descriptor does not exist (section 2.7.6).
    Head(u16),
    /// A descriptor names a next one that does not exist in its table (section 2.7.5).
    Next(u16),
    /// A chain has more descriptors than its table: it has a loop (section 2.7.5.2).
    Loop,
    /// A chain has more descriptors than the device accepts.
    Long,
    /// A chain has more than 2^32 bytes (section 2.7.5.2).
    Bytes,
    /// A buffer that the device reads stands behind one that it writes (section 2.7.4.2).
    Order,
    /// An indirect descriptor without the feature (section 2.7.5.3.1).
    IndirectFeature,
    /// An indirect descriptor in an indirect table (section 2.7.5.3.1).
    IndirectNested,
    /// An indirect descriptor that has a next one (section 2.7.5.3.1).
    IndirectNext,
    /// An indirect table of no, partial, or more than 65536 descriptors (section 2.7.5.3).
    IndirectLength(u32),
    /// The device's index is further ahead than it has chains (section 2.7.14).
    UsedJump {
        /// What was expected at least.
        next: u16,
        /// What was found.
        found: u16,
    },
    /// The device returns a chain that it does not have (section 2.7.8).
    UsedId(u32),
    /// The device says that it has written more than it may (section 2.7.8.2).
    UsedLength(u32),
}

impl From<Outside> for Violation {
    fn from(outside: Outside) -> Self {
        Self::Outside(outside.address)
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Size(size) => write!(f, "a queue cannot have {size} descriptors"),
            Self::Alignment(address) => write!(f, "an area of the queue at {address:#x} is not aligned"),
            Self::Outside(address) => write!(f, "{address:#x} is outside memory"),
            Self::AvailableJump { next, found } => {
                write!(f, "the available index jumped from {next} to {found}")
            }
            Self::TooMany => f.write_str("more chains are offered than there are descriptors"),
            Self::Head(index) => write!(f, "descriptor {index}, the first of a chain, does not exist"),
            Self::Next(index) => write!(f, "descriptor {index}, the next of a chain, does not exist"),
            Self::Loop => f.write_str("a chain of descriptors has a loop"),
            Self::Long => f.write_str("a chain has more descriptors than the device accepts"),
            Self::Bytes => f.write_str("a chain has more than 2^32 bytes"),
            Self::Order => f.write_str("a readable buffer stands behind a writable one"),
            Self::IndirectFeature => {
                f.write_str("an indirect descriptor, though the feature is not negotiated")
            }
            Self::IndirectNested => f.write_str("an indirect descriptor in an indirect table"),
            Self::IndirectNext => f.write_str("an indirect descriptor has a next one"),
            Self::IndirectLength(length) => write!(f, "an indirect table cannot have {length} bytes"),
            Self::UsedJump { next, found } => write!(f, "the used index jumped from {next} to {found}"),
            Self::UsedId(id) => write!(f, "the device returned chain {id}, which it does not have"),
            Self::UsedLength(length) => {
                write!(f, "the device says that it wrote {length} bytes, which are too many")
            }
        }
    }
}

impl core::error::Error for Violation {}
