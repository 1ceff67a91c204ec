// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The traps of facilities: CPTR_EL2, MDCR_EL2 and HCR_EL2, and what they say now.

use core::cell::Cell;
use core::ops::{BitOr, BitOrAssign};

use super::common;
use crate::cpu::mode::{Mode, in_mode};
use crate::cpu::{self, regs};

/// A set of what does not trap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Open(u8);

impl Open {
    /// Nothing.
    pub const NONE: Self = Self(0);
    /// FP and SIMD.
    pub const FP: Self = Self(1 << 0);
    /// SVE.
    pub const SVE: Self = Self(1 << 1);
    /// The PMU.
    pub const PMU: Self = Self(1 << 2);
    /// Breakpoints and watchpoints.
    pub const DEBUG: Self = Self(1 << 3);
    /// Pointer authentication: instructions and keys.
    pub const PAUTH: Self = Self(1 << 4);

    /// Says whether the sets have anything in common.
    pub const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Returns the set as a number, which [`Self::from_bits`] takes.
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// Returns the set that [`Self::bits`] gave.
    pub const fn from_bits(bits: u8) -> Self {
        Self(bits)
    }

    /// Returns the set without what is in `other`.
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    const fn difference(self, other: Self) -> Self {
        Self(self.0 ^ other.0)
    }
}

impl BitOr for Open {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitOrAssign for Open {
    fn bitor_assign(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

/// MDCR_EL2 without HPMN and what may be open: OS lock and debug ROM (TDOSA, TDRA), SPE (TPMS), trace filter (TTRF),
/// debug communications channel (TDCC) trap; nothing of a guest's PMU counts at EL2 (HPMD, HCCD).
const MDCR_GUEST: u64 = 1 << 10 | 1 << 11 | 1 << 14 | 1 << 17 | 1 << 19 | 1 << 23 | 1 << 27;
/// TPMCR, TPM.
const MDCR_PMU: u64 = 1 << 5 | 1 << 6;
/// TDA.
const MDCR_DEBUG: u64 = 1 << 9;
/// HCR_EL2.APK, API: one lets through.
const HCR_PAUTH: u64 = 1 << 40 | 1 << 41;

/// Returns CPTR_EL2.
fn cptr<M: Mode>(open: Open) -> u64 {
    let fp = if open.intersects(Open::FP) { M::CPTR_FP } else { 0 };
    let sve = if open.intersects(Open::SVE) { M::CPTR_SVE } else { 0 };
    M::CPTR ^ fp ^ sve
}

/// Returns MDCR_EL2.
fn mdcr(open: Open) -> u64 {
    let pmu = if open.intersects(Open::PMU) { 0 } else { MDCR_PMU };
    let debug = if open.intersects(Open::DEBUG) { 0 } else { MDCR_DEBUG };
    MDCR_GUEST | pmu | debug | common::event_counters()
}

/// What is open on a physical CPU.
///
/// Only that CPU touches it, and only in functions of this module that do not call each other's callers; so a cell does.
#[derive(Debug)]
pub struct Traps {
    open: Cell<u8>,
}

// SAFETY: each CPU touches only its own, which the functions of this module reach through `cpu::this`; interrupts are
// masked at EL2.
unsafe impl Sync for Traps {}
// SAFETY: as above; before its CPU starts, the boot CPU alone has it.
unsafe impl Send for Traps {}

impl Traps {
    /// Makes those of a CPU that has not started: nothing is open.
    pub const fn new() -> Self {
        Self { open: Cell::new(0) }
    }

    /// Returns what is open.
    #[inline(always)] // A load, of each entry to a service.
    pub fn open(&self) -> Open {
        Open::from_bits(self.open.get())
    }
}

impl Default for Traps {
    fn default() -> Self {
        Self::new()
    }
}

/// Does [`set`] for EL2 itself: takes effect at once.
pub fn open(open: Open) {
    set(open);
    // Also if nothing has changed: what this exit has set before need not be in effect.
    cpu::isb();
}

/// Makes traps say that `open` does not trap, and nothing else. Takes effect with the entry of the guest.
#[inline] // A comparison of each switch.
pub fn set(open: Open) {
    let now = &cpu::this().slot::<Traps>().open;
    let before = Open::from_bits(now.get());
    if open != before {
        change(now, before, open);
    }
}

#[inline(never)] // Apart from the switches that change nothing.
fn change(now: &Cell<u8>, before: Open, open: Open) {
    let changes = open.difference(before);
    if changes.intersects(Open::FP | Open::SVE) {
        in_mode!(write_cptr(open));
    }
    if changes.intersects(Open::PMU | Open::DEBUG) {
        // SAFETY: traps of a guest; EL2 is not affected.
        unsafe { regs::MDCR_EL2.write(mdcr(open)) };
    }
    if changes.intersects(Open::PAUTH) {
        // SAFETY: as above; the other bits stay.
        unsafe { regs::HCR_EL2.write(regs::HCR_EL2.read() ^ HCR_PAUTH) };
    }
    now.set(open.bits());
}

fn write_cptr<M: Mode>(open: Open) {
    // SAFETY: traps of FP, SIMD and SVE, which EL2 itself uses only while it has opened them.
    unsafe { regs::CPTR_EL2.write(cptr::<M>(open)) };
}

/// Closes everything on this CPU, whatever its registers say. HCR_EL2 has both bits of pointer authentication clear.
pub fn start_cpu<M: Mode>() {
    write_cptr::<M>(Open::NONE);
    // SAFETY: traps of guests; EL2 is not affected.
    unsafe { regs::MDCR_EL2.write(mdcr(Open::NONE)) };
}

/// Does something at EL2 with FP, SIMD or SVE registers, which trap there too unless they are open.
pub fn opened<R>(more: Open, action: impl FnOnce() -> R) -> R {
    let before = Open::from_bits(cpu::this().slot::<Traps>().open.get());
    set(before | more);
    cpu::isb();
    let result = action();
    set(before);
    result
}
