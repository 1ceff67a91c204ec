// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What guests are told by H_GET_CPU_CHARACTERISTICS, for the protection of their own kernels (PAPR; bits as Linux has them in
//! `arch/powerpc/include/asm/hvcall.h`): what the machine has and needs, whatever the hypervisor does.

use super::firmware::{Feature, Machine};

/// The answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Characteristics {
    /// What the processor has.
    pub character: u64,
    /// What an operating system is to do.
    pub behaviour: u64,
}

/// A bit by its number in the manuals: 0 is the most significant.
const fn bit(number: u32) -> u64 {
    1 << (63 - number)
}

/// Indirect branches wait for their target.
const SERIALISED: u64 = bit(1);
const FAVOUR_SECURITY: u64 = bit(0);
const FLUSH_CACHE_FOR_PROGRAMS: u64 = bit(1);
const BOUNDS_BARRIER: u64 = bit(2);
const FLUSH_COUNT_CACHE: u64 = bit(5);
const FLUSH_LINK_STACK: u64 = bit(6);
const NO_CACHE_FLUSH_OF_PROGRAMS: u64 = bit(7);
const NO_CACHE_FLUSH_OF_ACCESSES: u64 = bit(8);
const NO_STORE_DRAIN: u64 = bit(9);

/// What the processor has: the feature, and its bit.
const CHARACTER: [(Feature, u64); 7] = [
    (Feature::BarrierInstruction, bit(0)),
    (Feature::SerialisedBranches, SERIALISED),
    (Feature::CacheInstruction, bit(2)),
    (Feature::CacheRegister, bit(3)),
    (Feature::CacheOfThreads, bit(4)),
    (Feature::NoCountCache, bit(7)),
    (Feature::CountCacheInstruction, bit(9)),
];

fn all(bits: impl IntoIterator<Item = (bool, u64)>) -> u64 {
    bits.into_iter().filter(|(there, _)| *there).fold(0, |all, (_, bit)| all | bit)
}

impl Characteristics {
    /// Those of a machine.
    pub fn of(machine: &Machine) -> Self {
        if machine.is_needless() {
            let needless = NO_CACHE_FLUSH_OF_PROGRAMS | NO_CACHE_FLUSH_OF_ACCESSES | NO_STORE_DRAIN;
            return Self { character: SERIALISED, behaviour: FAVOUR_SECURITY | needless };
        }
        let said = machine.said();
        // Data that a kernel's speculation leaves in the cache of a POWER9 can be had by its programs; others do not have that.
        let elsewhere = !machine.power9;
        let flush = said.has(Feature::NeedsCountCacheFlush);
        Self {
            character: all(CHARACTER.map(|(feature, bit)| (said.has(feature), bit))),
            behaviour: all([
                (said.needs(Feature::FavourSecurity), FAVOUR_SECURITY),
                (said.needs(Feature::NeedsCacheFlushForPrograms), FLUSH_CACHE_FOR_PROGRAMS),
                (said.needs(Feature::NeedsBoundsBarrier), BOUNDS_BARRIER),
                (flush, FLUSH_COUNT_CACHE),
                (flush || said.has(Feature::NoCountCache), FLUSH_LINK_STACK),
                (elsewhere || said.has(Feature::NoCacheFlushOfPrograms), NO_CACHE_FLUSH_OF_PROGRAMS),
                (elsewhere || said.has(Feature::NoCacheFlushOfAccesses), NO_CACHE_FLUSH_OF_ACCESSES),
                (said.has(Feature::NoStoreDrain), NO_STORE_DRAIN),
            ]),
        }
    }
}
