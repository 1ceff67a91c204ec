// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where sources go, and where queues are.

use alloc::vec;
use alloc::vec::Vec;

use super::{Failure, Machine};

/// How many priorities a guest has: 0, the most favoured, to 6. The machine keeps the last one for escalations.
pub const PRIORITIES: u8 = 7;
/// The priority of a source that goes nowhere.
pub(super) const MASKED: u8 = 0xff;
/// The binary logarithm of the bytes of a page of an event state buffer.
pub const PAGE_SHIFT: u32 = 16;

/// Where a guest finds event state buffers.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// Returns the address of a source's page of management.
    pub management: fn(u32) -> u64,
    /// Returns the address of its page of triggers.
    pub trigger: fn(u32) -> u64,
    /// Whether a store to the page of management ends an interrupt on this machine.
    pub store_eoi: bool,
}

/// Where a source's interrupts go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// The vCPU, by its number.
    pub server: u32,
    /// Which of its queues.
    pub priority: u8,
    /// What is written to the queue: 31 bits.
    pub number: u32,
}

/// Where a queue is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queue {
    /// Its guest real address, a multiple of its size.
    pub address: u64,
    /// The binary logarithm of its bytes.
    pub shift: u8,
}

/// A source.
#[derive(Clone, Copy, Debug)]
pub(super) struct Source {
    /// Its number in the guest.
    pub(super) lisn: u32,
    /// What is written to its queue, which it keeps while it goes nowhere.
    pub(super) number: u32,
    /// Where it goes, unless [`MASKED`].
    pub(super) server: u32,
    /// See [`Source::server`].
    pub(super) priority: u8,
}

impl Source {
    fn new(lisn: u32) -> Self {
        Self { lisn, number: lisn, server: 0, priority: MASKED }
    }
}

/// A partition's interrupts, as it has configured them.
#[derive(Debug)]
pub struct Tables {
    /// In the order of their numbers.
    pub(super) sources: Vec<Source>,
    /// Those of each vCPU.
    queues: Vec<[Option<Queue>; PRIORITIES as usize]>,
    pub(super) layout: Layout,
}

impl Tables {
    /// Makes the tables of a partition with `servers` vCPUs, and the sources of these numbers: nothing goes anywhere.
    pub fn new(servers: usize, sources: impl IntoIterator<Item = u32>, layout: Layout) -> Self {
        let mut sorted: Vec<Source> = Vec::new();
        for lisn in sources {
            if let Err(place) = sorted.binary_search_by_key(&lisn, |source| source.lisn) {
                sorted.insert(place, Source::new(lisn));
            }
        }
        Self { sources: sorted, queues: vec![[None; PRIORITIES as usize]; servers], layout }
    }

    /// Returns where a source goes.
    pub fn route(&self, lisn: u32) -> Option<Route> {
        let source = self.source(lisn.into())?;
        let Source { number, server, priority, .. } = *source;
        (priority != MASKED).then_some(Route { server, priority, number })
    }

    /// Returns where a queue is.
    pub fn queue(&self, server: u32, priority: u8) -> Option<Queue> {
        *self.queues.get(server as usize)?.get(usize::from(priority))?
    }

    /// Forgets everything, for H_INT_RESET or the end of a life: no source goes anywhere, and the machine writes to no memory of
    /// the guest any more.
    ///
    /// # Errors
    ///
    /// If the machine refuses any of it. The rest is done; a queue that it has not taken away stays noted, to be tried again.
    pub fn reset(&mut self, machine: &mut impl Machine) -> Result<(), Failure> {
        let mut result = Ok(());
        for source in &mut self.sources {
            if source.priority != MASKED {
                result = result.and(machine.route(source.lisn, None));
            }
            *source = Source::new(source.lisn);
        }
        for (server, queues) in (0..).zip(&mut self.queues) {
            for (priority, queue) in (0..).zip(queues) {
                if queue.is_none() {
                    continue;
                }
                match machine.place(server, priority, None) {
                    Ok(()) => *queue = None,
                    refused => result = result.and(refused),
                }
            }
        }
        result
    }

    pub(super) fn source(&self, lisn: u64) -> Option<&Source> {
        Some(&self.sources[self.index(lisn)?])
    }

    pub(super) fn source_mut(&mut self, lisn: u64) -> Option<&mut Source> {
        let index = self.index(lisn)?;
        Some(&mut self.sources[index])
    }

    fn index(&self, lisn: u64) -> Option<usize> {
        let lisn = u32::try_from(lisn).ok()?;
        self.sources.binary_search_by_key(&lisn, |source| source.lisn).ok()
    }

    /// Returns the number of a vCPU that exists.
    pub(super) fn server(&self, server: u64) -> Option<u32> {
        (server < self.queues.len() as u64).then_some(server as u32)
    }

    pub(super) fn set_queue(&mut self, server: u32, priority: u8, queue: Option<Queue>) {
        if let Some(slot) =
            self.queues.get_mut(server as usize).and_then(|all| all.get_mut(usize::from(priority)))
        {
            *slot = queue;
        }
    }
}
