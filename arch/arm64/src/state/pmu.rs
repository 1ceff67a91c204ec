// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The Performance Monitors (PMUv3, Arm ARM D13) of a VM that owns them: its cycle counter and event counters are the
//! CPU's, and its overflow interrupt is.
//!
//! PMCR_EL0.E is 0 unless the vCPU whose counters these are is resident: nothing of another guest is counted, and
//! no overflow of theirs interrupts it. Nothing counts at EL2 where the CPU can be told so (MDCR_EL2.HPMD, HCCD).
//!
//! Counters that are nobody's run freely, as a trapped PMU needs them ([`super::trapped_pmu`]).

use super::common::event_counters;
use crate::cpu::regs::{self, read_numbered, write_numbered};

/// What a guest gets for a PMU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// None: its registers are UNDEFINED.
    #[default]
    Off,
    /// A model of one, whose registers trap.
    Trapped,
    /// The CPU's.
    Owned,
}

const PMCR_E: u64 = 1 << 0;
/// PMCR_EL0.P and C: what resets counters when it is written.
const PMCR_RESETS: u64 = 1 << 1 | 1 << 2;
const PMCR_LC: u64 = 1 << 6;
const ALL: u64 = 0xffff_ffff;
const CYCLES: u64 = 1 << 31;

/// ID_AA64DFR0_EL1.PMUVer.
pub const DFR0_PMUVER: u32 = 8;

/// Whether the CPU has a PMUv3 (0xf: an implementation-defined one).
pub fn exists() -> bool {
    !matches!(regs::ID_AA64DFR0_EL1.read() >> DFR0_PMUVER & 0xf, 0 | 0xf)
}

/// Returns how many event counters this CPU has (PMCR_EL0.N).
pub fn implemented() -> u32 {
    if exists() { (regs::PMCR_EL0.read() >> 11 & 0x1f) as u32 } else { 0 }
}

/// Leaves the counters to nobody: one free-running 64-bit cycle counter that counts EL1 and EL0 only, no interrupt.
pub fn abandon() {
    if !exists() {
        return;
    }
    // SAFETY: the counters are no guest's, and EL2 uses none.
    unsafe {
        stop_all();
        regs::PMUSERENR_EL0.write(0);
        regs::PMCCFILTR_EL0.write(0);
        regs::PMCNTENSET_EL0.write(CYCLES);
        regs::PMCR_EL0.write(PMCR_LC | PMCR_E);
    }
}

/// Stops all counters and forgets their overflows.
///
/// # Safety
/// The counters' state has been stored, or is wanted by nobody.
unsafe fn stop_all() {
    // SAFETY: the caller's promise.
    unsafe {
        regs::PMCR_EL0.write(0);
        regs::PMCNTENCLR_EL0.write(ALL);
        regs::PMINTENCLR_EL1.write(ALL);
        regs::PMOVSCLR_EL0.write(ALL);
    }
}

macro_rules! save_events {
    ($count:expr, $events:expr, $($n:literal)*) => {$(
        if $n < $count {
            $events[$n] = [read_numbered!("PMEVCNTR", $n, "_EL0"), read_numbered!("PMEVTYPER", $n, "_EL0")];
        }
    )*};
}

macro_rules! load_events {
    ($count:expr, $events:expr, $($n:literal)*) => {$(
        if $n < $count {
            write_numbered!($events[$n][0], "PMEVCNTR", $n, "_EL0");
            write_numbered!($events[$n][1], "PMEVTYPER", $n, "_EL0");
        }
    )*};
}

/// A vCPU's PMU registers, while they are not in a CPU. The default is what they are reset to.
#[derive(Debug, Default)]
pub struct Counters {
    control: u64,
    user: u64,
    select: u64,
    enabled: u64,
    interrupts: u64,
    overflows: u64,
    cycles: u64,
    cycle_filter: u64,
    /// Count and type of each event counter.
    events: [[u64; 2]; 31],
}

impl Counters {
    /// Says whether the guest counts, or lets its EL0 at the counters: that must be so without an access of its EL1.
    #[inline] // Of each load of a vCPU.
    pub fn is_active(&self) -> bool {
        self.control & PMCR_E != 0 || self.user != 0
    }

    /// Stops the counters, and with them the interrupt.
    #[inline] // Of each put of a vCPU that has used its PMU.
    pub fn stop(&mut self) {
        self.control = regs::PMCR_EL0.read() & !PMCR_RESETS;
        self.user = regs::PMUSERENR_EL0.read();
        if self.control & PMCR_E != 0 {
            // SAFETY: the guest's counters stand still while it does not run.
            unsafe { regs::PMCR_EL0.write(self.control & !PMCR_E) };
        }
    }

    /// Lets go on what [`Self::stop`] has stopped.
    ///
    /// # Safety
    /// The CPU holds the counters of this vCPU, which becomes resident.
    pub unsafe fn start(&self) {
        // SAFETY: the caller's promise: the guest gets back what it had.
        unsafe { regs::PMCR_EL0.write(self.control) };
    }

    /// Stores the registers, of which [`Self::stop`] has taken PMCR_EL0 and PMUSERENR_EL0.
    pub fn save(&mut self) {
        self.select = regs::PMSELR_EL0.read();
        self.enabled = regs::PMCNTENSET_EL0.read();
        self.interrupts = regs::PMINTENSET_EL1.read();
        self.overflows = regs::PMOVSSET_EL0.read();
        self.cycles = regs::PMCCNTR_EL0.read();
        self.cycle_filter = regs::PMCCFILTR_EL0.read();
        let count = event_counters();
        save_events!(count, self.events, 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30);
    }

    /// Loads the registers. PMCR_EL0 comes last, as it lets them count.
    ///
    /// # Safety
    /// They are those of the vCPU that is resident, or becomes so.
    pub unsafe fn load(&self) {
        let count = event_counters();
        // SAFETY: the caller's promise; the counters exist.
        unsafe {
            stop_all();
            load_events!(count, self.events, 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30);
            regs::PMCCNTR_EL0.write(self.cycles);
            regs::PMCCFILTR_EL0.write(self.cycle_filter);
            regs::PMSELR_EL0.write(self.select);
            regs::PMUSERENR_EL0.write(self.user);
            regs::PMOVSSET_EL0.write(self.overflows);
            regs::PMINTENSET_EL1.write(self.interrupts);
            regs::PMCNTENSET_EL0.write(self.enabled);
            regs::PMCR_EL0.write(self.control);
        }
    }
}
