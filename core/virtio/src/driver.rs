// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The driver's side of a queue.
//!
//! ```text
//! add … → publish: notify, if it says so → take … → arm: take again, if it says so → wait for an interrupt
//! ```
//!
//! What the driver must not lose lies in its own memory: which descriptors are free, which chains the device has, and how much it
//! may write to each. Of the shared memory it reads what the device says, and checks that.

mod bus;
pub mod pci;
mod pool;
pub mod ring;
pub mod rung;

use core::fmt;

use crate::memory::{Memory, Outside};
use crate::ring::{
    Areas, Buffer, DESCRIPTOR, Descriptor, Flags, Layout, NO_INTERRUPT, NO_NOTIFY, Options, passes,
};
use crate::violation::Violation;
pub use bus::Bus;
use pool::Pool;

/// Why a chain cannot be offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// There are not enough free descriptors now.
    Full,
    /// A chain needs at least one buffer.
    Empty,
    /// Buffers that the device reads come first.
    Order,
    /// A chain has at most 2^32 - 1 bytes here.
    Bytes,
    /// Indirect descriptors were not negotiated, or the table would have more than 65536.
    Indirect,
    /// The table or the ring is outside memory.
    Outside(u64),
}

impl From<Outside> for Refusal {
    fn from(outside: Outside) -> Self {
        Self::Outside(outside.address)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full => f.write_str("there are not enough free descriptors"),
            Self::Empty => f.write_str("a chain needs a buffer"),
            Self::Order => f.write_str("a readable buffer stands behind a writable one"),
            Self::Bytes => f.write_str("a chain has too many bytes"),
            Self::Indirect => f.write_str("an indirect table cannot be used"),
            Self::Outside(address) => write!(f, "{address:#x} is outside memory"),
        }
    }
}

impl core::error::Error for Refusal {}

/// A chain that the device has returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Used {
    /// What [`Queue::add`] returned for it.
    pub id: u16,
    /// How many bytes the device has written, from the beginning of what it may write.
    pub written: u32,
}

/// A queue of up to `N` descriptors, as its driver sees it. All indexes grow and wrap at 2^16.
#[derive(Debug)]
pub struct Queue<const N: usize> {
    layout: Layout,
    options: Options,
    pool: Pool<N>,
    /// The next available entry to write.
    added: u16,
    /// The available index that the device sees.
    published: u16,
    /// The next used entry to take.
    next: u16,
    /// The device's index, as it was last read.
    seen: u16,
}

impl<const N: usize> Queue<N> {
    /// A queue that is nowhere: nothing can be offered until it [begins](Queue::begin).
    pub const fn nowhere() -> Self {
        Self {
            layout: Layout::NOWHERE,
            options: Options { indirect: false, event_idx: false },
            pool: Pool::NEW,
            added: 0,
            published: 0,
            next: 0,
            seen: 0,
        }
    }

    /// Makes an empty queue, in memory, too, before the device is told of it.
    pub fn new<M: Memory>(memory: &M, layout: Layout, options: Options) -> Result<Self, Violation> {
        let mut queue = Self::nowhere();
        queue.begin(memory, layout, options)?;
        Ok(queue)
    }

    /// Makes it an empty queue, in memory, too, before the device is told of it. What it was before is forgotten.
    pub fn begin<M: Memory>(
        &mut self,
        memory: &M,
        layout: Layout,
        options: Options,
    ) -> Result<(), Violation> {
        (self.layout, self.options) = (layout, options);
        (self.added, self.published, self.next, self.seen) = (0, 0, 0, 0);
        if !self.pool.begin(layout.size()) {
            return Err(Violation::Size(layout.size()));
        }
        let Areas { driver, device, .. } = layout.areas();
        let [_, driver_length, device_length] = Areas::lengths(layout.size());
        for (begin, length) in [(driver, driver_length), (device, device_length)] {
            for at in (0..length).step_by(2) {
                memory.store(begin + at, 0)?;
            }
        }
        Ok(())
    }

    /// How many descriptors are free.
    pub const fn free(&self) -> u16 {
        self.pool.free()
    }

    /// How many chains the device has, those included that it has not been shown.
    pub const fn in_flight(&self) -> u16 {
        self.pool.in_flight()
    }

    /// Offers a chain of buffers, for which a descriptor each is used; those that the device reads come first. The device sees it
    /// after [`Queue::publish`]. Returns a name for it, which is its own until it is taken back.
    pub fn add<M: Memory>(&mut self, memory: &M, buffers: &[Buffer]) -> Result<u16, Refusal> {
        let writable = check(buffers)?;
        if buffers.len() > usize::from(self.pool.free()) {
            return Err(Refusal::Full);
        }
        let head = self.pool.first();
        let mut at = head;
        for (index, buffer) in (1..).zip(buffers) {
            let next = self.pool.behind(at);
            let descriptor = describe(buffer, (index < buffers.len()).then_some(next));
            descriptor.write(memory, self.layout.areas().descriptors + DESCRIPTOR * u64::from(at))?;
            at = next;
        }
        self.offer(memory, head, buffers.len() as u16, writable)
    }

