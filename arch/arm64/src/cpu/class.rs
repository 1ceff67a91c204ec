// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Exception classes, ESR_EL2.EC (Arm ARM D24.2.41).

/// Returns the class of a syndrome. Above it lies ISS2 (bits 55:32), which must not get into it.
#[inline(always)] // One instruction.
pub const fn of(esr: u64) -> u64 {
    esr >> 26 & 0x3f
}

pub const WFX: u64 = 0x01;
pub const FP: u64 = 0x07;
pub const PAUTH: u64 = 0x09;
pub const HVC64: u64 = 0x16;
pub const SMC64: u64 = 0x17;
pub const SYSTEM_REGISTER: u64 = 0x18;
pub const SVE: u64 = 0x19;
pub const INSTRUCTION_ABORT: u64 = 0x20;
pub const DATA_ABORT: u64 = 0x24;
