// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Visits by CPU, reason and place, and in each group by how many instructions they took.

use rustc_hash::FxHashMap;

use super::{Details, Visit};
use crate::machine::Reason;
use crate::tally::{Step, Tally};

/// Groups that are kept apart; visits from further places are counted together, under the place 0.
const GROUPS: usize = 1 << 16;
/// Kinds of visits that a group tells apart.
const KINDS: usize = 1 << 10;
/// Blocks of traced visits that are kept.
const TRACED: usize = 1 << 22;

/// What visits of a group have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// The CPU.
    pub cpu: u32,
    /// Why the guest was left.
    pub reason: Reason,
    /// Where it was left.
    pub pc: u64,
    /// The vectors that were used.
    pub vectors: u64,
}

/// Visits that took the same number of instructions.
#[derive(Debug)]
pub struct Kind {
    /// The number of instructions.
    pub instructions: u64,
    /// How many visits there were.
    pub visits: u64,
    /// What the first of them did.
    pub tally: Tally,
    /// Which way it took, if that is traced.
    pub path: Box<[Step]>,
}

/// Visits of one CPU for one reason from one place.
#[derive(Debug)]
pub struct Group {
    /// Which.
    pub key: Key,
    /// How many visits there were.
    pub visits: u64,
    /// Instructions of the shortest.
    pub min: u64,
    /// Instructions of the longest.
    pub max: u64,
    /// Instructions of all.
    pub sum: u64,
    /// By the number of instructions.
    pub kinds: Vec<Kind>,
    /// Visits of kinds that were too many.
    pub others: u64,
    by_instructions: FxHashMap<u64, usize>,
}

impl Group {
    fn new(key: Key) -> Self {
        Group {
            key,
            visits: 0,
            min: u64::MAX,
            max: 0,
            sum: 0,
            kinds: Vec::new(),
            others: 0,
            by_instructions: FxHashMap::default(),
        }
    }

    /// The most frequent kind; the smaller of two equally frequent ones.
    pub fn modal(&self) -> Option<&Kind> {
        self.kinds.iter().min_by_key(|kind| (std::cmp::Reverse(kind.visits), kind.instructions))
    }
}

/// All groups.
#[derive(Debug, Default)]
pub struct Groups {
    all: Vec<Group>,
    by_key: FxHashMap<Key, usize>,
    traced: usize,
    /// Whether visits from different places had to be counted together.
    pub merged: bool,
    /// Whether traces had to be left out.
    pub untraced: bool,
}

impl Groups {
    /// The group of a key.
    pub fn find(&mut self, key: Key) -> usize {
        if let Some(&index) = self.by_key.get(&key) {
            return index;
        }
        if self.all.len() >= GROUPS && key.pc != 0 {
            self.merged = true;
            return self.find(Key { pc: 0, ..key });
        }
        self.all.push(Group::new(key));
        self.by_key.insert(key, self.all.len() - 1);
        self.all.len() - 1
    }

    /// Adds a visit that has ended.
    pub(super) fn add(&mut self, visit: &mut Visit, details: Details) {
        let Some(group) = self.all.get_mut(visit.group) else { return };
        let instructions = visit.instructions;
        group.visits += 1;
        group.sum += instructions;
        group.min = group.min.min(instructions);
        group.max = group.max.max(instructions);
        if let Some(kind) = group.by_instructions.get(&instructions).and_then(|&at| group.kinds.get_mut(at)) {
            kind.visits += 1;
            return;
        }
        if group.kinds.len() >= KINDS {
            group.others += 1;
            return;
        }
        let mut path: Box<[Step]> = Box::default();
        if details.trace {
            if visit.folded.is_none() && self.traced + visit.path.len() <= TRACED {
                self.traced += visit.path.len();
                path = visit.path.clone().into_boxed_slice();
            } else {
                self.untraced = true;
            }
        }
        group.by_instructions.insert(instructions, group.kinds.len());
        group.kinds.push(Kind { instructions, visits: 1, tally: visit.tally(details.footprint), path });
    }

    /// The groups that have visits, those with most first, then in the order of their keys.
    pub fn sorted(&self) -> Vec<&Group> {
        let mut sorted: Vec<&Group> = self.all.iter().filter(|group| group.visits > 0).collect();
        sorted.sort_by_key(|group| (std::cmp::Reverse(group.visits), group.key));
        sorted
    }
}