    /// Offers a chain by one descriptor, which names a table: 16 bytes for each buffer at `table`, the driver's own until the chain
    /// is taken back.
    pub fn add_indirect<M: Memory>(
        &mut self,
        memory: &M,
        table: u64,
        buffers: &[Buffer],
    ) -> Result<u16, Refusal> {
        let writable = check(buffers)?;
        if !self.options.indirect || buffers.len() > 1 << 16 {
            return Err(Refusal::Indirect);
        }
        if self.pool.free() == 0 {
            return Err(Refusal::Full);
        }
        let length = DESCRIPTOR * buffers.len() as u64;
        if !memory.contains(table, length) || table.checked_add(length).is_none() {
            return Err(Refusal::Outside(table));
        }
        for (index, buffer) in (1u64..).zip(buffers) {
            let next = (index < buffers.len() as u64).then_some(index as u16);
            describe(buffer, next).write(memory, table + DESCRIPTOR * (index - 1))?;
        }
        let head = self.pool.first();
        let descriptor =
            Descriptor { address: table, length: length as u32, flags: Flags::INDIRECT, next: 0 };
        descriptor.write(memory, self.layout.areas().descriptors + DESCRIPTOR * u64::from(head))?;
        self.offer(memory, head, 1, writable)
    }

    /// Writes an available entry, and keeps in mind what the device has.
    fn offer<M: Memory>(&mut self, memory: &M, head: u16, count: u16, writable: u32) -> Result<u16, Refusal> {
        memory.write(self.layout.available(self.added), &head.to_le_bytes())?;
        self.pool.take(head, count, writable);
        self.added = self.added.wrapping_add(1);
        Ok(head)
    }

    /// Shows the device what was added. Returns whether it wants a notification for it.
    pub fn publish<M: Memory>(&mut self, memory: &M) -> Result<bool, Violation> {
        let (old, new) = (self.published, self.added);
        if old == new {
            return Ok(false);
        }
        // Release: descriptors, entries and the buffers' contents are visible to whoever loads the index.
        memory.store(self.layout.available_index(), new)?;
        self.published = new;
        // The index must be visible before the device's wish is read: the device writes its wish, fences, and reads the index. So one
        // of the two sees what the other one wrote, and no notification is lost.
        memory.fence();
        if self.options.event_idx {
            return Ok(passes(memory.read_u16(self.layout.available_event())?, old, new));
        }
        Ok(memory.read_u16(self.layout.used_flags())? & NO_NOTIFY == 0)
    }

    /// Takes the next chain that the device has returned. `None` if there is none now.
    pub fn take<M: Memory>(&mut self, memory: &M) -> Result<Option<Used>, Violation> {
        if self.seen == self.next && !self.look(memory)? {
            return Ok(None);
        }
        let mut entry = [0; 8];
        memory.read(self.layout.used(self.next), &mut entry)?;
        let entry = u64::from_le_bytes(entry);
        let (id, written) = (entry as u32, (entry >> 32) as u32);
        let known = u16::try_from(id).ok().and_then(|id| Some((id, self.pool.writable(id)?)));
        let Some((id, writable)) = known else { return Err(Violation::UsedId(id)) };
        if written > writable {
            return Err(Violation::UsedLength(written));
        }
        self.pool.give_back(id);
        self.next = self.next.wrapping_add(1);
        Ok(Some(Used { id, written }))
    }

    /// Reads the device's index, and says whether there are entries to take.
    fn look<M: Memory>(&mut self, memory: &M) -> Result<bool, Violation> {
        // Acquire: pairs with the device's store of the index, so entries and buffers are as it wrote them before.
        let found = memory.load(self.layout.used_index())?;
        if found.wrapping_sub(self.next) > self.pool.in_flight() {
            return Err(Violation::UsedJump { next: self.next, found });
        }
        self.seen = found;
        Ok(found != self.next)
    }

    /// Asks for an interrupt when the device returns the next chain. Returns whether it has returned one already, for which no
    /// interrupt may come: then take it, and arm again.
    pub fn arm<M: Memory>(&mut self, memory: &M) -> Result<bool, Violation> {
        match self.options.event_idx {
            true => memory.store(self.layout.used_event(), self.next)?,
            false => memory.store(self.layout.available_flags(), 0)?,
        }
        // The wish must be visible before the index is read; the device does it the other way round.
        memory.fence();
        self.look(memory)
    }

    /// Says that interrupts are not needed, which is a hint. With EVENT_IDX there is nothing to say: the entry that the last
    /// [`Queue::arm`] asked for has passed.
    pub fn suppress<M: Memory>(&mut self, memory: &M) -> Result<(), Violation> {
        if !self.options.event_idx {
            memory.store(self.layout.available_flags(), NO_INTERRUPT)?;
        }
        Ok(())
    }
}

/// Checks a chain, and returns how many bytes the device may write.
fn check(buffers: &[Buffer]) -> Result<u32, Refusal> {
    if buffers.is_empty() {
        return Err(Refusal::Empty);
    }
    if !buffers.is_sorted_by_key(|buffer| buffer.writable) {
        return Err(Refusal::Order);
    }
    let sum = |writable| buffers.iter().filter(move |buffer| buffer.writable == writable);
    let sum = |writable| sum(writable).map(|buffer| u64::from(buffer.length)).sum::<u64>();
    let (readable, writable) = (sum(false), sum(true));
    let all = readable.saturating_add(writable);
    u32::try_from(all).map_err(|_| Refusal::Bytes)?;
    Ok(writable as u32)
}

fn describe(buffer: &Buffer, next: Option<u16>) -> Descriptor {
    let mut flags = Flags::empty();
    flags.set(Flags::WRITE, buffer.writable);
    flags.set(Flags::NEXT, next.is_some());
    Descriptor { address: buffer.address, length: buffer.length, flags, next: next.unwrap_or(0) }
}
