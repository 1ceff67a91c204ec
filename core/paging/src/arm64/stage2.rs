// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Stage 2: the memory of guests.

use super::descriptor::{
    ACCESS_FLAG, ADDRESS, Memory, TABLE_OR_PAGE, VALID, decode_vmsa, leaf_type, levels_from,
};
use crate::format::{Entry, Format, Level, PhysAddr};

const STAGE2_READ: u64 = 1 << 6;
const STAGE2_WRITE: u64 = 1 << 7;
/// XN[1:0] = 0b10: execution at neither EL1 nor EL0.
const STAGE2_EXECUTE_NEVER: u64 = 1 << 54;

/// What a stage 2 mapping allows, on top of what the guest's own stage 1 says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Stage2Attributes {
    /// The memory type; the guest can only make it stricter, or with `HCR_EL2.FWB` as [`Memory::Forced`] says.
    pub memory: Memory,
    /// Allows reads.
    pub read: bool,
    /// Allows writes.
    pub write: bool,
    /// Allows execution at EL1 and EL0.
    pub execute: bool,
}

impl Stage2Attributes {
    /// Guest memory: Normal, everything allowed.
    pub const RAM: Self = Self { memory: Memory::Normal, read: true, write: true, execute: true };
    /// Guest memory that cannot be written.
    pub const ROM: Self = Self { write: false, ..Self::RAM };
    /// A device given to the guest.
    pub const DEVICE: Self = Self { memory: Memory::Device, read: true, write: true, execute: false };
}

/// Stage 2 of the EL1&0 regime, input (IPA) sizes of 32 to 48 bits.
///
/// Up to 43 bits the walk starts at level 1, with up to 16 concatenated root tables (D8.2); above, at level 0.
#[derive(Clone, Copy, Debug)]
pub struct Stage2 {
    levels: [Level; 4],
    start: usize,
    input_bits: u32,
}

impl Stage2 {
    /// Makes the format for intermediate physical addresses of `input_bits` bits; `None` outside 32..=48.
    pub const fn new(input_bits: u32) -> Option<Self> {
        match input_bits {
            // A start at level 2 would be possible up to 34 bits, but without 1 GiB blocks.
            32..=43 => Some(Self { levels: levels_from(1, input_bits), start: 1, input_bits }),
            44..=48 => Some(Self { levels: levels_from(0, input_bits), start: 0, input_bits }),
            _ => None,
        }
    }

    /// Returns `VTCR_EL2.T0SZ`.
    pub const fn t0sz(&self) -> u64 {
        64 - self.input_bits as u64
    }

    /// Returns `VTCR_EL2.SL0` (4 KiB granule: 1 starts at level 1, 2 at level 0).
    pub const fn sl0(&self) -> u64 {
        2 - self.start as u64
    }
}

impl Format for Stage2 {
    type Attributes = Stage2Attributes;

    fn levels(&self) -> &[Level] {
        self.levels.get(self.start..).unwrap_or(&[])
    }

    fn output_bits(&self) -> u32 {
        48
    }

    fn leaf(&self, level: Level, address: PhysAddr, attributes: Stage2Attributes) -> u64 {
        // MemAttr[3:0] in bits [5:2] (D8.6.5, D8.6.6). Device and Non-cacheable are encoded alike with FWB and without.
        let memory = match attributes.memory {
            Memory::Normal => 0b1111 << 2,
            Memory::Forced => 0b0110 << 2,
            Memory::NonCacheable => 0b0101 << 2,
            Memory::Device => 0b0001 << 2,
        };
        let mut entry = leaf_type(level) | memory | attributes.memory.shareability() | ACCESS_FLAG;
        if attributes.read {
            entry |= STAGE2_READ;
        }
        if attributes.write {
            entry |= STAGE2_WRITE;
        }
        if !attributes.execute {
            entry |= STAGE2_EXECUTE_NEVER;
        }
        entry | (address.0 & ADDRESS)
    }

    fn table(&self, _: Level, address: PhysAddr) -> u64 {
        VALID | TABLE_OR_PAGE | (address.0 & ADDRESS)
    }

    fn decode(&self, level: Level, entry: u64) -> Entry<Stage2Attributes> {
        decode_vmsa(level, entry, |entry| Stage2Attributes {
            memory: match entry >> 2 & 0b1111 {
                0b1111 => Memory::Normal,
                0b0110 => Memory::Forced,
                0b0101 => Memory::NonCacheable,
                _ => Memory::Device,
            },
            read: entry & STAGE2_READ != 0,
            write: entry & STAGE2_WRITE != 0,
            execute: entry & STAGE2_EXECUTE_NEVER == 0,
        })
    }

    fn needs_break(&self, old: Stage2Attributes, new: Stage2Attributes) -> bool {
        // Break-before-make: a change of the memory type needs it, a change of permissions does not.
        old.memory != new.memory
    }

    fn table_bytes(&self, level: Level) -> u64 {
        (8 << level.bits).max(4096)
    }
}
