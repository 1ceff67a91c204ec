// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Breakpoints and watchpoints, stored and loaded.

use crate::regs;

/// The value and the control of each breakpoint or watchpoint.
type Points = [[u64; 2]; 16];

/// A vCPU's debug registers, and how many its CPU has.
#[derive(Debug, Default)]
pub(super) struct Debug {
    mdscr: u64,
    breakpoints: Points,
    breakpoint_count: u64,
    watchpoints: Points,
    watchpoint_count: u64,
}

#[cfg(target_os = "none")]
macro_rules! store {
    ($stem:literal, $count:expr, $points:expr, $($n:literal)*) => {$(
        if $n < $count {
            // SAFETY: the register exists, and reading it changes nothing.
            unsafe {
                core::arch::asm!(
                    concat!("mrs {value}, dbg", $stem, "vr", $n, "_el1"),
                    concat!("mrs {control}, dbg", $stem, "cr", $n, "_el1"),
                    value = out(reg) $points[$n][0],
                    control = out(reg) $points[$n][1],
                    options(nomem, nostack, preserves_flags)
                );
            }
        }
    )*};
}

#[cfg(target_os = "none")]
macro_rules! load {
    ($stem:literal, $count:expr, $points:expr, $($n:literal)*) => {$(
        if $n < $count {
            // SAFETY: the register exists, and the guest gets back what it had.
            unsafe {
                core::arch::asm!(
                    concat!("msr dbg", $stem, "vr", $n, "_el1, {value}"),
                    concat!("msr dbg", $stem, "cr", $n, "_el1, {control}"),
                    value = in(reg) $points[$n][0],
                    control = in(reg) $points[$n][1],
                    options(nomem, nostack, preserves_flags)
                );
            }
        }
    )*};
}

/// The fakes of the host have no such registers.
#[cfg(not(target_os = "none"))]
macro_rules! store {
    ($($any:tt)*) => {};
}
#[cfg(not(target_os = "none"))]
macro_rules! load {
    ($stem:literal, $count:expr, $points:expr, $($n:literal)*) => {
        let _ = ($count, $points);
    };
}

impl Debug {
    /// Takes note of how many there are.
    pub(super) fn begin(&mut self) {
        let features = regs::ID_AA64DFR0_EL1.read();
        self.breakpoint_count = (features >> 12 & 0xf) + 1;
        self.watchpoint_count = (features >> 20 & 0xf) + 1;
    }

    /// Stores the registers.
    #[inline(always)] // Into one hook.
    pub(super) fn save(&mut self) {
        self.mdscr = regs::MDSCR_EL1.read();
        store!("b", self.breakpoint_count, self.breakpoints, 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15);
        store!("w", self.watchpoint_count, self.watchpoints, 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15);
    }

    /// Loads the registers.
    ///
    /// # Safety
    /// They were saved from the vCPU that is resident here.
    #[inline(always)] // Into one hook.
    pub(super) unsafe fn load(&self) {
        load!("b", self.breakpoint_count, self.breakpoints, 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15);
        load!("w", self.watchpoint_count, self.watchpoints, 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15);
        // SAFETY: the guest gets back what it had, last, as it switches the others on.
        unsafe { regs::MDSCR_EL1.write(self.mdscr) };
    }
}
