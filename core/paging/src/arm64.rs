// SPDX-License-Identifier: Apache-2.0 OR MIT
//! VMSAv8-64 translation tables with the 4 KiB granule: stage 2, and stage 1 of the hypervisor's
//! own regime, EL2&0 with the Virtualization Host Extensions (VHE) and EL2 without.
//!
//! Descriptor formats: Arm ARM (DDI 0487) section D8.3; stage 2 concatenated root tables: D8.2; memory
//! attributes: D8.6; permissions: D8.4.

use crate::format::{Entry, Format, Level, PhysAddr};

const VALID: u64 = 1;
/// Table descriptor above the last level, page descriptor at the last level; clear: block descriptor.
const TABLE_OR_PAGE: u64 = 1 << 1;
const ACCESS_FLAG: u64 = 1 << 10;
const SHAREABLE_OUTER: u64 = 0b10 << 8;
const SHAREABLE_INNER: u64 = 0b11 << 8;
/// Output address of a page, block or table descriptor: bits [47:12].
const ADDRESS: u64 = 0x0000_ffff_ffff_f000;

const STAGE2_READ: u64 = 1 << 6;
const STAGE2_WRITE: u64 = 1 << 7;
/// XN[1:0] = 0b10: execution at neither EL1 nor EL0.
const STAGE2_EXECUTE_NEVER: u64 = 1 << 54;

const STAGE1_READ_ONLY: u64 = 1 << 7;
const STAGE1_PRIVILEGED_EXECUTE_NEVER: u64 = 1 << 53;
const STAGE1_UNPRIVILEGED_EXECUTE_NEVER: u64 = 1 << 54;
/// AP[1] where there is one privilege level.
const STAGE1_SINGLE_RES1: u64 = 1 << 6;
/// XN where there is one privilege level.
const STAGE1_SINGLE_EXECUTE_NEVER: u64 = 1 << 54;

/// `MAIR_EL2` as [`Stage1El2`] assumes it: attribute 0 Device-nGnRE, 1 Normal Non-cacheable, 2 Normal
/// Write-Back Read- and Write-Allocate.
pub const MAIR_EL2: u64 = 0x00ff_4404;

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
    const fn shareability(self) -> u64 {
        match self {
            Memory::Normal | Memory::Forced => SHAREABLE_INNER,
            // Always treated as Outer Shareable; written as such so that a dump reads true.
            Memory::NonCacheable | Memory::Device => SHAREABLE_OUTER,
        }
    }
}

/// Builds the levels for `input_bits`, the first of them at lookup level `start`, as wide as needed.
const fn levels_from(start: usize, input_bits: u32) -> [Level; 4] {
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

fn decode_vmsa<A>(level: Level, entry: u64, attributes: impl FnOnce(u64) -> A) -> Entry<A> {
    let address = PhysAddr(entry & ADDRESS);
    match (entry & VALID != 0, entry & TABLE_OR_PAGE != 0) {
        (true, true) if !level.last => Entry::Table(address),
        (true, true) => Entry::Leaf(address, attributes(entry)),
        (true, false) if level.leaf && !level.last => Entry::Leaf(address, attributes(entry)),
        _ => Entry::Invalid,
    }
}

const fn leaf_type(level: Level) -> u64 {
    if level.last { VALID | TABLE_OR_PAGE } else { VALID }
}

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

    fn table(&self, address: PhysAddr) -> u64 {
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

/// What the hypervisor may do with a page of its own. Writable and executable at once cannot be said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Permission {
    /// Read only.
    ReadOnly,
    /// Read and write.
    ReadWrite,
    /// Read and execute at EL2.
    ReadExecute,
}

/// What a mapping of the hypervisor's own address space says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Stage1Attributes {
    /// The memory type, by index into [`MAIR_EL2`].
    pub memory: Memory,
    /// The permission at EL2; EL0 has none.
    pub permission: Permission,
}

