// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which vCPU runs on which physical CPU: for physical CPUs that several vCPUs share. One that has a single pinned
//! vCPU has no run queue and knows nothing of this.
//!
//! | module | what |
//! |---|---|
//! | [`thread`] | what is known of each vCPU: its class, its home, its virtual run time |
//! | [`queue`] | the run queue of one physical CPU, and its timer queue |
//! | [`wake`] | the lock-free list by which others hand a vCPU to its home |
//! | [`published`] | what each CPU tells the others about itself |
//! | [`balance`] | who is given to whom |
//!
//! # Classes
//! A **real-time** vCPU has a fixed priority, 1 to 99, and runs before all of a lower one and before all fair ones;
//! equals take turns by the slice. A **fair** vCPU has a weight, and gets a share of its CPU in proportion. Its
//! *virtual run time* advances by the time it runs, divided by its weight; the one that is furthest behind runs next.
//! Who comes back from sleep is at most one slice behind the others, so sleeping saves nothing up.
//!
//! # Who may touch what
//! A run queue belongs to its CPU, without a lock. Only the CPU at which a vCPU is at **home** queues, runs and parks it. Everybody
//! else hands it a vCPU through the wake list, and an interrupt. Migration is *push*: the home of a waiting vCPU gives it to another
//! CPU, so the home can first collect what the vCPU left behind on that CPU.
//!
//! Time is a count of ticks, which the caller passes. Nothing allocates after a queue was made.
#![cfg_attr(not(loom), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod balance;
mod heap;
pub mod published;
pub mod queue;
pub mod thread;
pub mod wake;

pub use published::Published;
pub use queue::RunQueue;
pub use thread::{Class, Thread};

use alloc::boxed::Box;
use alloc::vec::Vec;

/// What all CPUs see: the vCPUs, and what each CPU says of itself.
#[derive(Debug)]
pub struct Shared {
    /// The vCPUs, by their number in the system.
    pub threads: Box<[Thread]>,
    /// The physical CPUs.
    pub cpus: Box<[Cpu]>,
    /// Ticks that a vCPU runs while another one waits.
    pub slice: u64,
}

/// A physical CPU, as others see it.
#[derive(Debug)]
pub struct Cpu {
    /// vCPUs that were woken, or sent here.
    pub wakes: wake::WakeList,
    /// How far it is.
    pub published: Published,
    /// The CPUs with which it shares a vCPU that may run on both.
    neighbours: Box<[u32]>,
}

impl Cpu {
    /// Says whether no vCPU that may run here may run elsewhere: nobody else needs to know of it.
    #[inline] // Of each switch.
    pub(crate) fn is_alone(&self) -> bool {
        self.neighbours.is_empty()
    }
}

impl Shared {
    /// Makes the state of `cpus` physical CPUs that run `threads`, with slices of `slice` ticks.
    pub fn new(mut threads: Vec<Thread>, cpus: usize, slice: u64) -> Self {
        (0..).zip(&mut threads).for_each(|(number, thread)| thread.number = number);
        let neighbours = |cpu: u32| {
            let near = |other: &u32| {
                *other != cpu
                    && threads.iter().any(|thread| thread.cpus.contains(&cpu) && thread.cpus.contains(other))
            };
            (0..cpus as u32).filter(near).collect()
        };
        let cpus = (0..cpus as u32)
            .map(|cpu| Cpu {
                wakes: wake::WakeList::new(),
                published: Published::new(),
                neighbours: neighbours(cpu),
            })
            .collect();
        Self { threads: threads.into(), cpus, slice: slice.max(1) }
    }

    /// Hands a vCPU that the caller has taken out of where it was parked to its home. Returns the CPU to interrupt, if
    /// that is needed.
    #[must_use = "a CPU that is not interrupted does not look"]
    pub fn wake(&self, thread: u32) -> Option<u32> {
        let home = self.threads.get(thread as usize)?.home();
        self.send(thread, home)
    }

    /// Puts a vCPU on the wake list of `cpu`. Returns the CPU to interrupt, if that is needed.
    fn send(&self, thread: u32, cpu: u32) -> Option<u32> {
        let link = &self.threads.get(thread as usize)?.next;
        self.cpus.get(cpu as usize)?.wakes.push(thread, link).then_some(cpu)
    }
}

/// The atomics: the real ones, or the model checker's.
mod sync {
    #[cfg(not(loom))]
    pub(crate) use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
    #[cfg(loom)]
    pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
}
