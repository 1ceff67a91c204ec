// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Long-mode translation tables of AMD64 with four levels: the hypervisor's own, and nested page tables, which have the
//! same form.
//!
//! Entry formats: APM vol. 2, 5.3; no-execute: 5.6.1; nested paging: 15.25. Memory types are those of the page attribute
//! table as the CPU has it after reset (7.8.2): its first entry is write-back, its fourth uncacheable.

use crate::arm64::Permission;
use crate::format::{Entry, Format, Level, PhysAddr};

const PRESENT: u64 = 1;
const WRITABLE: u64 = 1 << 1;
const USER: u64 = 1 << 2;
/// PWT and PCD: the fourth entry of the page attribute table.
const UNCACHEABLE: u64 = 0b11 << 3;
const ACCESSED: u64 = 1 << 5;
const DIRTY: u64 = 1 << 6;
/// The entry maps a large page, above the last level.
const LARGE: u64 = 1 << 7;
const NO_EXECUTE: u64 = 1 << 63;
/// Bits [51:12].
const ADDRESS: u64 = 0x000f_ffff_ffff_f000;

/// Bits of the addresses that are translated.
const INPUT_BITS: u32 = 48;

/// The four levels; whether a page of 1 GiB can be mapped is the CPU's affair (CPUID Fn8000_0001_EDX[Page1GB]).
const fn levels(gigabyte_pages: bool) -> [Level; 4] {
    [
        Level { shift: 39, bits: 9, leaf: false, last: false },
        Level { shift: 30, bits: 9, leaf: gigabyte_pages, last: false },
        Level { shift: 21, bits: 9, leaf: true, last: false },
        Level { shift: 12, bits: 9, leaf: true, last: true },
    ]
}

/// What is common to all leaves: accessed and dirty from the start, so that no walk has to write them.
const fn leaf(level: Level, address: PhysAddr) -> u64 {
    let size = if level.last { 0 } else { LARGE };
    PRESENT | ACCESSED | DIRTY | size | (address.0 & ADDRESS)
}

/// A pointer to a table allows everything: the leaves decide.
const fn table(address: PhysAddr) -> u64 {
    PRESENT | WRITABLE | USER | ACCESSED | (address.0 & ADDRESS)
}

fn decode<A>(level: Level, entry: u64, attributes: impl FnOnce(u64) -> A) -> Entry<A> {
    // Below a large page's bit 12 is the page attribute table's; it is never set here.
    let address = PhysAddr(entry & ADDRESS & !(level.span() - 1));
    match (entry & PRESENT != 0, entry & LARGE != 0) {
        (true, _) if level.last => Entry::Leaf(address, attributes(entry)),
        (true, true) if level.leaf => Entry::Leaf(address, attributes(entry)),
        (true, false) => Entry::Table(PhysAddr(entry & ADDRESS)),
        _ => Entry::Invalid,
    }
}

/// What a nested page table allows a guest, on top of what its own tables say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NestedAttributes {
    /// Allows writes.
    pub write: bool,
    /// Allows execution.
    pub execute: bool,
    /// Device registers: uncacheable, whatever the guest's own tables say (15.25.8).
    pub device: bool,
}

impl NestedAttributes {
    /// Guest memory: everything allowed.
    pub const RAM: Self = Self { write: true, execute: true, device: false };
    /// Guest memory that cannot be written.
    pub const ROM: Self = Self { write: false, ..Self::RAM };
    /// Data: nobody executes it.
    pub const DATA: Self = Self { execute: false, ..Self::RAM };
    /// Something to read, and nothing else.
    pub const CONSTANT: Self = Self { write: false, ..Self::DATA };
    /// Device registers.
    pub const DEVICE: Self = Self { device: true, ..Self::DATA };
}

/// Nested page tables (APM vol. 2, 15.25).
#[derive(Clone, Copy, Debug)]
pub struct Nested {
    levels: [Level; 4],
    output_bits: u32,
}

impl Nested {
    /// Makes the format for a CPU with physical addresses of `output_bits` bits (CPUID Fn8000_0008_EAX).
    pub const fn new(gigabyte_pages: bool, output_bits: u32) -> Self {
        Self { levels: levels(gigabyte_pages), output_bits: if output_bits < 52 { output_bits } else { 52 } }
    }
}

impl Format for Nested {
    type Attributes = NestedAttributes;

