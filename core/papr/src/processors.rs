// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How the vCPUs of a partition start and stop (LoPAPR 7.3.8: `start-cpu`, `stop-self`, `query-cpu-stopped-state`).
//!
//! A vCPU's state is an atomic: if several start the same one, one wins.

use alloc::vec::Vec;

use crate::sync::{AtomicU32, AtomicU64, Ordering};

const STOPPED: u32 = 0;
/// Being started: where is not written yet.
const CLAIMED: u32 = 1;
/// To be started: where is written.
const PENDING: u32 = 2;
const ON: u32 = 3;

/// Where a vCPU starts, with translation off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Start {
    /// The guest's real address of its first instruction.
    pub entry: u64,
    /// What it finds in R3: for the first vCPU the address of the device tree.
    pub argument: u64,
    /// Whether it begins little-endian.
    pub little_endian: bool,
}

/// What a vCPU is doing, as `query-cpu-stopped-state` says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum State {
    /// It is stopped.
    Stopped = 0,
    /// It runs, or is about to.
    Running = 2,
}

/// Why a vCPU does not start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// There is no such vCPU.
    Absent,
    /// It runs already, or is about to.
    Running,
}

#[derive(Debug)]
struct Processor {
    state: AtomicU32,
    entry: AtomicU64,
    argument: AtomicU64,
    /// [`Start::little_endian`]: 0 or 1.
    little_endian: AtomicU32,
}

/// The states of a partition's vCPUs.
#[derive(Debug)]
pub struct Processors {
    list: Vec<Processor>,
}

impl Processors {
    /// Makes those of a VM with so many vCPUs. All are stopped.
    pub fn new(vcpus: usize) -> Self {
        let processor = |_| Processor {
            state: AtomicU32::new(STOPPED),
            entry: AtomicU64::new(0),
            argument: AtomicU64::new(0),
            little_endian: AtomicU32::new(0),
        };
        Self { list: (0..vcpus).map(processor).collect() }
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.list.len()
    }

    /// Stops all and gives the first one its start. Only while none of them runs.
    pub fn reset(&self, boot: Start) {
        for processor in &self.list {
            processor.state.store(STOPPED, Ordering::Relaxed);
        }
        if let Some(first) = self.list.first() {
            first.publish(boot);
        }
    }

    /// Starts a vCPU. Its owner has to be told ([`Reasons::START`](turnstile_vm::attention::Reasons::START)), and calls
    /// [`Processors::take_start`].
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn start(&self, vcpu: usize, start: Start) -> Result<(), Refused> {
        let processor = self.list.get(vcpu).ok_or(Refused::Absent)?;
        // Acquire: a vCPU that starts sees what was done before it was stopped; pairs with `stop`.
        match processor.state.compare_exchange(STOPPED, CLAIMED, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => {
                processor.publish(start);
                Ok(())
            }
            Err(_) => Err(Refused::Running),
        }
    }

    /// Takes the start of a vCPU, once; it runs from then. For its owner.
    pub fn take_start(&self, vcpu: usize) -> Option<Start> {
        let processor = self.list.get(vcpu)?;
        // Acquire: pairs with `publish`. Only the owner leaves PENDING, so a plain store follows.
        if processor.state.load(Ordering::Acquire) != PENDING {
            return None;
        }
        let start = Start {
            entry: processor.entry.load(Ordering::Relaxed),
            argument: processor.argument.load(Ordering::Relaxed),
            little_endian: processor.little_endian.load(Ordering::Relaxed) != 0,
        };
        processor.state.store(ON, Ordering::Relaxed);
        Some(start)
    }

    /// Stops a vCPU; for its owner.
    pub fn stop(&self, vcpu: usize) {
        if let Some(processor) = self.list.get(vcpu) {
            // Release: pairs with `start`.
            processor.state.store(STOPPED, Ordering::Release);
        }
    }

    /// Says what a vCPU is doing; `None` if there is none.
    pub fn state(&self, vcpu: usize) -> Option<State> {
        let processor = self.list.get(vcpu)?;
        match processor.state.load(Ordering::Relaxed) {
            STOPPED => Some(State::Stopped),
            _ => Some(State::Running),
        }
    }

    /// Says whether a vCPU runs: it was started, and not stopped.
    pub fn is_on(&self, vcpu: usize) -> bool {
        self.list.get(vcpu).is_some_and(|processor| processor.state.load(Ordering::Relaxed) == ON)
    }
}

impl Processor {
    fn publish(&self, start: Start) {
        self.entry.store(start.entry, Ordering::Relaxed);
        self.argument.store(start.argument, Ordering::Relaxed);
        self.little_endian.store(start.little_endian.into(), Ordering::Relaxed);
        // Release: pairs with `take_start`.
        self.state.store(PENDING, Ordering::Release);
    }
}
