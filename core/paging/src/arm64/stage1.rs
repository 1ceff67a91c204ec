// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Stage 1 of the hypervisor's own regime.

use super::descriptor::{
    ACCESS_FLAG, ADDRESS, Memory, TABLE_OR_PAGE, VALID, decode_vmsa, leaf_type, levels_from,
};
use crate::format::{Entry, Format, Level, PhysAddr};

const STAGE1_READ_ONLY: u64 = 1 << 7;
const STAGE1_PRIVILEGED_EXECUTE_NEVER: u64 = 1 << 53;
const STAGE1_UNPRIVILEGED_EXECUTE_NEVER: u64 = 1 << 54;
/// AP[1] where there is one privilege level.
const STAGE1_SINGLE_RES1: u64 = 1 << 6;
/// AP[1] where there are two: EL0 may what EL2 may.
const STAGE1_UNPRIVILEGED: u64 = 1 << 6;
/// nG: the entry is of one ASID.
const STAGE1_NOT_GLOBAL: u64 = 1 << 11;
/// XN where there is one privilege level.
const STAGE1_SINGLE_EXECUTE_NEVER: u64 = 1 << 54;

/// `MAIR_EL2` as [`Stage1El2`] assumes it: attribute 0 Device-nGnRE, 1 Normal Non-cacheable, 2 Normal
/// Write-Back Read- and Write-Allocate.
pub const MAIR_EL2: u64 = 0x00ff_4404;

/// What the hypervisor may do with a page of its own, or a program at EL0 with one of its. Writable and executable at once cannot be said.
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

/// What the leaves of both formats have in common.
fn leaf(level: Level, address: PhysAddr, memory: Memory) -> u64 {
    let index = match memory {
        Memory::Device => 0 << 2,
        Memory::NonCacheable => 1 << 2,
        Memory::Normal | Memory::Forced => 2 << 2,
    };
    leaf_type(level) | ACCESS_FLAG | index | memory.shareability() | (address.0 & ADDRESS)
}

fn memory(entry: u64) -> Memory {
    match entry >> 2 & 0b111 {
        2 => Memory::Normal,
        1 => Memory::NonCacheable,
        _ => Memory::Device,
    }
}

fn permission(entry: u64, execute_never: u64) -> Permission {
    match (entry & STAGE1_READ_ONLY, entry & execute_never) {
        (0, _) => Permission::ReadWrite,
        (_, 0) => Permission::ReadExecute,
        _ => Permission::ReadOnly,
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
        let permission = match attributes.permission {
            Permission::ReadOnly => STAGE1_READ_ONLY | self.regime.execute_never(),
            Permission::ReadWrite => self.regime.execute_never(),
            Permission::ReadExecute => STAGE1_READ_ONLY,
        };
        leaf(level, address, attributes.memory) | self.regime.common() | permission
    }

    fn table(&self, _: Level, address: PhysAddr) -> u64 {
        VALID | TABLE_OR_PAGE | (address.0 & ADDRESS)
    }

    fn decode(&self, level: Level, entry: u64) -> Entry<Stage1Attributes> {
        decode_vmsa(level, entry, |entry| Stage1Attributes {
            memory: memory(entry),
            permission: permission(entry, self.regime.execute_never()),
        })
    }

    fn needs_break(&self, old: Stage1Attributes, new: Stage1Attributes) -> bool {
        old.memory != new.memory
    }

    fn table_bytes(&self, level: Level) -> u64 {
        (8 << level.bits).max(4096)
    }
}

/// Stage 1 of programs at EL0 in the EL2&0 regime, the upper address range (`TTBR1_EL2`), of [`Stage1El0::BITS`] bits. Addresses
/// are given without the ones above those.
///
/// Entries are of one ASID. EL2 may read and write what EL0 may, and executes nothing of it.
#[derive(Clone, Copy, Debug)]
pub struct Stage1El0 {
    levels: [Level; 4],
}

impl Stage1El0 {
    /// The size of the address range.
    pub const BITS: u32 = 39;
    /// Where the range begins.
    pub const BASE: u64 = !0 << Self::BITS;

    /// Makes the format.
    pub const fn new() -> Self {
        Self { levels: levels_from(1, Self::BITS) }
    }
}

impl Default for Stage1El0 {
    fn default() -> Self {
        Self::new()
    }
}

impl Format for Stage1El0 {
    type Attributes = Stage1Attributes;

    fn levels(&self) -> &[Level] {
        self.levels.get(1..).unwrap_or(&[])
    }

    fn output_bits(&self) -> u32 {
        48
    }

    fn leaf(&self, level: Level, address: PhysAddr, attributes: Stage1Attributes) -> u64 {
        let permission = match attributes.permission {
            Permission::ReadOnly => STAGE1_READ_ONLY | STAGE1_UNPRIVILEGED_EXECUTE_NEVER,
            Permission::ReadWrite => STAGE1_UNPRIVILEGED_EXECUTE_NEVER,
            Permission::ReadExecute => STAGE1_READ_ONLY,
        };
        let common = STAGE1_UNPRIVILEGED | STAGE1_NOT_GLOBAL | STAGE1_PRIVILEGED_EXECUTE_NEVER;
        leaf(level, address, attributes.memory) | common | permission
    }

    fn table(&self, _: Level, address: PhysAddr) -> u64 {
        VALID | TABLE_OR_PAGE | (address.0 & ADDRESS)
    }

    fn decode(&self, level: Level, entry: u64) -> Entry<Stage1Attributes> {
        decode_vmsa(level, entry, |entry| Stage1Attributes {
            memory: memory(entry),
            permission: permission(entry, STAGE1_UNPRIVILEGED_EXECUTE_NEVER),
        })
    }

    fn needs_break(&self, old: Stage1Attributes, new: Stage1Attributes) -> bool {
        old.memory != new.memory
    }

    fn table_bytes(&self, level: Level) -> u64 {
        (8 << level.bits).max(4096)
    }
}
