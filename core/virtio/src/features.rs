// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Feature bits (section 2.2). Those of device types are with their [configuration](crate::config).

use bitflags::bitflags;

bitflags! {
    /// A set of feature bits. The names here are of the bits that all devices have (section 6).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Features: u64 {
        /// A descriptor may name a table of descriptors.
        const INDIRECT_DESC = 1 << 28;
        /// Each side says for which entry it wants to hear of the other.
        const EVENT_IDX = 1 << 29;
        /// The device is none of the time before virtio 1.0.
        const VERSION_1 = 1 << 32;
        /// Addresses are translated, or not all memory can be reached.
        const ACCESS_PLATFORM = 1 << 33;
        /// Queues are packed rings.
        const RING_PACKED = 1 << 34;
        /// Buffers are returned in the order in which they were offered.
        const IN_ORDER = 1 << 35;
        /// Barriers must be those for devices outside the CPUs.
        const ORDER_PLATFORM = 1 << 36;
        /// Notifications carry more than the queue's number.
        const NOTIFICATION_DATA = 1 << 38;
        /// A queue can be reset by itself.
        const RING_RESET = 1 << 40;
        // The bits of device types, and those to come.
        const _ = !0;
    }
}

impl Features {
    /// Makes a set of one bit.
    pub const fn bit(number: u32) -> Self {
        Self::from_bits_retain(1 << number)
    }

    /// Returns the low (`select` 0) or high (1) 32 bits; others are zero.
    pub const fn word(self, select: u32) -> u32 {
        match select {
            0 => self.bits() as u32,
            1 => (self.bits() >> 32) as u32,
            _ => 0,
        }
    }

    /// Replaces the low (`select` 0) or high (1) 32 bits; others do not exist.
    #[must_use]
    pub const fn with_word(self, select: u32, value: u32) -> Self {
        Self::from_bits_retain(match select {
            0 => self.bits() & !0xffff_ffff | value as u64,
            1 => self.bits() & 0xffff_ffff | (value as u64) << 32,
            _ => self.bits(),
        })
    }
}

/// A feature that a driver may accept only with one of others (section 2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Requirement {
    /// The feature.
    pub feature: Features,
    /// The features of which it needs one.
    pub one_of: Features,
}

/// Whether a device that offers `offered` can work with what its driver accepts: nothing else, VERSION_1, and for each feature what
/// it requires.
pub fn acceptable(offered: Features, accepted: Features, requirements: &[Requirement]) -> bool {
    let met = |requirement: &Requirement| {
        !accepted.intersects(requirement.feature) || accepted.intersects(requirement.one_of)
    };
    offered.contains(accepted) && accepted.contains(Features::VERSION_1) && requirements.iter().all(met)
}
