// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Chains that are taken one behind the other and go back together, as those for one packet do.

use super::chain::{Chain, Token};
use super::queue::Queue;
use crate::memory::Memory;
use crate::ring::Descriptor;
use crate::rings::Rings;
use crate::violation::Violation;

/// The head of a chain of a [`Run`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head(u16);

/// Chains from the next one of a queue on. Until [`Run::complete`] none is taken: whoever drops the run leaves the queue as it was.
#[derive(Debug)]
pub struct Run<'a, R> {
    queue: &'a mut Queue<R>,
    rings: R,
    /// The next available entry to take.
    next: u16,
    /// The next used entry to write.
    used: u16,
    /// Up to where entries can be taken without a look at the driver's index.
    end: u16,
    /// The driver's index, as it was last read.
    seen: u16,
    /// How many chains it has at most.
    most: u16,
}

impl<'a, R: Copy> Run<'a, R> {
    /// Begins with the next chain, and has so many at most.
    #[inline(always)] // On the path of every packet: what it keeps in mind stays in registers.
    pub const fn new(queue: &'a mut Queue<R>, most: u16) -> Self {
        let (rings, next, seen, used) = (queue.rings, queue.next, queue.seen, queue.used);
        Self { queue, rings, next, used, end: next, seen, most }
    }

    /// How many chains it has.
    #[inline(always)] // A subtraction.
    pub const fn count(&self) -> u16 {
        self.next.wrapping_sub(self.queue.next)
    }

    /// Whether it has as many chains as it may.
    #[inline(always)] // As above.
    pub const fn is_full(&self) -> bool {
        self.count() == self.most
    }

    /// Goes on to the next chain that the driver has offered, and reads its first descriptor. `None` if there is none now, or the run is full. Nothing
    /// that the descriptor says is checked: [`Run::chain`] does it, or the caller.
    #[inline(always)] // On the path of every buffer.
    pub fn pop<M: Memory>(&mut self, memory: &M) -> Result<Option<(Head, Descriptor)>, Violation>
    where
        R: Rings<M>,
    {
        if self.next == self.end && !self.look(memory)? {
            return Ok(None);
        }
        let head = self.rings.available(memory, self.next)?;
        if head >= self.rings.size() {
            return Err(Violation::Head(head));
        }
        self.next = self.next.wrapping_add(1);
        Ok(Some((Head(head), self.rings.descriptor(memory, head)?)))
    }

    /// Finds the entries that can be taken, and reads the driver's index if all are taken. Returns whether there are some.
    #[inline(always)] // On the path of every batch.
    fn look<M: Memory>(&mut self, memory: &M) -> Result<bool, Violation>
    where
        R: Rings<M>,
    {
        if self.is_full() {
            return Ok(false);
        }
        if self.seen == self.next {
            self.seen = self.queue.find(memory, self.next)?;
        }
        let there = self.seen.wrapping_sub(self.next);
        // An honest driver has no descriptor left for more chains than the queue has descriptors.
        let room = self.rings.size().saturating_sub(self.next.wrapping_sub(self.queue.used));
        if there != 0 && room == 0 {
            return Err(Violation::TooMany);
        }
        let ready = there.min(room).min(self.most - self.count());
        self.end = self.next.wrapping_add(ready);
        Ok(there != 0)
    }

    /// The chain of a head, from its beginning, whatever was read of it.
    pub fn chain<M: Memory>(&self, head: Head) -> Chain
    where
        R: Rings<M>,
    {
        self.queue.chain(Token { head: head.0, generation: self.queue.generation })
    }

    /// Says how a chain goes back: with the number of bytes that are written to it from its beginning. To be called once for each, in their order. The
    /// driver does not look at that before it is shown: a run that is dropped has written behind what is.
    #[inline(always)] // On the path of every buffer.
    pub fn give_back<M: Memory>(&mut self, memory: &M, head: Head, written: u32) -> Result<(), Violation>
    where
        R: Rings<M>,
    {
        self.rings.write_used(memory, self.used, u64::from(head.0) | u64::from(written) << 32)?;
        self.used = self.used.wrapping_add(1);
        Ok(())
    }

    /// Takes all chains of the run and returns them, as [`Run::give_back`] has said. The driver sees all of them at once; whether it wants an
    /// interrupt is asked by [`Queue::publish`], which must follow.
    #[inline(always)] // On the path of every packet.
    pub fn complete<M: Memory>(self, memory: &M) -> Result<(), Violation>
    where
        R: Rings<M>,
    {
        let Self { queue, next, used, seen, .. } = self;
        (queue.next, queue.seen) = (next, seen);
        queue.show(memory, used)
    }
}
