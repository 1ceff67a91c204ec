// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The registers of one queue.

use crate::memory::Memory;
use crate::ring::{Areas, Layout};
use crate::violation::Violation;

/// The vector of an interrupt that has none.
pub const NO_VECTOR: u16 = 0xffff;

/// How many words the state of a queue has.
pub(super) const WORDS: usize = 4;

/// The three areas of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The descriptors.
    Descriptors,
    /// The driver's area.
    Driver,
    /// The device's area.
    Device,
}

/// What a driver has said of a queue. Once it is enabled, nothing but its vector changes until it is reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueRegisters {
    maximum: u16,
    size: u16,
    vector: u16,
    enabled: bool,
    areas: Areas,
}

impl QueueRegisters {
    pub(super) const fn new(maximum: u16) -> Self {
        let areas = Areas { descriptors: 0, driver: 0, device: 0 };
        Self { maximum, size: maximum, vector: NO_VECTOR, enabled: false, areas }
    }

    pub(super) const fn exists(&self) -> bool {
        self.maximum != 0
    }

    /// How many descriptors it has at most.
    pub const fn maximum(&self) -> u16 {
        self.maximum
    }

    /// How many descriptors the driver wants: whatever it wrote, checked by [`QueueRegisters::layout`].
    pub const fn size(&self) -> u16 {
        self.size
    }

    /// The vector of its interrupts.
    pub const fn vector(&self) -> u16 {
        self.vector
    }

    /// Whether the driver has enabled it.
    pub const fn is_enabled(&self) -> bool {
        self.enabled
    }

    /// Where its areas are, as the driver says.
    pub const fn areas(&self) -> Areas {
        self.areas
    }

    /// Checks what the driver has said, for a device to begin with the queue.
    pub fn layout<M: Memory>(&self, memory: &M) -> Result<Layout, Violation> {
        if self.size > self.maximum {
            return Err(Violation::Size(self.size));
        }
        Layout::new(memory, self.size, self.areas)
    }

    pub(crate) const fn set_size(&mut self, size: u16) {
        if !self.enabled {
            self.size = size;
        }
    }

    pub(crate) const fn set_vector(&mut self, vector: u16) {
        self.vector = vector;
    }

    pub(crate) const fn area(&self, part: Part) -> u64 {
        match part {
            Part::Descriptors => self.areas.descriptors,
            Part::Driver => self.areas.driver,
            Part::Device => self.areas.device,
        }
    }

    /// Writes 32 bits of an address, the upper ones or the lower ones.
    pub(crate) const fn set_half(&mut self, part: Part, upper: bool, value: u32) {
        let area = match part {
            _ if self.enabled => return,
            Part::Descriptors => &mut self.areas.descriptors,
            Part::Driver => &mut self.areas.driver,
            Part::Device => &mut self.areas.device,
        };
        *area = match upper {
            true => *area & 0xffff_ffff | (value as u64) << 32,
            false => *area & !0xffff_ffff | value as u64,
        };
    }

    /// Enables it; false if it is already.
    pub(super) const fn enable(&mut self) -> bool {
        !core::mem::replace(&mut self.enabled, true)
    }

    pub(super) const fn reset(&mut self) {
        *self = Self::new(self.maximum);
    }

    /// Returns the state as words.
    pub(super) fn save(&self) -> [u64; WORDS] {
        let Areas { descriptors, driver, device } = self.areas;
        let first = u64::from(self.size) | u64::from(self.vector) << 16 | u64::from(self.enabled) << 32;
        [first, descriptors, driver, device]
    }

    /// Sets a state that was saved. A queue that does not exist stays so, and none is enabled before the features are agreed on.
    pub(super) fn restore(&mut self, [first, descriptors, driver, device]: [u64; WORDS], agreed: bool) {
        if self.exists() {
            (self.size, self.vector) = (first as u16, (first >> 16) as u16);
            self.enabled = agreed && first >> 32 & 1 != 0;
            self.areas = Areas { descriptors, driver, device };
        }
    }
}
