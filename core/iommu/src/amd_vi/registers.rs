// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Registers (section 3.4), and what of the features this driver needs.

use super::platform::{Error, Platform};

pub(super) const DEVICE_TABLE_BASE: u32 = 0x00;
pub(super) const COMMAND_BASE: u32 = 0x08;
pub(super) const EVENT_BASE: u32 = 0x10;
pub(super) const CONTROL: u32 = 0x18;
/// A range that passes as it is, whatever the tables say: its base with its enable, and its limit.
pub(super) const EXCLUSION_BASE: u32 = 0x20;
pub(super) const EXCLUSION_LIMIT: u32 = 0x28;
const EXTENDED_FEATURES: u32 = 0x30;
pub(super) const COMMAND_HEAD: u32 = 0x2000;
pub(super) const COMMAND_TAIL: u32 = 0x2008;
pub(super) const EVENT_HEAD: u32 = 0x2010;
pub(super) const EVENT_TAIL: u32 = 0x2018;
pub(super) const STATUS: u32 = 0x2020;

pub(super) const CONTROL_ENABLE: u32 = 1 << 0;
pub(super) const CONTROL_EVENTS: u32 = 1 << 2;
pub(super) const CONTROL_EVENT_INTERRUPT: u32 = 1 << 3;
/// Its own accesses to tables are coherent.
const CONTROL_COHERENT: u32 = 1 << 10;
pub(super) const CONTROL_COMMANDS: u32 = 1 << 12;
/// What firmware asks for, as its table has it, and where the control register has that: HtTunEn, PassPW, ResPassPW, Isoc.
const WISHES: [(u8, u32); 4] = [(1 << 0, 1 << 1), (1 << 1, 1 << 8), (1 << 2, 1 << 9), (1 << 3, 1 << 11)];

pub(super) const STATUS_OVERFLOW: u32 = 1 << 0;
pub(super) const STATUS_EVENT_INTERRUPT: u32 = 1 << 1;
pub(super) const STATUS_EVENTS_RUN: u32 = 1 << 3;
pub(super) const STATUS_COMMANDS_RUN: u32 = 1 << 4;

/// INVALIDATE_IOMMU_ALL is there.
const HAS_INVALIDATE_ALL: u32 = 1 << 6;
/// The most levels of its page tables: 4, and more with larger values; the last value says that there are none.
const LEVELS_SHIFT: u32 = 10;

/// How often something is looked at until it has to have happened: a look takes a good part of a microsecond.
const POLLS: u32 = 1 << 20;

/// Looks whether an IOMMU has what is needed.
pub(super) fn check(platform: &impl Platform, unit: usize) -> Result<(), Error> {
    let features = platform.get32(unit, EXTENDED_FEATURES);
    if features == u32::MAX {
        return Err(Error::Feature("registers"));
    }
    if features & HAS_INVALIDATE_ALL == 0 {
        return Err(Error::Feature("command that invalidates all"));
    }
    if features >> LEVELS_SHIFT & 0b11 == 0b11 {
        return Err(Error::Feature("page tables of its own"));
    }
    Ok(())
}

/// Returns what is in the control register of an IOMMU that works, with firmware's wishes.
pub(super) fn control(flags: u8) -> u32 {
    let wishes = WISHES.into_iter().filter(|(wish, _)| flags & wish != 0).fold(0, |all, (_, bit)| all | bit);
    wishes | CONTROL_ENABLE | CONTROL_EVENTS | CONTROL_EVENT_INTERRUPT | CONTROL_COHERENT | CONTROL_COMMANDS
}

/// Writes a register of 64 bits by its halves: all IOMMUs take that, emulated ones only that.
pub(super) fn set64(platform: &mut impl Platform, unit: usize, offset: u32, value: u64) {
    platform.set32(unit, offset, value as u32);
    platform.set32(unit, offset + 4, (value >> 32) as u32);
}

/// Waits until something has happened.
pub(super) fn wait(what: &'static str, mut is_done: impl FnMut() -> bool) -> Result<(), Error> {
    if (0..POLLS).any(|_| is_done()) { Ok(()) } else { Err(Error::Stuck(what)) }
}
