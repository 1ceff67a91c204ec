// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the descriptors of both stages share.

use crate::format::{Entry, Level, PhysAddr};

pub(super) const VALID: u64 = 1;
/// Table descriptor above the last level, page descriptor at the last level; clear: block descriptor.
pub(super) const TABLE_OR_PAGE: u64 = 1 << 1;
pub(super) const ACCESS_FLAG: u64 = 1 << 10;
const SHAREABLE_OUTER: u64 = 0b10 << 8;
const SHAREABLE_INNER: u64 = 0b11 << 8;
/// Output address of a page, block or table descriptor: bits [47:12].
pub(super) const ADDRESS: u64 = 0x0000_ffff_ffff_f000;

/// A memory type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Memory {
    /// Normal, Inner and Outer Write-Back, Inner Shareable.
    Normal,
    /// Normal, Inner and Outer Non-cacheable.
    NonCacheable,
    /// Device-nGnRE.
    Device,
    /// Stage 2: Normal, Inner and Outer Write-Back, Inner Shareable, whatever stage 1 says (`HCR_EL2.FWB` is 1). Stage 1 of
    /// the hypervisor: as [`Memory::Normal`].
    Forced,
}

impl Memory {
    pub(super) const fn shareability(self) -> u64 {
        match self {
            Memory::Normal | Memory::Forced => SHAREABLE_INNER,
            // Always treated as Outer Shareable; written as such so that a dump reads true.
            Memory::NonCacheable | Memory::Device => SHAREABLE_OUTER,
        }
    }
}

/// Builds the levels for `input_bits`, the first of them at lookup level `start`, as wide as needed.
pub(super) const fn levels_from(start: usize, input_bits: u32) -> [Level; 4] {
    let mut levels = [Level { shift: 0, bits: 0, leaf: false, last: false }; 4];
    let mut lookup = 0;
    while lookup < 4 {
        let shift = 39 - 9 * lookup as u8;
        let bits = if lookup == start { input_bits as u8 - shift } else { 9 };
        levels[lookup] = Level { shift, bits, leaf: lookup > 0, last: lookup == 3 };
        lookup += 1;
    }
    levels
}

pub(super) fn decode_vmsa<A>(level: Level, entry: u64, attributes: impl FnOnce(u64) -> A) -> Entry<A> {
    let address = PhysAddr(entry & ADDRESS);
    match (entry & VALID != 0, entry & TABLE_OR_PAGE != 0) {
        (true, true) if !level.last => Entry::Table(address),
        (true, true) => Entry::Leaf(address, attributes(entry)),
        (true, false) if level.leaf && !level.last => Entry::Leaf(address, attributes(entry)),
        _ => Entry::Invalid,
    }
}

pub(super) const fn leaf_type(level: Level) -> u64 {
    if level.last { VALID | TABLE_OR_PAGE } else { VALID }
}
