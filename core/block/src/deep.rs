// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A queue of requests to a drive that does several at once.
//!
//! The drive may do them in any order. They are completed in the order in which they were offered: so what is available and not used is done
//! again by whoever takes up the queue, and nothing else.

use turnstile_virtio::device::{self, Token};
use turnstile_virtio::ring::{Layout, Options};
use turnstile_virtio::rings::Rings;

use crate::disk::Failure;
use crate::queue::{Rest, Served};
use crate::request::{Budget, Fault, Progress, Request};
use crate::settings::Rules;
use crate::staged::{Drive, Stage, Staged};

/// A request that has begun, or room for one.
#[derive(Debug)]
struct Slot<const N: usize> {
    request: Request<N>,
    /// `None` while no queue has it.
    token: Option<Token>,
    /// It is done, and so many bytes were written for the driver.
    done: Option<u32>,
    stage: Stage,
}

impl<const N: usize> Slot<N> {
    const NEW: Self = Self { request: Request::new(), token: None, done: None, stage: Stage::Empty };
}

/// Room for `S` requests, which have up to `N` buffers. Their numbers are the tags of commands.
// In this order: what is behind the slots is out of an instruction's reach.
#[derive(Debug)]
#[repr(C)]
pub struct Slots<const N: usize, const S: usize> {
    /// Those that a queue has, and those that no queue is to have: a bit for each. Who looks for one reads no slot.
    held: u32,
    /// Those that no queue is to have.
    closed: u32,
    /// Those for which the drive has something to do: a bit for each, whose stage says what.
    waiting: u32,
    slots: [Slot<N>; S],
}

impl<const N: usize, const S: usize> Slots<N, S> {
    /// Without requests.
    pub const NEW: Self = Self { slots: [Slot::NEW; S], held: 0, closed: 0, waiting: 0 };

    const _BITS: () = assert!(S <= u32::BITS as usize, "each slot has a bit");

    /// Has room for so many at most, whose tags are below that. Only without requests.
    pub const fn limit(&mut self, most: u16) {
        self.closed = match 1u32.checked_shl(most as u32) {
            Some(bit) => !(bit - 1),
            None => 0,
        };
        self.held = self.closed;
    }

    /// The drive has done the command with this tag. False if it was told none.
    pub fn done(&mut self, tag: u16, result: Result<(), Failure>) -> bool {
        let Some(slot) = self.slots.get_mut(usize::from(tag)) else { return false };
        if !slot.stage.is_waiting() {
            return false;
        }
        self.waiting &= !(1 << tag);
        slot.stage = if slot.token.is_some() { slot.stage.behind(result) } else { Stage::Empty };
        true
    }

    /// Says whether the drive has something to do.
    pub const fn is_waiting(&self) -> bool {
        self.waiting != 0
    }

    /// Says whether the drive does something for a queue that is gone. It may reach that driver's memory.
    pub const fn is_forgotten_at_work(&self) -> bool {
        self.waiting & !self.held != 0
    }

    /// The drive does nothing any more of what it was told.
    pub fn fail(&mut self) {
        (0..S as u16).for_each(|tag| _ = self.done(tag, Err(Failure::Io)));
    }

    /// The queue is gone. What the drive does goes on: until it has ended, no request begins. So none of an earlier life of the guest is done
    /// behind one of a later life.
    pub fn forget(&mut self) {
        self.held = self.closed;
        for slot in &mut self.slots {
            (slot.token, slot.done) = (None, None);
            if !slot.stage.is_waiting() {
                slot.stage = Stage::Empty;
            }
        }
    }

    /// Returns room for a request: none while the drive does something that nobody waits for any more.
    fn free(&mut self) -> Option<(u16, &mut Slot<N>)> {
        let () = Self::_BITS;
        let free = self.held.trailing_ones();
        let is_free = !self.is_forgotten_at_work();
        let slot = self.slots.get_mut(free as usize)?;
        is_free.then_some((free as u16, slot))
    }
}

/// Tags of requests that have begun, the first ones first.
#[derive(Debug)]
struct Order<const S: usize> {
    tags: [u16; S],
    first: usize,
    count: usize,
}

impl<const S: usize> Order<S> {
    const fn new() -> Self {
        Self { tags: [0; S], first: 0, count: 0 }
    }

    /// The tag behind so many.
    #[inline] // On the path of every request.
    fn get(&self, at: usize) -> Option<u16> {
        if at < self.count { self.tags.get((self.first + at) % S).copied() } else { None }
    }

    /// Adds the last one. There is room for all slots.
    #[inline] // As above.
    fn push(&mut self, tag: u16) {
        if let Some(place) = self.tags.get_mut((self.first + self.count) % S) {
            *place = tag;
            self.count += 1;
        }
    }

    /// Removes the first one, which there is.
    #[inline] // As above.
    const fn pop(&mut self) {
        (self.first, self.count) = ((self.first + 1) % S, self.count.saturating_sub(1));
    }
}

/// How far a queue has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// The driver has offered no more, and the drive has something to do or not.
    Taken,
    /// There is no room for more requests.
    Full,
    /// The budget is spent.
    Spent,
}

/// A queue, of whose requests up to `S` have begun.
#[derive(Debug)]
pub struct Queue<const S: usize, R = Layout> {
    ring: device::Queue<R>,
    order: Order<S>,
    /// An interrupt that an earlier life may owe.
    owed: bool,
}

