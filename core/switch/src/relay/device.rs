// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What receives behind a port.

use turnstile_net::control::Control;
use turnstile_net::settings::Accepts;
use turnstile_virtio::device::Queue;
use turnstile_virtio::memory::Memory;
use turnstile_virtio::ring::Layout;
use turnstile_virtio::rings::Rings;
use turnstile_virtio::violation::Violation;

use crate::flow::Steering;
use crate::patience::Patience;

/// How many buffers a packet that is received has at most: 64 KiB in buffers of 1 KiB, and something more.
pub const RECEIVED_BUFFERS: usize = 80;

/// The device behind a port, as far as it receives, while its driver is ready.
#[derive(Debug)]
pub struct Device<const Q: usize, R = Layout> {
    /// Which packets its driver wants, and by how many queues.
    pub control: Control,
    /// What its driver has agreed to.
    pub accepts: Accepts,
    /// How many bytes a packet of its driver has at most, that is no segment.
    pub longest: u32,
    pub(super) receive: [Option<Queue<R>>; Q],
    pub(super) patience: [Patience; Q],
    /// By which of its pairs flows go.
    pub(super) steering: Steering,
    /// Queues that have received something and were not asked whether they want an interrupt: a bit for each pair.
    unasked: u64,
    /// Queues that want an interrupt: a bit each, by their numbers.
    pub(super) owed: u64,
}

impl<const Q: usize, R> Device<Q, R> {
    /// A device whose queues are yet to come.
    pub const fn new(control: Control, accepts: Accepts, longest: u32) -> Self {
        let receive = [const { None }; Q];
        let (patience, steering) = ([Patience::NEW; Q], Steering::NEW);
        Self { control, accepts, longest, receive, patience, steering, unasked: 0, owed: 0 }
    }

    /// The pair that packets of a flow go to: of those that receive, the first one whose queue is enabled stands in for one whose is not.
    #[inline] // On the path of every packet to one with several pairs.
    pub(super) fn pair(&self, flow: u64) -> usize {
        let pair = self.steering.pair(flow, self.control.pairs);
        if self.is_enabled(pair) { pair } else { self.first_pair() }
    }

    #[inline] // As above.
    fn is_enabled(&self, pair: usize) -> bool {
        self.receive.get(pair).is_some_and(Option::is_some)
    }

    #[cold]
    fn first_pair(&self) -> usize {
        let mut pairs = 0..usize::from(self.control.pairs).min(Q);
        pairs.find(|pair| self.is_enabled(*pair)).unwrap_or(0)
    }

    /// One of its pairs has received something.
    #[inline(always)] // A few instructions.
    pub(super) fn delivered(&mut self, pair: usize, now: u64) {
        if let Some(patience) = self.patience.get_mut(pair) {
            patience.taken(now);
        }
        self.unasked |= 1 << pair;
    }

    /// Calls a function with the number of each queue whose driver wants an interrupt.
    #[inline(always)] // On the path of every packet.
    pub(super) fn interrupt<M: Memory>(&mut self, memory: &M, mut each: impl FnMut(usize))
    where
        R: Rings<M>,
    {
        let unasked = core::mem::take(&mut self.unasked);
        if unasked & 1 != 0 {
            self.ask(memory, 0);
        }
        if unasked > 1 {
            self.ask_others(memory, unasked);
        }
        while self.owed != 0 {
            let number = self.owed.trailing_zeros() as usize;
            self.owed &= self.owed - 1;
            each(number);
        }
    }

    /// Asks the driver whether it wants an interrupt of what a pair has received.
    #[inline(always)] // On the path of every packet, with a pair that is known.
    fn ask<M: Memory>(&mut self, memory: &M, pair: usize)
    where
        R: Rings<M>,
    {
        let queue = self.receive.get_mut(pair).and_then(Option::as_mut);
        // Who cannot be asked is found to have broken a rule with the next packet.
        if queue.is_some_and(|queue| queue.publish(memory).unwrap_or(true)) {
            self.owed |= 1 << (2 * pair);
        }
    }

    /// The same of all pairs but the first one.
    #[cold]
    fn ask_others<M: Memory>(&mut self, memory: &M, unasked: u64)
    where
        R: Rings<M>,
    {
        (1..Q).filter(|pair| unasked >> pair & 1 != 0).for_each(|pair| self.ask(memory, pair));
    }

    /// Asks for a notification when its driver offers more buffers than there are now. Returns whether there are some.
    pub(super) fn arm<M: Memory>(&mut self, memory: &M) -> Result<bool, Violation>
    where
        R: Rings<M>,
    {
        let mut there = false;
        for queue in self.receive.iter_mut().flatten() {
            // Behind all that is there: too few are not what is waited for.
            let mut tokens = [const { None }; RECEIVED_BUFFERS];
            for place in &mut tokens {
                let Some(chain) = queue.pop(memory)? else { break };
                *place = Some(chain.finish());
                there = true;
            }
            there |= queue.arm(memory)?;
            tokens.into_iter().rev().flatten().for_each(|token| queue.put_back(token));
        }
        Ok(there)
    }
}