impl Stage1Attributes {
    /// Code.
    pub const CODE: Self = Self { memory: Memory::Normal, permission: Permission::ReadExecute };
    /// Constants.
    pub const CONSTANT: Self = Self { memory: Memory::Normal, permission: Permission::ReadOnly };
    /// Data, stacks, memory of guests.
    pub const DATA: Self = Self { memory: Memory::Normal, permission: Permission::ReadWrite };
    /// Device registers.
    pub const DEVICE: Self = Self { memory: Memory::Device, permission: Permission::ReadWrite };
}

/// The translation regime that the hypervisor runs in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stage1Regime {
    /// EL2 alone (`HCR_EL2.E2H` is 0): one privilege level, one execute-never bit.
    El2,
    /// EL2&0 (`HCR_EL2.E2H` is 1): permissions for EL0 too, which has none.
    El2And0,
}

impl Stage1Regime {
    const fn execute_never(self) -> u64 {
        match self {
            Self::El2 => STAGE1_SINGLE_EXECUTE_NEVER,
            Self::El2And0 => STAGE1_PRIVILEGED_EXECUTE_NEVER,
        }
    }

    /// What every entry has.
    const fn common(self) -> u64 {
        match self {
            Self::El2 => STAGE1_SINGLE_RES1,
            Self::El2And0 => STAGE1_UNPRIVILEGED_EXECUTE_NEVER,
        }
    }
}

/// Stage 1 of the hypervisor's regime, the lower address range (`TTBR0_EL2`), 32 to 48 bits.
///
/// Entries are global and not accessible to EL0.
#[derive(Clone, Copy, Debug)]
pub struct Stage1El2 {
    regime: Stage1Regime,
    levels: [Level; 4],
    start: usize,
    input_bits: u32,
}

impl Stage1El2 {
    /// Makes the format for virtual addresses of `input_bits` bits; `None` outside 32..=48.
    pub const fn new(regime: Stage1Regime, input_bits: u32) -> Option<Self> {
        match input_bits {
            32..=39 => Some(Self { regime, levels: levels_from(1, input_bits), start: 1, input_bits }),
            40..=48 => Some(Self { regime, levels: levels_from(0, input_bits), start: 0, input_bits }),
            _ => None,
        }
    }

    /// Returns `TCR_EL2.T0SZ`.
    pub const fn t0sz(&self) -> u64 {
        64 - self.input_bits as u64
    }
}

impl Format for Stage1El2 {
    type Attributes = Stage1Attributes;

    fn levels(&self) -> &[Level] {
        self.levels.get(self.start..).unwrap_or(&[])
    }

    fn output_bits(&self) -> u32 {
        48
    }

    fn leaf(&self, level: Level, address: PhysAddr, attributes: Stage1Attributes) -> u64 {
        let index = match attributes.memory {
            Memory::Device => 0 << 2,
            Memory::NonCacheable => 1 << 2,
            Memory::Normal | Memory::Forced => 2 << 2,
        };
        let permission = match attributes.permission {
            Permission::ReadOnly => STAGE1_READ_ONLY | self.regime.execute_never(),
            Permission::ReadWrite => self.regime.execute_never(),
            Permission::ReadExecute => STAGE1_READ_ONLY,
        };
        let common = leaf_type(level) | ACCESS_FLAG | self.regime.common();
        common | index | permission | attributes.memory.shareability() | (address.0 & ADDRESS)
    }

    fn table(&self, address: PhysAddr) -> u64 {
        VALID | TABLE_OR_PAGE | (address.0 & ADDRESS)
    }

    fn decode(&self, level: Level, entry: u64) -> Entry<Stage1Attributes> {
        decode_vmsa(level, entry, |entry| Stage1Attributes {
            memory: match entry >> 2 & 0b111 {
                2 => Memory::Normal,
                1 => Memory::NonCacheable,
                _ => Memory::Device,
            },
            permission: match (entry & STAGE1_READ_ONLY, entry & self.regime.execute_never()) {
                (0, _) => Permission::ReadWrite,
                (_, 0) => Permission::ReadExecute,
                _ => Permission::ReadOnly,
            },
        })
    }

    fn needs_break(&self, old: Stage1Attributes, new: Stage1Attributes) -> bool {
        old.memory != new.memory
    }

    fn table_bytes(&self, level: Level) -> u64 {
        (8 << level.bits).max(4096)
    }
}
