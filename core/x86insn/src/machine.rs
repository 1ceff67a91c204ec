// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What operations act on: the vCPU, and the device that was reached.

use crate::operation::Gpr;

/// RFLAGS bits that operations change.
pub(crate) mod flag {
    pub const CARRY: u64 = 1;
    pub const PARITY: u64 = 1 << 2;
    pub const ADJUST: u64 = 1 << 4;
    pub const ZERO: u64 = 1 << 6;
    pub const SIGN: u64 = 1 << 7;
    pub const DIRECTION: u64 = 1 << 10;
    pub const OVERFLOW: u64 = 1 << 11;
    pub const ARITHMETIC: u64 = CARRY | PARITY | ADJUST | ZERO | SIGN | OVERFLOW;
}

/// The number of RAX.
pub(crate) const RAX: u8 = 0;

/// The vCPU and the device that was reached.
pub trait Machine {
    /// Why the other side of a string instruction cannot be reached.
    type Error;

    /// Reads a general register.
    fn register(&self, number: u8) -> u64;
    /// Writes a general register.
    fn set_register(&mut self, number: u8, value: u64);
    /// RFLAGS.
    fn flags(&self) -> u64;
    /// Sets RFLAGS.
    fn set_flags(&mut self, flags: u64);
    /// Reads the device.
    fn read(&mut self, size: u8) -> u64;
    /// Writes the device.
    fn write(&mut self, size: u8, value: u64);
    /// Reads from an offset in a segment (0 to 5 for ES, CS, SS, DS, FS, GS).
    ///
    /// # Errors
    /// The access faults.
    fn load(&mut self, segment: u8, offset: u64, size: u8) -> Result<u64, Self::Error>;
    /// Writes to an offset in ES.
    ///
    /// # Errors
    /// The access faults.
    fn store(&mut self, offset: u64, size: u8, value: u64) -> Result<(), Self::Error>;
    /// Finds out whether an access to all bytes at an offset in a segment faults, and does nothing else.
    ///
    /// # Errors
    /// It does.
    fn probe(&mut self, segment: u8, offset: u64, size: u8, write: bool) -> Result<(), Self::Error>;
}

/// What comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The next instruction.
    Next,
    /// The same instruction: elements are left.
    Again,
}

pub(crate) fn mask(size: u8) -> u64 {
    if size >= 8 { u64::MAX } else { (1 << (u32::from(size) * 8)) - 1 }
}

/// Reads a register, or a part of one.
pub fn get(machine: &impl Machine, gpr: Gpr) -> u64 {
    machine.register(gpr.number) >> if gpr.high { 8 } else { 0 } & mask(gpr.size)
}

/// Writes a register, or a part of one: a part of four bytes clears the others.
pub fn set(machine: &mut impl Machine, gpr: Gpr, value: u64) {
    let old = machine.register(gpr.number);
    let new = match (gpr.size, gpr.high) {
        (1, true) => old & !0xff00 | (value & 0xff) << 8,
        (1, false) => old & !0xff | value & 0xff,
        (2, _) => old & !0xffff | value & 0xffff,
        (size, _) => value & mask(size),
    };
    machine.set_register(gpr.number, new);
}
