// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The power state of a vCPU (Arm DEN0022, section 6.6).
//!
//! It is an atomic, so that CPU_ON races of several vCPUs end as the specification says: one wins, the others get
//! ON_PENDING or ALREADY_ON.

use crate::sync::{AtomicU32, AtomicU64, Ordering};

const OFF: u32 = 0;
/// Being turned on: where it starts is not written yet.
const CLAIMED: u32 = 1;
/// To be turned on: where it starts is written.
const PENDING: u32 = 2;
const ON: u32 = 3;

/// What a guest sees of a power state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// OFF.
    Off,
    /// ON_PENDING.
    Pending,
    /// ON.
    On,
}

/// Where a vCPU starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Start {
    /// The guest physical address of its first instruction.
    pub entry: u64,
    /// What it finds in X0.
    pub context: u64,
}

/// The power state of one vCPU.
#[derive(Debug)]
pub struct Power {
    mpidr: u64,
    state: AtomicU32,
    entry: AtomicU64,
    context: AtomicU64,
}

impl Power {
    /// Makes the state of a vCPU that is off and has these affinity fields.
    pub fn new(mpidr: u64) -> Self {
        let (entry, context) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { mpidr, state: AtomicU32::new(OFF), entry, context }
    }

    /// Returns the affinity fields.
    pub fn mpidr(&self) -> u64 {
        self.mpidr
    }

    /// Returns the state.
    pub fn state(&self) -> State {
        shown(self.state.load(Ordering::Relaxed))
    }

    /// Turns the vCPU off while nobody runs.
    pub fn reset(&self) {
        self.state.store(OFF, Ordering::Relaxed);
    }

    /// Turns the vCPU off, for its owner.
    pub fn turn_off(&self) {
        // Release: pairs with `turn_on`.
        self.state.store(OFF, Ordering::Release);
    }

    /// Turns the vCPU on if it is off. Returns the state that it was in: of several callers, one finds it off.
    pub fn turn_on(&self, start: Start) -> State {
        // Acquire: a vCPU turned on sees what was done before it was turned off; pairs with `turn_off`.
        match self.state.compare_exchange(OFF, CLAIMED, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => {
                self.publish(start);
                State::Off
            }
            Err(seen) => shown(seen),
        }
    }

    /// Says where the vCPU starts.
    pub fn publish(&self, start: Start) {
        self.entry.store(start.entry, Ordering::Relaxed);
        self.context.store(start.context, Ordering::Relaxed);
        // Release: pairs with `take_start`.
        self.state.store(PENDING, Ordering::Release);
    }

    /// Takes the start, once; the vCPU is on from then. For its owner.
    pub fn take_start(&self) -> Option<Start> {
        // Acquire: pairs with `publish`. Only the owner leaves PENDING, so a plain store follows.
        if self.state.load(Ordering::Acquire) != PENDING {
            return None;
        }
        let start = Start {
            entry: self.entry.load(Ordering::Relaxed),
            context: self.context.load(Ordering::Relaxed),
        };
        self.state.store(ON, Ordering::Relaxed);
        Some(start)
    }
}

fn shown(state: u32) -> State {
    match state {
        OFF => State::Off,
        ON => State::On,
        _ => State::Pending,
    }
}
