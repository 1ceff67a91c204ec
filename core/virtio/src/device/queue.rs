// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A queue: its chains are taken and returned.

use super::chain::{Chain, Token};
use crate::memory::Memory;
use crate::ring::{Buffer, Descriptor, Layout, NO_INTERRUPT, NO_NOTIFY, Options, passes};
use crate::rings::Rings;
use crate::violation::Violation;

/// What [`Queue::pop_one`] has taken.
#[derive(Debug)]
#[must_use = "a chain must be returned to the driver"]
pub enum One {
    /// A chain of one buffer.
    Buffer(Token, Buffer),
    /// A chain of more, or an indirect one: [`Queue::chain`] follows it.
    Not(Token),
}

/// The buffer of a chain that has no other, by its head. `None` if it has, or is an indirect one.
#[inline(always)] // On the path of every buffer.
fn only<M: Memory>(memory: &M, head: Descriptor) -> Result<Option<Buffer>, Violation> {
    let Some(buffer) = head.only() else { return Ok(None) };
    if !memory.contains(buffer.address, buffer.length.into()) {
        return Err(Violation::Outside(buffer.address));
    }
    Ok(Some(buffer))
}

/// A queue, as its device sees it, which reaches it by [`Rings`]. All indexes grow and wrap at 2^16.
#[derive(Debug)]
pub struct Queue<R = Layout> {
    pub(super) rings: R,
    options: Options,
    /// How many descriptors a chain may have.
    longest: u32,
    /// The next available entry to take.
    pub(super) next: u16,
    /// The driver's index, as it was last read: entries before it are there.
    pub(super) seen: u16,
    /// The next used entry to write, which the driver sees.
    pub(super) used: u16,
    /// The used index up to which it was decided whether the driver wants an interrupt.
    published: u16,
    /// Which life of the queue this is: tokens of an earlier one are worth nothing.
    pub(super) generation: u32,
}

impl<R> Queue<R> {
    /// Takes over a queue that the driver has enabled. A chain that has more than `longest` descriptors is refused.
    pub const fn new(rings: R, options: Options, longest: u32) -> Self {
        Self { rings, options, longest, next: 0, seen: 0, used: 0, published: 0, generation: 0 }
    }

    /// Takes up a queue that an earlier life of the device has left at any instant: what is available and not used has not been done.
    /// This holds if that life completed chains in the order in which it took them. It may have gone before it raised an interrupt
    /// that it owed, so one must be raised for the queue; and no notification may come for what is there, so look.
    pub fn resume<M: Memory>(memory: &M, rings: R, options: Options, longest: u32) -> Result<Self, Violation>
    where
        R: Rings<M>,
    {
        let used = rings.load_used(memory)?;
        let new = Self::new(rings, options, longest);
        Ok(Self { next: used, seen: used, used, published: used, ..new })
    }

    /// Begins anew after a reset of the queue or the device. Tokens of before are forgotten when they come.
    pub fn renew(&mut self, rings: R, options: Options) {
        let generation = self.generation.wrapping_add(1);
        *self = Self { generation, ..Self::new(rings, options, self.longest) };
    }

    /// The index of the chain that is completed next: what is kept of it by this is of use after a [`Queue::resume`] at the same place.
    #[inline(always)] // A load.
    pub const fn position(&self) -> u16 {
        self.used
    }

    /// How many chains were taken and not completed.
    #[inline(always)] // On the path of every buffer.
    pub const fn in_flight(&self) -> u16 {
        // Both grow by one for each chain; one that is given back was not taken.
        self.next.wrapping_sub(self.used)
    }

    /// Takes the next chain that the driver has offered. `None` if there is none now.
    #[inline(always)] // On the path of every buffer: the chain stays in registers.
    pub fn pop<M: Memory>(&mut self, memory: &M) -> Result<Option<Chain>, Violation>
    where
        R: Rings<M>,
    {
        Ok(self.take(memory)?.map(|token| self.chain(token)))
    }

    /// [`Queue::pop`] where most chains have one buffer.
    #[inline(always)] // On the path of every packet.
    pub fn pop_one<M: Memory>(&mut self, memory: &M) -> Result<Option<One>, Violation>
    where
        R: Rings<M>,
    {
        let Some(token) = self.take(memory)? else { return Ok(None) };
        Ok(Some(match only(memory, self.rings.descriptor(memory, token.head)?)? {
            Some(buffer) => One::Buffer(token, buffer),
            None => One::Not(token),
        }))
    }

    /// The chain that was taken, from its beginning, whatever was read of it.
    #[inline(always)] // As above.
    pub fn chain<M: Memory>(&self, token: Token) -> Chain
    where
        R: Rings<M>,
    {
        Chain::new((self.rings.descriptors(), self.rings.size()), self.options, self.longest, token)
    }