impl<const S: usize, R: Copy> Queue<S, R> {
    /// Takes over a queue that the driver has enabled. Requests with more than `longest` buffers are refused.
    pub const fn new(rings: R, options: Options, longest: u32) -> Self {
        Self { ring: device::Queue::new(rings, options, longest), order: Order::new(), owed: false }
    }

    /// Takes up a queue that an earlier life of the device has left. It must be served at once.
    pub fn resume<M>(memory: &M, rings: R, options: Options, longest: u32) -> Result<Self, Fault>
    where
        M: turnstile_virtio::memory::Memory,
        R: Rings<M>,
    {
        let ring = device::Queue::resume(memory, rings, options, longest)?;
        Ok(Self { ring, order: Order::new(), owed: true })
    }

    /// Begins with what the driver has asked for, and completes what the drive has done, for as long as the budget lasts. After a fault the device
    /// needs a reset. [`Rest::Busy`]: call again when the drive has done something.
    pub fn serve<const N: usize, D: Drive>(
        &mut self,
        memory: &D::Memory,
        slots: &mut Slots<N, S>,
        drive: &mut D,
        rules: &Rules,
        budget: &mut Budget,
    ) -> Result<Served, Fault>
    where
        R: Rings<D::Memory>,
    {
        let mut interrupt = core::mem::take(&mut self.owed);
        self.ring.suppress(memory)?;
        let step = loop {
            let step = self.work(memory, slots, drive, rules, budget)?;
            interrupt |= self.ring.publish(memory)?;
            if step != Step::Taken || !self.ring.arm(memory)? {
                break step;
            }
        };
        let rest = match step {
            Step::Spent => Rest::Spent,
            Step::Taken if self.order.count == 0 => Rest::Idle,
            Step::Taken | Step::Full => Rest::Busy,
        };
        Ok(Served { interrupt, rest })
    }

    /// Takes, goes on with, and completes requests, until nothing of that is possible.
    fn work<const N: usize, D: Drive>(
        &mut self,
        memory: &D::Memory,
        slots: &mut Slots<N, S>,
        drive: &mut D,
        rules: &Rules,
        budget: &mut Budget,
    ) -> Result<Step, Fault>
    where
        R: Rings<D::Memory>,
    {
        loop {
            let step = self.take(memory, slots, drive, rules, budget)?;
            let is_spent = self.go_on(memory, slots, drive, rules, budget)?;
            let has_completed = self.complete(memory, slots)?;
            if is_spent {
                return Ok(Step::Spent);
            }
            if step != Step::Full || !has_completed {
                return Ok(step);
            }
        }
    }

    /// Begins with requests.
    fn take<const N: usize, D: Drive>(
        &mut self,
        memory: &D::Memory,
        slots: &mut Slots<N, S>,
        drive: &mut D,
        rules: &Rules,
        budget: &mut Budget,
    ) -> Result<Step, Fault>
    where
        R: Rings<D::Memory>,
    {
        loop {
            let Some((tag, slot)) = slots.free() else { return Ok(Step::Full) };
            if budget.is_spent() {
                return Ok(Step::Spent);
            }
            let Some(mut chain) = self.ring.pop(memory)? else { return Ok(Step::Taken) };
            let disk = Staged { drive, tag, stage: &mut slot.stage, end: 0 };
            slot.request.begin(memory, &mut chain, &disk, rules)?;
            budget.spend(u64::from(Budget::REQUEST) + Budget::BUFFER as u64 * slot.request.buffers() as u64);
            (slot.token, slot.done) = (Some(chain.finish()), None);
            slots.held |= 1 << tag;
            self.order.push(tag);
        }
    }

    /// Goes on with all requests for which the drive has nothing to do. Says whether the budget is spent.
    fn go_on<const N: usize, D: Drive>(
        &self,
        memory: &D::Memory,
        slots: &mut Slots<N, S>,
        drive: &mut D,
        rules: &Rules,
        budget: &mut Budget,
    ) -> Result<bool, Fault> {
        let mut at = 0;
        while let Some(tag) = self.order.get(at) {
            at += 1;
            if slots.waiting & 1 << tag != 0 {
                continue;
            }
            let Some(Slot { request, done, stage, .. }) = slots.slots.get_mut(usize::from(tag)) else {
                continue;
            };
            if done.is_some() {
                continue;
            }
            let mut disk = Staged { drive, tag, stage: &mut *stage, end: request.end() };
            match request.run(memory, &mut disk, rules, budget)? {
                Progress::Done(written) => *done = Some(written),
                // The drive takes no more: those behind it would be in vain, too, and their bytes copied for nothing.
                Progress::Busy if !stage.is_waiting() => return Ok(false),
                Progress::Busy => slots.waiting |= 1 << tag,
                Progress::Spent => return Ok(true),
            }
        }
        Ok(false)
    }

    /// Completes what is done, up to the first request that is not.
    fn complete<const N: usize, M>(&mut self, memory: &M, slots: &mut Slots<N, S>) -> Result<bool, Fault>
    where
        M: turnstile_virtio::memory::Memory,
        R: Rings<M>,
    {
        let mut any = false;
        while let Some(tag) = self.order.get(0)
            && let Some(slot) = slots.slots.get_mut(usize::from(tag))
            && let Some(written) = slot.done
        {
            if let Some(token) = slot.token.take() {
                self.ring.complete(memory, token, written)?;
            }
            (slot.done, slot.stage) = (None, Stage::Empty);
            slots.held &= !(1 << tag);
            self.order.pop();
            any = true;
        }
        Ok(any)
    }
}
