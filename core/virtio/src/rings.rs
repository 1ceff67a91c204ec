// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How a device reaches the two rings of a queue.
//!
//! A [`Layout`] does it by the driver's addresses, which are looked up in each access. Memory whose places do not change while a queue is
//! there has a type of its own for it that finds them once; then no access can be outside.

use core::fmt::Debug;

use crate::memory::{Memory, Outside};
use crate::ring::{DESCRIPTOR, Descriptor, Layout};

/// The rings of a queue in memory of one kind. Each call reads or writes a field once. Indexes grow and wrap at 2^16.
pub trait Rings<M: Memory>: Copy + Debug {
    /// Finds the rings.
    fn find(memory: &M, layout: &Layout) -> Result<Self, Outside>;

    /// How many descriptors there are: a power of two.
    fn size(&self) -> u16;

    /// Where the descriptors are, as the driver says.
    fn descriptors(&self) -> u64;

    /// Reads a descriptor of the table, each field once.
    #[inline(always)] // On the path of every buffer.
    fn descriptor(&self, memory: &M, index: u16) -> Result<Descriptor, Outside> {
        Descriptor::read(memory, self.descriptors().wrapping_add(DESCRIPTOR * u64::from(index)))
    }

    /// Loads the driver's index, with acquire semantics.
    fn load_available(&self, memory: &M) -> Result<u16, Outside>;

    /// Reads an entry of the available ring.
    fn available(&self, memory: &M, index: u16) -> Result<u16, Outside>;

    /// Reads the driver's flags.
    fn available_flags(&self, memory: &M) -> Result<u16, Outside>;

    /// Reads for which used entry the driver wants an interrupt.
    fn used_event(&self, memory: &M) -> Result<u16, Outside>;

    /// Loads the device's index, with acquire semantics.
    fn load_used(&self, memory: &M) -> Result<u16, Outside>;

    /// Stores the device's index, with release semantics.
    fn store_used(&self, memory: &M, value: u16) -> Result<(), Outside>;

    /// Writes an entry of the used ring: the head of a chain in the lower half, how many bytes were written in the upper one.
    fn write_used(&self, memory: &M, index: u16, entry: u64) -> Result<(), Outside>;

    /// Stores the device's flags.
    fn store_flags(&self, memory: &M, value: u16) -> Result<(), Outside>;

    /// Stores for which available entry the device wants a notification.
    fn store_event(&self, memory: &M, value: u16) -> Result<(), Outside>;
}

impl<M: Memory> Rings<M> for Layout {
    fn find(_: &M, layout: &Layout) -> Result<Self, Outside> {
        Ok(*layout)
    }

    fn size(&self) -> u16 {
        self.size()
    }

    fn descriptors(&self) -> u64 {
        self.areas().descriptors
    }

    fn load_available(&self, memory: &M) -> Result<u16, Outside> {
        memory.load(self.available_index())
    }

    fn available(&self, memory: &M, index: u16) -> Result<u16, Outside> {
        memory.read_u16(self.available(index))
    }

    fn available_flags(&self, memory: &M) -> Result<u16, Outside> {
        memory.read_u16(self.available_flags())
    }

    fn used_event(&self, memory: &M) -> Result<u16, Outside> {
        memory.read_u16(self.used_event())
    }

    fn load_used(&self, memory: &M) -> Result<u16, Outside> {
        memory.load(self.used_index())
    }

    fn store_used(&self, memory: &M, value: u16) -> Result<(), Outside> {
        memory.store(self.used_index(), value)
    }

    fn write_used(&self, memory: &M, index: u16, entry: u64) -> Result<(), Outside> {
        memory.write(self.used(index), &entry.to_le_bytes())
    }

    fn store_flags(&self, memory: &M, value: u16) -> Result<(), Outside> {
        memory.store(self.used_flags(), value)
    }

    fn store_event(&self, memory: &M, value: u16) -> Result<(), Outside> {
        memory.store(self.available_event(), value)
    }
}
