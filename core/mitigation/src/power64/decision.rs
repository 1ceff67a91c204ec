// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The decision for a machine: its CPUs have the same vectors, and the firmware speaks of all of them at once.

use core::fmt;

use super::choice::Choice;
use super::firmware::{Feature, Machine};
use crate::state::{State, name_open};

/// What is forgotten of a guest's branches on each exit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Branches {
    /// Nothing.
    #[default]
    Nothing,
    /// The link stack.
    LinkStack,
    /// The link stack, and the count cache, by an instruction.
    Assisted,
    /// Both, the count cache by a run of branches that fills it.
    Software,
}

/// How the data cache is flushed on each entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cache {
    /// Not at all.
    #[default]
    Nothing,
    /// By `ori 30,30,0`.
    Instruction,
    /// By a write of TRIG2.
    Register,
    /// By loads of other data.
    Loads,
}

/// What is done on a machine, and how it stands then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// What each exit forgets.
    pub branches: Branches,
    /// What each entry flushes.
    pub cache: Cache,
    /// Whether there is a barrier between the stores of one side and the loads of the other, on exits and entries.
    pub barriers: bool,
    /// Whether there is one behind the check of a call's number.
    pub bounds: bool,
    /// How the machine stands to the weaknesses: targets, returns, stores, what is in the data cache, bounds.
    pub states: [State; 5],
}

/// The names of the weaknesses, in the order of [`Decision::states`].
const WEAKNESSES: [&str; 5] = ["branch targets", "returns", "stores", "data cache", "bounds checks"];

/// Decides what is done on a machine.
pub fn decide(machine: &Machine, choice: Choice) -> Decision {
    let said = machine.said();
    let affected = affected(machine);
    let [_, returns, stores, cached, bounds] = affected;
    // Firmware that puts speed first has been told so by who owns the machine.
    let careful = choice == Choice::Auto && said.needs(Feature::FavourSecurity);
    let (branches, cache, all) = match choice {
        Choice::Auto => {
            (branches(machine), if careful && cached { flush(machine) } else { Cache::Nothing }, false)
        }
        Choice::Off => (Branches::Nothing, Cache::Nothing, false),
        Choice::Assisted => (Branches::Assisted, Cache::Instruction, true),
        Choice::Software => (Branches::Software, Cache::Loads, true),
    };
    let barriers = all || careful && stores;
    let barrier = all || careful && bounds;
    let remedied = [
        said.has(Feature::NeedsCountCacheFlush)
            && match branches {
                Branches::Assisted => said.has(Feature::CountCacheInstruction),
                Branches::Software => true,
                _ => false,
            },
        returns && branches != Branches::Nothing,
        barriers,
        match cache {
            Cache::Nothing => false,
            Cache::Instruction => said.has(Feature::CacheInstruction),
            Cache::Register => said.has(Feature::CacheRegister),
            Cache::Loads => true,
        },
        barrier && said.has(Feature::BarrierInstruction),
    ];
    let states = core::array::from_fn(|n| State::of(affected[n], remedied[n]));
    Decision { branches, cache, barriers, bounds: barrier, states }
}

/// Which weaknesses a machine has, or may have.
fn affected(machine: &Machine) -> [bool; 5] {
    if machine.is_needless() {
        return [false; 5];
    }
    let said = machine.said();
    let flush = said.has(Feature::NeedsCountCacheFlush);
    let safe = said.has(Feature::SerialisedBranches) || said.has(Feature::NoCountCache);
    [
        flush || !safe,
        // Nothing says so of the link stack: it is used where the count cache is not, or not safely (Linux,
        // `arch/powerpc/kernel/security.c`).
        flush || said.has(Feature::NoCountCache) || !safe,
        !said.has(Feature::NoStoreDrain),
        said.needs(Feature::NeedsCacheFlushForGuests),
        said.needs(Feature::NeedsBoundsBarrier),
    ]
}

/// The least that remedies targets and returns. Where the firmware says neither that nor how, everything is tried, and not
/// relied on.
fn branches(machine: &Machine) -> Branches {
    let said = machine.said();
    match affected(machine) {
        [false, false, ..] => Branches::Nothing,
        [false, true, ..] => Branches::LinkStack,
        _ if said.has(Feature::CountCacheInstruction) => Branches::Assisted,
        _ => Branches::Software,
    }
}

fn flush(machine: &Machine) -> Cache {
    let said = machine.said();
    match () {
        () if said.has(Feature::CacheInstruction) => Cache::Instruction,
        () if said.has(Feature::CacheRegister) => Cache::Register,
        () => Cache::Loads,
    }
}

impl Decision {
    /// Whether nothing is done.
    pub fn is_nothing(&self) -> bool {
        (self.branches, self.cache) == (Branches::Nothing, Cache::Nothing) && !self.barriers && !self.bounds
    }

    /// Whether there is something to say of it: something is done, or is not and should be.
    pub fn is_remarkable(&self) -> bool {
        !self.is_nothing() || self.states.contains(&State::Vulnerable)
    }
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let branches = match self.branches {
            Branches::Nothing => "nothing",
            Branches::LinkStack => "the link stack",
            Branches::Assisted => "link stack and count cache (bcctr 2,0,0)",
            Branches::Software => "link stack and count cache (branches)",
        };
        let cache = match self.cache {
            Cache::Nothing => "nothing",
            Cache::Instruction => "the data cache (ori 30,30,0)",
            Cache::Register => "the data cache (TRIG2)",
            Cache::Loads => "the data cache (loads)",
        };
        write!(f, "each exit flushes {branches}, each entry {cache}")?;
        match (self.barriers, self.bounds) {
            (false, false) => {}
            (true, false) => write!(f, ", with barriers on both")?,
            (false, true) => write!(f, ", with a barrier behind bounds checks")?,
            (true, true) => write!(f, ", with barriers on both and behind bounds checks")?,
        }
        let mut weaknesses = [(State::Unaffected, ""); WEAKNESSES.len()];
        for (slot, weakness) in weaknesses.iter_mut().zip(self.states.into_iter().zip(WEAKNESSES)) {
            *slot = weakness;
        }
        name_open(f, &weaknesses)
    }
}
