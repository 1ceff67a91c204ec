// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A queue of requests.

use turnstile_virtio::device::{self, Token};
use turnstile_virtio::memory::Memory;
use turnstile_virtio::ring::{Layout, Options};
use turnstile_virtio::rings::Rings;

use crate::disk::DiskFor;
use crate::request::{Budget, Fault, Progress, Request};
use crate::settings::Rules;

/// Why [`Queue::serve`] has returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rest {
    /// All is done, and the driver notifies when there is more.
    Idle,
    /// The budget is spent: call again.
    Spent,
    /// The disk is busy: call again when it says so.
    Busy,
}

/// What a call has led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "the driver may wait for an interrupt"]
pub struct Served {
    /// The driver wants an interrupt of the queue.
    pub interrupt: bool,
    /// Why it has returned.
    pub rest: Rest,
}

/// A queue whose requests have up to `N` buffers, header and status included.
#[derive(Debug)]
pub struct Queue<const N: usize, R = Layout> {
    ring: device::Queue<R>,
    request: Request<N>,
    /// The request that has begun.
    token: Option<Token>,
    /// An interrupt that an earlier life may owe.
    owed: bool,
}

impl<const N: usize, R: Copy> Queue<N, R> {
    /// Takes over a queue that the driver has enabled.
    pub const fn new(rings: R, options: Options) -> Self {
        let ring = device::Queue::new(rings, options, N as u32);
        Self { ring, request: Request::new(), token: None, owed: false }
    }

    /// Takes up a queue that an earlier life of the device has left. It must be served at once.
    pub fn resume<M: Memory>(memory: &M, rings: R, options: Options) -> Result<Self, Fault>
    where
        R: Rings<M>,
    {
        let ring = device::Queue::resume(memory, rings, options, N as u32)?;
        Ok(Self { ring, owed: true, ..Self::new(rings, options) })
    }

    /// Does what the driver has asked for, for as long as the budget lasts. After a fault the device needs a reset.
    pub fn serve<M: Memory, D: DiskFor<M>>(
        &mut self,
        memory: &M,
        disk: &mut D,
        rules: &Rules,
        budget: &mut Budget,
    ) -> Result<Served, Fault>
    where
        R: Rings<M>,
    {
        let mut interrupt = core::mem::take(&mut self.owed);
        self.ring.suppress(memory)?;
        let rest = loop {
            let rest = self.work(memory, disk, rules, budget)?;
            interrupt |= self.ring.publish(memory)?;
            if rest != Rest::Idle || !self.ring.arm(memory)? {
                break rest;
            }
        };
        Ok(Served { interrupt, rest })
    }

    /// Does requests until there are none, or something is in the way.
    #[inline] // On the path of every request.
    fn work<M: Memory, D: DiskFor<M>>(
        &mut self,
        memory: &M,
        disk: &mut D,
        rules: &Rules,
        budget: &mut Budget,
    ) -> Result<Rest, Fault>
    where
        R: Rings<M>,
    {
        loop {
            let token = match self.token.take() {
                Some(token) => token,
                None if budget.is_spent() => return Ok(Rest::Spent),
                None => {
                    let Some(mut chain) = self.ring.pop(memory)? else { return Ok(Rest::Idle) };
                    self.request.begin(memory, &mut chain, disk, rules)?;
                    let buffers = Budget::BUFFER as u64 * self.request.buffers() as u64;
                    budget.spend(u64::from(Budget::REQUEST) + buffers);
                    chain.finish()
                }
            };
            match self.request.run(memory, disk, rules, budget)? {
                Progress::Done(written) => {
                    // The driver sees it at once. A request that is done is done once: an earlier one is never done again behind a later one.
                    self.ring.complete(memory, token, written)?;
                }
                progress => {
                    self.token = Some(token);
                    return Ok(if progress == Progress::Busy { Rest::Busy } else { Rest::Spent });
                }
            }
        }
    }
}