    /// Takes the head of the next chain.
    #[inline(always)] // As above.
    fn take<M: Memory>(&mut self, memory: &M) -> Result<Option<Token>, Violation>
    where
        R: Rings<M>,
    {
        if self.seen == self.next && !self.look(memory)? {
            return Ok(None);
        }
        // An honest driver has no descriptor left for another chain.
        if self.in_flight() >= self.rings.size() {
            return Err(Violation::TooMany);
        }
        let head = self.rings.available(memory, self.next)?;
        if head >= self.rings.size() {
            return Err(Violation::Head(head));
        }
        self.next = self.next.wrapping_add(1);
        Ok(Some(Token { head, generation: self.generation }))
    }

    /// Gives back the chain that was taken last, as if it had not been taken. Several are given back in reverse. Nothing may have been
    /// completed since.
    #[inline] // On the path of packets that must wait.
    pub fn put_back(&mut self, token: Token) {
        if token.generation == self.generation {
            self.next = self.next.wrapping_sub(1);
        }
    }

    /// Reads the driver's index, and says whether there are entries to take.
    #[inline(always)] // On the path of every batch.
    fn look<M: Memory>(&mut self, memory: &M) -> Result<bool, Violation>
    where
        R: Rings<M>,
    {
        self.seen = self.find(memory, self.next)?;
        Ok(self.seen != self.next)
    }

    /// Reads the driver's index. The next entry to take is `next`.
    #[inline(always)] // As above.
    pub(super) fn find<M: Memory>(&self, memory: &M, next: u16) -> Result<u16, Violation>
    where
        R: Rings<M>,
    {
        // Acquire: pairs with the driver's store of the index, so entries and descriptors are as it wrote them before.
        let found = self.rings.load_available(memory)?;
        if found.wrapping_sub(next) > self.rings.size() {
            return Err(Violation::AvailableJump { next, found });
        }
        Ok(found)
    }

    /// Returns a chain to the driver, with the number of bytes that were written to it from its beginning, and leaves open whether it wants an
    /// interrupt: [`Queue::publish`] must follow. The driver sees each chain at once, so a device that is killed does at most one again. A token
    /// of before a reset is forgotten.
    #[inline(always)] // On the path of every buffer.
    pub fn complete<M: Memory>(&mut self, memory: &M, token: Token, written: u32) -> Result<(), Violation>
    where
        R: Rings<M>,
    {
        if token.generation != self.generation {
            return Ok(());
        }
        let entry = u64::from(token.head) | u64::from(written) << 32;
        self.rings.write_used(memory, self.used, entry)?;
        self.show(memory, self.used.wrapping_add(1))
    }

    /// Shows the driver all entries before this one.
    #[inline(always)] // As above.
    pub(super) fn show<M: Memory>(&mut self, memory: &M, used: u16) -> Result<(), Violation>
    where
        R: Rings<M>,
    {
        self.used = used;
        // Release: the entries, and what was written to the buffers, are visible to whoever loads the index.
        Ok(self.rings.store_used(memory, used)?)
    }

    /// Says whether the driver wants an interrupt for what was completed since this was asked last.
    #[inline(always)] // On the path of every batch.
    pub fn publish<M: Memory>(&mut self, memory: &M) -> Result<bool, Violation>
    where
        R: Rings<M>,
    {
        let (old, new) = (self.published, self.used);
        if old == new {
            return Ok(false);
        }
        self.published = new;
        // The index must be visible before the driver's wish is read: the driver writes its wish, fences, and reads the index. So
        // one of the two sees what the other one wrote, and no interrupt is lost.
        memory.fence();
        if self.options.event_idx {
            return Ok(passes(self.rings.used_event(memory)?, old, new));
        }
        Ok(self.rings.available_flags(memory)? & NO_INTERRUPT == 0)
    }

    /// Asks for a notification when the driver offers the next chain. Returns whether there is one already, for which no
    /// notification may come: then take it, and arm again.
    #[inline(always)] // On the path of every batch.
    pub fn arm<M: Memory>(&mut self, memory: &M) -> Result<bool, Violation>
    where
        R: Rings<M>,
    {
        match self.options.event_idx {
            true => self.rings.store_event(memory, self.next)?,
            false => self.rings.store_flags(memory, 0)?,
        }
        // The wish must be visible before the index is read; the driver does it the other way round.
        memory.fence();
        self.look(memory)
    }

    /// Says that notifications are not needed, which is a hint. With EVENT_IDX there is nothing to say: the entry that the last
    /// [`Queue::arm`] asked for has passed.
    pub fn suppress<M: Memory>(&mut self, memory: &M) -> Result<(), Violation>
    where
        R: Rings<M>,
    {
        if !self.options.event_idx {
            self.rings.store_flags(memory, NO_NOTIFY)?;
        }
        Ok(())
    }
}
