// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Partition-scoped radix trees of POWER9 and POWER10: from a guest's real addresses to the machine's.
//!
//! Entry formats: Power ISA 3.0B Book III, 5.7.10.1 (page directory entries) and 5.7.10.2 (page table entries). Bits are
//! numbered from the right here, the manual does so from the left. The only shape that these CPUs walk has 52 bits of input
//! in four levels of 13, 9, 9 and 9 bits (POWER9 User Manual, 4.10.4.1); its pages have 4 KiB, 2 MiB and 1 GiB.
//!
//! Tables are big-endian in memory, whatever the CPU's byte order is; [`crate::Tables`] converts.

use crate::format::{Entry, Format, Level, PhysAddr};

/// The entry is valid.
const VALID: u64 = 1 << 63;
/// It maps a page, instead of pointing to a table.
const LEAF: u64 = 1 << 62;
/// Where a page is.
const PAGE_ADDRESS: u64 = 0x01ff_ffff_ffff_f000;
/// Where a table is.
const TABLE_ADDRESS: u64 = 0x0fff_ffff_ffff_ff00;
/// Referenced and changed from the start, so that no access has to set them, or faults because it cannot.
const REFERENCED: u64 = 1 << 8;
/// See [`REFERENCED`].
const CHANGED: u64 = 1 << 7;
/// Non-idempotent I/O: caching inhibited, guarded.
const DEVICE: u64 = 0b10 << 4;
const READ: u64 = 1 << 2;
const WRITE: u64 = 1 << 1;
const EXECUTE: u64 = 1;

/// Index bits of the tables below the root.
const TABLE_BITS: u8 = 9;
/// Index bits of the root.
const ROOT_BITS: u8 = 13;
/// Bits of the addresses that are translated.
const INPUT_BITS: u64 = 52;

const LEVELS: [Level; 4] = [
    Level { shift: 39, bits: ROOT_BITS, leaf: false, last: false },
    Level { shift: 30, bits: TABLE_BITS, leaf: true, last: false },
    Level { shift: 21, bits: TABLE_BITS, leaf: true, last: false },
    Level { shift: 12, bits: TABLE_BITS, leaf: true, last: true },
];

/// What a partition-scoped page allows a guest, on top of what its own tables say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PartitionAttributes {
    /// Allows writes.
    pub write: bool,
    /// Allows execution.
    pub execute: bool,
    /// Device registers: every access is made once, and as it is written.
    pub device: bool,
}

impl PartitionAttributes {
    /// Guest memory: everything allowed.
    pub const RAM: Self = Self { write: true, execute: true, device: false };
    /// Device registers that the guest may have.
    pub const DEVICE: Self = Self { write: true, execute: false, device: true };
}

/// Partition-scoped radix trees.
#[derive(Clone, Copy, Debug, Default)]
pub struct Partition;

impl Partition {
    /// The first doubleword of the partition table's entry for a tree (Book III, 5.7.6.1): host radix, 52 bits, where the
    /// root is and its size.
    pub const fn table_entry(root: PhysAddr) -> u64 {
        const HOST_RADIX: u64 = 1 << 63;
        const TREE_SIZE: u64 = INPUT_BITS - 31;
        let size = TREE_SIZE >> 3 << 61 | (TREE_SIZE & 7) << 5;
        HOST_RADIX | size | root.0 & TABLE_ADDRESS | ROOT_BITS as u64
    }
}

impl Format for Partition {
    type Attributes = PartitionAttributes;

    fn levels(&self) -> &[Level] {
        &LEVELS
    }

    fn output_bits(&self) -> u32 {
        // The least that a CPU of this architecture has, and more than any machine's memory or devices need (RA of 56 bits).
        56
    }

    fn leaf(&self, _: Level, address: PhysAddr, attributes: PartitionAttributes) -> u64 {
        let mut entry = VALID | LEAF | REFERENCED | CHANGED | READ | address.0 & PAGE_ADDRESS;
        if attributes.write {
            entry |= WRITE;
        }
        if attributes.execute {
            entry |= EXECUTE;
        }
        if attributes.device {
            entry |= DEVICE;
        }
        entry
    }

    fn table(&self, _: Level, address: PhysAddr) -> u64 {
        // Every table that is pointed to has as many index bits.
        VALID | address.0 & TABLE_ADDRESS | u64::from(TABLE_BITS)
    }

    fn decode(&self, level: Level, entry: u64) -> Entry<PartitionAttributes> {
        match (entry & VALID != 0, entry & LEAF != 0) {
            (true, true) if level.leaf => {
                let attributes = PartitionAttributes {
                    write: entry & WRITE != 0,
                    execute: entry & EXECUTE != 0,
                    device: entry & DEVICE != 0,
                };
                Entry::Leaf(PhysAddr(entry & PAGE_ADDRESS & !(level.span() - 1)), attributes)
            }
            (true, false) if !level.last => Entry::Table(PhysAddr(entry & TABLE_ADDRESS)),
            _ => Entry::Invalid,
        }
    }

    fn needs_break(&self, old: PartitionAttributes, new: PartitionAttributes) -> bool {
        // An access must not meet two storage control attributes of one page (5.10.1.2).
        old.device != new.device
    }
}
