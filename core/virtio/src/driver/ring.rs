// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The driver's side of a queue whose chains have numbers. Most are one buffer.

use super::{Queue, Refusal};
use crate::memory::Memory;
use crate::ring::{Areas, Buffer, Layout, Options};
use crate::violation::Violation;

/// How many bytes a ring has at most.
pub const BYTES: u64 = 4096;

/// A queue of up to `N` buffers, at most 128.
#[derive(Debug)]
pub struct Ring<const N: usize> {
    queue: Queue<N>,
    /// The number of each buffer that the device has, by the name of its chain.
    numbers: [u16; N],
}

impl<const N: usize> Ring<N> {
    const FITS: () = assert!(N <= 128, "the ring is within a page");

    /// Where a ring of this size is that begins at a multiple of 4096.
    pub fn layout<M: Memory>(memory: &M, size: u16, at: u64) -> Result<Layout, Violation> {
        let () = Self::FITS;
        // Sums within a page.
        if !at.is_multiple_of(BYTES) || size as usize > N {
            return Err(Violation::Alignment(at));
        }
        let [descriptors, driver, _] = Areas::lengths(size);
        let device = (at + descriptors + driver).next_multiple_of(4);
        Layout::new(memory, size, Areas { descriptors: at, driver: at + descriptors, device })
    }

    /// A ring that is nowhere.
    pub const NEW: Self = Self { queue: Queue::nowhere(), numbers: [0; N] };

    /// Makes it an empty ring, in memory, too. What it was before is forgotten.
    pub fn begin<M: Memory>(
        &mut self,
        memory: &M,
        layout: Layout,
        options: Options,
    ) -> Result<(), Violation> {
        self.queue.begin(memory, layout, options)
    }

    /// How many more buffers have room.
    pub const fn room(&self) -> u16 {
        self.queue.free()
    }

    /// How many buffers the device has.
    pub const fn in_flight(&self) -> u16 {
        self.queue.in_flight()
    }

    /// Gives the device a buffer, which it sees behind [`Ring::publish`].
    pub fn add<M: Memory>(&mut self, memory: &M, number: u16, buffer: Buffer) -> Result<(), Refusal> {
        self.add_chain(memory, number, &[buffer])
    }

    /// Gives the device a chain of buffers under one number.
    pub fn add_chain<M: Memory>(
        &mut self,
        memory: &M,
        number: u16,
        buffers: &[Buffer],
    ) -> Result<(), Refusal> {
        let id = self.queue.add(memory, buffers)?;
        self.name(id, number);
        Ok(())
    }

    /// Gives the device a chain of buffers under one number, by a table: see [`Queue::add_indirect`].
    pub fn add_indirect<M: Memory>(
        &mut self,
        memory: &M,
        number: u16,
        table: u64,
        buffers: &[Buffer],
    ) -> Result<(), Refusal> {
        let id = self.queue.add_indirect(memory, table, buffers)?;
        self.name(id, number);
        Ok(())
    }

    /// The chain of this name has a number.
    fn name(&mut self, id: u16, number: u16) {
        if let Some(place) = self.numbers.get_mut(usize::from(id)) {
            *place = number;
        }
    }

    /// Takes the next buffer that the device has returned: its number, and how many bytes it has written.
    #[inline] // Of each packet.
    pub fn take<M: Memory>(&mut self, memory: &M) -> Result<Option<(u16, u32)>, Violation> {
        let Some(used) = self.queue.take(memory)? else { return Ok(None) };
        Ok(self.numbers.get(usize::from(used.id)).map(|number| (*number, used.written)))
    }

    /// Shows the device what was added. Returns whether it wants a notification.
    pub fn publish<M: Memory>(&mut self, memory: &M) -> Result<bool, Violation> {
        self.queue.publish(memory)
    }

    /// Asks for an interrupt. Returns whether there is something already.
    pub fn arm<M: Memory>(&mut self, memory: &M) -> Result<bool, Violation> {
        self.queue.arm(memory)
    }

    /// Says that interrupts are not needed.
    pub fn suppress<M: Memory>(&mut self, memory: &M) -> Result<(), Violation> {
        self.queue.suppress(memory)
    }
}
