// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The split ring in memory (section 2.7): a table of descriptors, an area that the driver writes (the available ring) and one that
//! the device writes (the used ring).

use bitflags::bitflags;

use crate::features::Features;
use crate::memory::{Memory, Outside};
use crate::violation::Violation;

/// How many descriptors a queue has at most.
pub const MAX_SIZE: u16 = 1 << 15;
/// How many bytes a descriptor has.
pub const DESCRIPTOR: u64 = 16;

/// A flag of the driver's area: it wants no interrupts (without EVENT_IDX).
pub(crate) const NO_INTERRUPT: u16 = 1;
/// A flag of the device's area: it wants no notifications (without EVENT_IDX).
pub(crate) const NO_NOTIFY: u16 = 1;

/// Where the three areas of a queue are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Areas {
    /// The descriptors: 16 bytes each, aligned to 16.
    pub descriptors: u64,
    /// The driver's area: 6 bytes, and 2 for each descriptor, aligned to 2.
    pub driver: u64,
    /// The device's area: 6 bytes, and 8 for each descriptor, aligned to 4.
    pub device: u64,
}

impl Areas {
    /// Returns the lengths of the three areas, in bytes, in their order.
    pub const fn lengths(size: u16) -> [u64; 3] {
        [DESCRIPTOR * size as u64, 6 + 2 * size as u64, 6 + 8 * size as u64]
    }
}

/// What was negotiated about rings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// VIRTIO_F_INDIRECT_DESC.
    pub indirect: bool,
    /// VIRTIO_F_EVENT_IDX.
    pub event_idx: bool,
}

impl From<Features> for Options {
    fn from(features: Features) -> Self {
        Self {
            indirect: features.contains(Features::INDIRECT_DESC),
            event_idx: features.contains(Features::EVENT_IDX),
        }
    }
}

/// A queue's size and areas, checked: the areas are aligned and were within memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    size: u16,
    areas: Areas,
}

impl Layout {
    /// Of a queue that is nowhere yet.
    pub(crate) const NOWHERE: Self = Self { size: 1, areas: Areas { descriptors: 0, driver: 0, device: 0 } };

    /// Checks size and areas.
    pub fn new<M: Memory>(memory: &M, size: u16, areas: Areas) -> Result<Self, Violation> {
        if !size.is_power_of_two() || size > MAX_SIZE {
            return Err(Violation::Size(size));
        }
        let Areas { descriptors, driver, device } = areas;
        let alignments = [(descriptors, 16), (driver, 2), (device, 4)];
        for ((address, alignment), length) in alignments.into_iter().zip(Areas::lengths(size)) {
            if !u64::is_multiple_of(address, alignment) {
                return Err(Violation::Alignment(address));
            }
            // An area that ends with the address space is left to nobody's arithmetic.
            if !memory.contains(address, length) || address.checked_add(length).is_none() {
                return Err(Violation::Outside(address));
            }
        }
        Ok(Self { size, areas })
    }

    /// How many descriptors there are.
    pub const fn size(&self) -> u16 {
        self.size
    }

    /// Where the areas are.
    pub const fn areas(&self) -> Areas {
        self.areas
    }

    // The sums stay within the areas, whose ends do not overflow.

    pub(crate) const fn available_flags(&self) -> u64 {
        self.areas.driver
    }

    pub(crate) const fn available_index(&self) -> u64 {
        self.areas.driver + 2
    }

    /// An entry of the available ring.
    pub(crate) const fn available(&self, index: u16) -> u64 {
        self.areas.driver + 4 + 2 * self.slot(index)
    }

    /// Where the driver says for which used entry it wants an interrupt.
    pub(crate) const fn used_event(&self) -> u64 {
        self.areas.driver + 4 + 2 * self.size as u64
    }

    pub(crate) const fn used_flags(&self) -> u64 {
        self.areas.device
    }

    pub(crate) const fn used_index(&self) -> u64 {
        self.areas.device + 2
    }

    /// An entry of the used ring.
    pub(crate) const fn used(&self, index: u16) -> u64 {
        self.areas.device + 4 + 8 * self.slot(index)
    }

    /// Where the device says for which available entry it wants a notification.
    pub(crate) const fn available_event(&self) -> u64 {
        self.areas.device + 4 + 8 * self.size as u64
    }

    /// The place in a ring of an index that only grows; the size is a power of two.
    const fn slot(&self, index: u16) -> u64 {
        (index & (self.size - 1)) as u64
    }
}

bitflags! {
    /// Flags of a descriptor. Others are reserved and ignored.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Flags: u16 {
        /// The chain goes on.
        const NEXT = 1;
        /// The device writes the buffer; otherwise it reads it.
        const WRITE = 2;
        /// The buffer is a table of descriptors.
        const INDIRECT = 4;
    }
}

/// A descriptor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Descriptor {
    /// Where the buffer is.
    pub address: u64,
    /// How many bytes it has.
    pub length: u32,
    /// What it is.
    pub flags: Flags,
    /// The next descriptor, if there is one.
    pub next: u16,
}

impl Descriptor {
    /// Reads a descriptor, each field once.
    #[inline(always)] // On the path of every buffer.
    pub fn read<M: Memory>(memory: &M, address: u64) -> Result<Self, Outside> {
        Ok(Self::from_words(memory.read_words(address)?))
    }

    /// The descriptor in two words, as they lie in memory.
    #[inline(always)] // A few moves.
    pub const fn from_words([address, rest]: [u64; 2]) -> Self {
        let flags = Flags::from_bits_retain((rest >> 32) as u16);
        Self { address, length: rest as u32, flags, next: (rest >> 48) as u16 }
    }

    /// The buffer that it is, if no other descriptor belongs to it.
    #[inline(always)] // On the path of every buffer.
    pub const fn only(&self) -> Option<Buffer> {
        if self.flags.intersects(Flags::NEXT.union(Flags::INDIRECT)) {
            return None;
        }
        let writable = self.flags.contains(Flags::WRITE);
        Some(Buffer { address: self.address, length: self.length, writable })
    }

    /// The same, if the device writes it.
    #[inline(always)] // On the path of every buffer.
    pub const fn only_written(&self) -> Option<Buffer> {
        // At once, as most are so.
        let kind = self.flags.intersection(Flags::all());
        if kind.bits() != Flags::WRITE.bits() {
            return None;
        }
        Some(Buffer { address: self.address, length: self.length, writable: true })
    }

    /// Writes a descriptor.
    #[inline] // On the path of every buffer.
    pub fn write<M: Memory>(&self, memory: &M, address: u64) -> Result<(), Outside> {
        let mut bytes = [0; 16];
        let (upper, lower) = bytes.split_at_mut(8);
        upper.copy_from_slice(&self.address.to_le_bytes());
        let rest = u64::from(self.length) | u64::from(self.flags.bits()) << 32 | u64::from(self.next) << 48;
        lower.copy_from_slice(&rest.to_le_bytes());
        memory.write(address, &bytes)
    }
}

/// A buffer of a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buffer {
    /// Where it is.
    pub address: u64,
    /// How many bytes it has; may be none.
    pub length: u32,
    /// The device writes it; otherwise it reads it.
    pub writable: bool,
}

/// Says whether the other side wants to hear that an index went from `old` to `new`, if it has asked for the entry `event`
/// (sections 2.7.7.1 and 2.7.10.1). All three only grow, and wrap.
#[inline] // On the path of every batch.
pub const fn passes(event: u16, old: u16, new: u16) -> bool {
    new.wrapping_sub(event).wrapping_sub(1) < new.wrapping_sub(old)
}