    fn levels(&self) -> &[Level] {
        &self.levels
    }

    fn output_bits(&self) -> u32 {
        self.output_bits
    }

    fn leaf(&self, level: Level, address: PhysAddr, attributes: NestedAttributes) -> u64 {
        // All accesses of a guest are user accesses to its nested tables (15.25.5).
        let mut entry = leaf(level, address) | USER;
        if attributes.write {
            entry |= WRITABLE;
        }
        if !attributes.execute {
            entry |= NO_EXECUTE;
        }
        if attributes.device {
            entry |= UNCACHEABLE;
        }
        entry
    }

    fn table(&self, _: Level, address: PhysAddr) -> u64 {
        table(address)
    }

    fn decode(&self, level: Level, entry: u64) -> Entry<NestedAttributes> {
        decode(level, entry, |entry| NestedAttributes {
            write: entry & WRITABLE != 0,
            execute: entry & NO_EXECUTE == 0,
            device: entry & UNCACHEABLE != 0,
        })
    }

    fn needs_break(&self, old: NestedAttributes, new: NestedAttributes) -> bool {
        // Two memory types of one address at the same time are undefined (7.8.7).
        old.device != new.device
    }
}

/// What a mapping of the hypervisor's own address space says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HostAttributes {
    /// What the hypervisor may do.
    pub permission: Permission,
    /// Device registers: uncacheable.
    pub device: bool,
    /// Memory of guests: with SMAP the hypervisor reaches it only between STAC and CLAC, and with SMEP it never executes
    /// it.
    pub user: bool,
}

impl HostAttributes {
    const fn own(permission: Permission) -> Self {
        Self { permission, device: false, user: false }
    }

    /// Code.
    pub const CODE: Self = Self::own(Permission::ReadExecute);
    /// Constants.
    pub const CONSTANT: Self = Self::own(Permission::ReadOnly);
    /// Data, stacks.
    pub const DATA: Self = Self::own(Permission::ReadWrite);
    /// Device registers.
    pub const DEVICE: Self = Self { device: true, ..Self::DATA };
    /// Memory that may be a guest's.
    pub const GUEST: Self = Self { user: true, ..Self::DATA };
}

/// The hypervisor's own tables, the lower half of the addresses.
#[derive(Clone, Copy, Debug)]
pub struct HostTables {
    levels: [Level; 4],
    output_bits: u32,
}

impl HostTables {
    /// Makes the format; the arguments are those of [`Nested::new`].
    pub const fn new(gigabyte_pages: bool, output_bits: u32) -> Self {
        let nested = Nested::new(gigabyte_pages, output_bits);
        // Bit 47 is that of the upper half, which is not used.
        let mut levels = nested.levels;
        levels[0].bits = (INPUT_BITS - 1 - 39) as u8;
        Self { levels, output_bits: nested.output_bits }
    }
}

impl Format for HostTables {
    type Attributes = HostAttributes;

    fn levels(&self) -> &[Level] {
        &self.levels
    }

    fn output_bits(&self) -> u32 {
        self.output_bits
    }

    fn leaf(&self, level: Level, address: PhysAddr, attributes: HostAttributes) -> u64 {
        let permission = match attributes.permission {
            Permission::ReadOnly => NO_EXECUTE,
            Permission::ReadWrite => NO_EXECUTE | WRITABLE,
            Permission::ReadExecute => 0,
        };
        let device = if attributes.device { UNCACHEABLE } else { 0 };
        let user = if attributes.user { USER } else { 0 };
        leaf(level, address) | permission | device | user
    }

    fn table(&self, _: Level, address: PhysAddr) -> u64 {
        table(address)
    }

    fn decode(&self, level: Level, entry: u64) -> Entry<HostAttributes> {
        decode(level, entry, |entry| HostAttributes {
            permission: match (entry & WRITABLE, entry & NO_EXECUTE) {
                (0, 0) => Permission::ReadExecute,
                (0, _) => Permission::ReadOnly,
                _ => Permission::ReadWrite,
            },
            device: entry & UNCACHEABLE != 0,
            user: entry & USER != 0,
        })
    }

    fn needs_break(&self, old: HostAttributes, new: HostAttributes) -> bool {
        // Two memory types of one address at the same time are undefined (7.8.7).
        old.device != new.device
    }

    fn table_bytes(&self, _: Level) -> u64 {
        // The root is a whole page, though half of it is used.
        4096
    }
}
