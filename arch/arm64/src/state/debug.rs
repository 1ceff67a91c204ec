// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Self-hosted debug (Arm ARM D2): breakpoints, watchpoints, MDSCR_EL1, claim tags, the OS lock.
//!
//! MDSCR_EL1 switches the others on. It is zero unless the vCPU whose registers these are is resident, so that what
//! is left behind in a CPU never makes another guest take an exception.
//!
//! The OS lock stays trapped. Guests write it once at their start, and locking it opens registers of the external
//! debugger that no guest is to have.

use crate::cpu::regs::{self, read_numbered, write_numbered};

/// Breakpoints and watchpoints, while they are not in a CPU: value and control of each, and how many there are. The
/// default is none.
#[derive(Debug, Default)]
pub struct Points {
    breakpoints: [[u64; 2]; 16],
    breakpoint_count: u64,
    watchpoints: [[u64; 2]; 16],
    watchpoint_count: u64,
}

/// A vCPU's debug registers, while they are not in a CPU.
#[derive(Debug)]
pub struct Debug {
    mdscr: u64,
    points: Points,
    claim_tags: u64,
    /// 1 if the OS lock is locked.
    os_lock: u64,
}

/// OSLSR_EL1.OSLM: the OS lock is implemented.
const OSLSR_OSLM: u64 = 1 << 3;
/// There are eight claim tags.
const CLAIM_TAGS: u64 = 0xff;

macro_rules! save_points {
    ($stem:literal, $count:expr, $points:expr, $($n:literal)*) => {$(
        if $n < $count {
            $points[$n] = [read_numbered!($stem, "VR", $n, "_EL1"), read_numbered!($stem, "CR", $n, "_EL1")];
        }
    )*};
}

macro_rules! load_points {
    ($stem:literal, $count:expr, $points:expr, $($n:literal)*) => {$(
        if $n < $count {
            write_numbered!($points[$n][0], $stem, "VR", $n, "_EL1");
            write_numbered!($points[$n][1], $stem, "CR", $n, "_EL1");
        }
    )*};
}

impl Points {
    /// Makes the reset state of as many as this CPU has (ID_AA64DFR0_EL1.BRPs, WRPs).
    pub fn new() -> Self {
        let features = regs::ID_AA64DFR0_EL1.read();
        Self {
            breakpoint_count: (features >> 12 & 0xf) + 1,
            watchpoint_count: (features >> 20 & 0xf) + 1,
            ..Self::default()
        }
    }

    /// Stores the registers.
    #[inline(always)] // One caller each: the facility, and the hook of images for ablation.
    pub fn save(&mut self) {
        save_points!("DBGB", self.breakpoint_count, self.breakpoints, 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15);
        save_points!("DBGW", self.watchpoint_count, self.watchpoints, 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15);
    }

    /// Loads the registers.
    ///
    /// # Safety
    /// They are those of the vCPU that is resident, or becomes so.
    #[inline(always)] // As above.
    pub unsafe fn load(&self) {
        // SAFETY: the caller's promise. Breakpoints and watchpoints of EL1 and EL0, which exist.
        unsafe {
            load_points!("DBGB", self.breakpoint_count, self.breakpoints, 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15);
            load_points!("DBGW", self.watchpoint_count, self.watchpoints, 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15);
        }
    }
}

impl Debug {
    /// Makes the reset state.
    pub(super) fn new() -> Self {
        Self { mdscr: 0, points: Points::new(), claim_tags: 0, os_lock: 0 }
    }

    /// Says whether the guest has anything switched on, which acts without being accessed.
    #[inline] // Of each load of a vCPU.
    pub fn is_active(&self) -> bool {
        self.mdscr != 0
    }

    /// Notes what is switched on, and switches it off.
    #[inline] // Of each put of a vCPU that has used debug registers.
    pub fn stop(&mut self) {
        self.mdscr = regs::MDSCR_EL1.read();
        if self.mdscr != 0 {
            // SAFETY: no breakpoint, watchpoint or step for whoever runs next.
            unsafe { regs::MDSCR_EL1.write(0) };
        }
    }

    /// Switches on again what [`Self::stop`] has switched off.
    ///
    /// # Safety
    /// The CPU holds the other registers of this vCPU, which becomes resident.
    pub unsafe fn start(&self) {
        // SAFETY: the caller's promise: the guest gets back what it had.
        unsafe { regs::MDSCR_EL1.write(self.mdscr) };
    }

    /// Stores the registers, of which [`Self::stop`] has taken MDSCR_EL1.
    pub fn save(&mut self) {
        self.points.save();
        self.claim_tags = regs::DBGCLAIMCLR_EL1.read() & CLAIM_TAGS;
    }

    /// Loads the registers. MDSCR_EL1 comes last, as it switches the others on.
    ///
    /// # Safety
    /// They are those of the vCPU that is resident, or becomes so.
    pub unsafe fn load(&self) {
        // SAFETY: the caller's promise; what is left of others in the communications channel is cleared.
        unsafe {
            self.points.load();
            regs::DBGCLAIMCLR_EL1.write(CLAIM_TAGS);
            regs::DBGCLAIMSET_EL1.write(self.claim_tags);
            regs::OSDTRRX_EL1.write(0);
            regs::OSDTRTX_EL1.write(0);
            regs::OSLAR_EL1.write(self.os_lock);
            regs::MDSCR_EL1.write(self.mdscr);
        }
    }

    /// Returns OSLSR_EL1.
    pub fn os_lock_status(&self) -> u64 {
        OSLSR_OSLM | self.os_lock << 1
    }

    /// Writes OSLAR_EL1.
    ///
    /// # Safety
    /// The CPU holds the registers of this vCPU, which is resident.
    pub unsafe fn set_os_lock(&mut self, value: u64) {
        self.os_lock = value & 1;
        // SAFETY: a lock of the guest's own debug registers.
        unsafe { regs::OSLAR_EL1.write(self.os_lock) };
    }
}

/// Leaves nothing switched on in this CPU: its debug registers are nobody's.
pub fn abandon() {
    // SAFETY: debug exceptions of EL1 and EL0 are off.
    unsafe {
        regs::MDSCR_EL1.write(0);
        regs::OSLAR_EL1.write(0);
    }
}
