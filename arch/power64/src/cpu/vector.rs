// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Offsets of interrupt vectors (Power ISA 3.0B Book III, 6.5).

pub const SYSTEM_RESET: u32 = 0x100;
pub const MACHINE_CHECK: u32 = 0x200;
pub const DATA_STORAGE: u32 = 0x300;
pub const INSTRUCTION_STORAGE: u32 = 0x400;
pub const PROGRAM: u32 = 0x700;
pub const HYPERVISOR_DECREMENTER: u32 = 0x980;
#[cfg(test)]
pub const CALL: u32 = 0xc00;
pub const HYPERVISOR_DATA_STORAGE: u32 = 0xe00;
pub const HYPERVISOR_INSTRUCTION_STORAGE: u32 = 0xe20;
pub const EMULATION_ASSISTANCE: u32 = 0xe40;
pub const MAINTENANCE: u32 = 0xe60;
pub const HYPERVISOR_DOORBELL: u32 = 0xe80;
pub const VIRTUALIZATION: u32 = 0xea0;
pub const HYPERVISOR_FACILITY: u32 = 0xf80;
pub const SOFT_PATCH: u32 = 0x1500;

/// What of an address is a vector's offset, wherever LPCR.AIL puts vectors.
pub const OFFSET: u64 = 0xfff;
