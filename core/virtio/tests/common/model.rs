// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A queue without rings: lists of chains, and who has asked for what.

use std::collections::VecDeque;

use turnstile_virtio::ring::{Buffer, Options};

/// What one side wants to hear of the other.
#[derive(Clone, Copy, Debug)]
pub enum Wish {
    /// Everything; nothing. Without EVENT_IDX.
    All(bool),
    /// The entry with this number, counted from the first without wrapping. With EVENT_IDX.
    Entry(u64),
}

impl Wish {
    /// Whether a step from `old` to `new` entries fulfills it. With EVENT_IDX an old wish is seen again 2^16 entries later.
    pub fn hears(self, old: u64, new: u64) -> bool {
        match self {
            Self::All(all) => all && old != new,
            Self::Entry(entry) => (old..new).any(|at| at % (1 << 16) == entry % (1 << 16)),
        }
    }
}

/// A chain: its identifier, and its buffers.
#[derive(Clone, Debug)]
pub struct Chain {
    pub id: u16,
    pub buffers: Vec<Buffer>,
}

/// The model: chains are on their way from one list to the next.
pub struct Model {
    pub added: VecDeque<Chain>,
    pub available: VecDeque<Chain>,
    pub with_device: Vec<Chain>,
    /// How many were completed since the device has asked whether the driver wants an interrupt.
    pub completed: u64,
    pub used: VecDeque<(u16, u32)>,
    /// How many chains came so far, for each side.
    pub available_count: u64,
    pub popped_count: u64,
    pub used_count: u64,
    pub taken_count: u64,
    /// What the driver wants to hear of used chains, and the device of available ones.
    pub of_driver: Wish,
    pub of_device: Wish,
}

impl Model {
    pub fn new(options: Options) -> Self {
        let wish = if options.event_idx { Wish::Entry(0) } else { Wish::All(true) };
        let (added, available) = Default::default();
        Self {
            added,
            available,
            with_device: Vec::new(),
            completed: 0,
            used: VecDeque::new(),
            available_count: 0,
            popped_count: 0,
            used_count: 0,
            taken_count: 0,
            of_driver: wish,
            of_device: wish,
        }
    }
}
