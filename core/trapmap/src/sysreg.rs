// SPDX-License-Identifier: Apache-2.0 OR MIT
//! System register encodings, and how a syndrome shows them.

use core::fmt;

/// The encoding of an AArch64 system register or system instruction: op0, op1, CRn, CRm, op2.
///
/// Ordered as the fields are written, op0 first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SysReg(u16);

impl SysReg {
    /// How many values [`SysReg::key`] has.
    pub const KEYS: usize = 1 << 15;

    /// Makes an encoding from its fields. In a constant, a field out of range does not compile.
    ///
    /// # Panics
    /// If a field is out of range: op0 1..=3, op1 and op2 0..=7, CRn and CRm 0..=15.
    pub const fn new(op0: u8, op1: u8, crn: u8, crm: u8, op2: u8) -> Self {
        assert!(op0 >= 1 && op0 <= 3, "op0 is 1 (instructions), 2 (debug) or 3");
        assert!(op1 <= 7 && op2 <= 7, "op1 and op2 have three bits");
        assert!(crn <= 15 && crm <= 15, "CRn and CRm have four bits");
        Self((op0 as u16) << 14 | (op1 as u16) << 11 | (crn as u16) << 7 | (crm as u16) << 3 | op2 as u16)
    }

    /// Takes the encoding out of the ISS of a trapped MSR, MRS or SYS instruction (ESR_ELx.EC 0x18): Op0 in bits
    /// [21:20], Op2 in [19:17], Op1 in [16:14], CRn in [13:10], CRm in [4:1].
    pub const fn from_iss(iss: u32) -> Self {
        let (op0, op2, op1) = (iss >> 20 & 3, iss >> 17 & 7, iss >> 14 & 7);
        let (crn, crm) = (iss >> 10 & 15, iss >> 1 & 15);
        Self((op0 << 14 | op1 << 11 | crn << 7 | crm << 3 | op2) as u16)
    }

    /// Returns all fields as one number, op0 highest.
    pub(crate) const fn encoding(self) -> u16 {
        self.0
    }

    /// Returns op0.
    pub const fn op0(self) -> u8 {
        (self.0 >> 14) as u8
    }

    /// Returns op1.
    pub const fn op1(self) -> u8 {
        (self.0 >> 11 & 7) as u8
    }

    /// Returns CRn.
    pub const fn crn(self) -> u8 {
        (self.0 >> 7 & 15) as u8
    }

    /// Returns CRm.
    pub const fn crm(self) -> u8 {
        (self.0 >> 3 & 15) as u8
    }

    /// Returns op2.
    pub const fn op2(self) -> u8 {
        (self.0 & 7) as u8
    }

    /// Returns the index into a direct-mapped table: the order of the syndrome's own fields, without the high
    /// bit of op0. That bit is 1 for every register; the SYS instructions (op0 1) share keys with encodings of
    /// op0 3 that are not allocated, which [`crate::TrapMap::new`] verifies for those it is given.
    pub const fn key(self) -> usize {
        let high = (self.op0() as usize & 1) << 10
            | (self.op2() as usize) << 7
            | (self.op1() as usize) << 4
            | self.crn() as usize;
        high << 4 | self.crm() as usize
    }

    /// Returns the key of the register that the ISS of an exception of class 0x18 names: two shifts, two masks.
    // Inlined: the heart of each trapped register access, a handful of instructions.
    #[inline(always)]
    pub const fn key_of_iss(iss: u32) -> usize {
        ((iss >> 10 & 0x7ff) << 4 | (iss >> 1 & 0xf)) as usize
    }
}

impl fmt::Display for SysReg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "S{}_{}_C{}_C{}_{}", self.op0(), self.op1(), self.crn(), self.crm(), self.op2())
    }
}

impl fmt::Debug for SysReg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
