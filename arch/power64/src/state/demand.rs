// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Facilities that a guest is given when it uses them: the performance monitor and event-based branches. HFSCR has a bit for
//! each, and a guest that uses what is off makes an exit (Power ISA 3.0B Book III, 6.2.11). Then it is loaded, and kept for
//! [`LOADS`] switches: without having used it since, the guest gives it up.
//!
//! Transactions are nobody's where HFSCR is minded: a switch in the middle of one would have to store the checkpoint, and the
//! device tree does not offer them. So no guest leaves the state in which there is none (MSR.TS, Book III, 3.2.2): what would
//! lead out of it is an instruction that HFSCR keeps from it, or a return from an interrupt that is an illegal transition, a
//! program interrupt of its own. That MSR.TM may be on is no matter; the hypervisor enters a guest with it.

#[cfg(target_os = "none")]
use core::sync::atomic::{AtomicBool, Ordering};

use super::groups::Idle;
use super::registers::{Branches, FROZEN, Monitor, NewerMonitor, Transactions};
use crate::cpu;
#[cfg(target_os = "none")]
use crate::cpu::regs::msr;
use crate::cpu::regs::{MMCR0, hfscr};

/// How many times a facility is loaded before it is found out anew whether the guest uses it: a counter of eight bits.
#[cfg_attr(not(test), allow(dead_code, reason = "named for what the counter's width means"))]
pub(crate) const LOADS: u32 = 1 << u8::BITS;

/// Whether the CPU minds HFSCR.
#[cfg(target_os = "none")]
static ENFORCED: AtomicBool = AtomicBool::new(true);

/// Says whether the CPU minds HFSCR: QEMU's does not. Then all facilities are given to every guest from the start, because
/// nothing would keep it from those that are off. Before any guest runs.
pub fn set_enforced(enforced: bool) {
    #[cfg(target_os = "none")]
    ENFORCED.store(enforced, Ordering::Relaxed);
    // On the host each test has a machine of its own.
    #[cfg(not(target_os = "none"))]
    crate::cpu::regs::fakes::set("ignores HFSCR", (!enforced).into());
}

/// Says whether the CPU minds HFSCR.
#[inline(always)] // One load.
pub(crate) fn is_enforced() -> bool {
    #[cfg(target_os = "none")]
    {
        ENFORCED.load(Ordering::Relaxed)
    }
    #[cfg(not(target_os = "none"))]
    {
        crate::cpu::regs::fakes::get("ignores HFSCR") == 0
    }
}

/// Says whether a facility, by the number of its bit, is given to guests that use it.
#[inline(always)] // Two comparisons.
pub(crate) fn is_given(facility: u8) -> bool {
    matches!(1 << facility, hfscr::PM | hfscr::EBB)
}

/// A facility.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Facility<R> {
    registers: R,
    /// It is the guest's.
    on: bool,
    /// How often it has been loaded since the guest asked for it.
    loads: u8,
}

impl<R> Facility<R> {
    /// Switches it off if it has been loaded so often that the guest has to ask again.
    fn grow_old(&mut self) -> bool {
        self.loads = self.loads.wrapping_add(u8::from(self.on));
        self.on &= self.loads != 0;
        self.on
    }
}

/// The facilities of a vCPU.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Demanded {
    monitor: Facility<Idle<Monitor>>,
    newer_monitor: Idle<NewerMonitor>,
    /// The CPU's registers of the monitor hold something else than what is stored: what was not stored.
    monitor_left: bool,
    /// Of a guest that nothing keeps from them.
    transactions: Option<Idle<Transactions>>,
    branches: Facility<Idle<Branches>>,
}

impl Demanded {
    /// Makes those of a vCPU that has never run.
    pub(crate) fn new() -> Self {
        let on = !is_enforced();
        Self {
            monitor: Facility { registers: Idle::RESET, on, loads: 0 },
            newer_monitor: Idle::RESET,
            monitor_left: false,
            transactions: (on && has_transactions()).then_some(Idle::RESET),
            branches: Facility { registers: Idle::RESET, on, loads: 0 },
        }
    }

    /// Before they are loaded: returns HFSCR with those that the guest has.
    pub(crate) fn grow_old(&mut self, hfscr: u64) -> u64 {
        if !is_enforced() {
            // All of them, as from the start.
            let transactions = if self.transactions.is_some() { hfscr::TM } else { 0 };
            return hfscr & !hfscr::TM | hfscr::PM | hfscr::EBB | transactions;
        }
        let bit = |on, bit| if on { bit } else { 0 };
        hfscr & !(hfscr::PM | hfscr::TM | hfscr::EBB)
            | bit(self.monitor.grow_old(), hfscr::PM)
            | bit(self.transactions.is_some(), hfscr::TM)
            | bit(self.branches.grow_old(), hfscr::EBB)
    }

    /// Stores those that the guest has. The performance monitor is nobody's then, and counts nothing. `counts` says whether the
    /// guest uses the counters.
    pub(crate) fn save(&mut self, counts: impl FnOnce() -> bool) {
        if self.monitor.on {
            // What the guest says it does not use is frozen, and forgotten (LoPAPR 14.11.3.2: PMC registers in use). It is still
            // in the CPU, where the next one that has a monitor must not find it.
            self.monitor_left = !counts();
            if self.monitor_left {
                (self.monitor.registers, self.newer_monitor) = (Idle::RESET, Idle::RESET);
            } else {
                self.monitor.registers.save();
                self.newer_monitor.save();
            }
            // SAFETY: counts no more.
            unsafe { MMCR0.write(FROZEN) };
        }
        if let Some(transactions) = &mut self.transactions {
            with_transactions(|| transactions.save());
        }
        if self.branches.on {
            self.branches.registers.save();
        }
    }

    /// Loads those that the guest has.
    ///
    /// # Safety
    /// Nobody needs what is in the registers.
    pub(crate) unsafe fn load(&self, before: Option<&Self>) {
        // SAFETY: the caller's promise. What another one had switched on is compared with; what it had not is unknown.
        unsafe {
            if self.monitor.on {
                // Frozen as it is now, whatever the one before had counted.
                let known = before.filter(|b| b.monitor.on && !b.monitor_left);
                self.newer_monitor.load(known.map(|b| &b.newer_monitor));
                let known = known.map(|b| &b.monitor.registers);
                self.monitor.registers.load_after(known, |registers| registers.mmcr0 = FROZEN);
            }
            if let Some(transactions) = &self.transactions {
                let before = before.and_then(|b| b.transactions.as_ref());
                with_transactions(|| transactions.load(before));
            }
            if self.branches.on {
                let before = before.filter(|b| b.branches.on).map(|b| &b.branches.registers);
                self.branches.registers.load(before);
            }
        }
    }

    /// Freezes what the CPU counts for the guest, whose life has ended.
    pub(crate) fn freeze(&self) {
        if self.monitor.on {
            // SAFETY: counts no more, and interrupts nobody.
            unsafe { MMCR0.write(FROZEN) };
        }
    }

    /// Gives the resident vCPU a facility, by the number of its bit, and loads it. Returns the bit; `None` if it is not given
    /// on demand.
    pub(crate) fn demand(&mut self, facility: u8) -> Option<u64> {
        const PM: u8 = hfscr::PM.trailing_zeros() as u8;
        const EBB: u8 = hfscr::EBB.trailing_zeros() as u8;
        // SAFETY: registers of a facility that the guest that was resident before either had, and has stored, or never had.
        unsafe {
            match facility {
                PM => {
                    self.demand_monitor();
                    Some(hfscr::PM)
                }
                EBB => {
                    (self.branches.on, self.branches.loads) = (true, 0);
                    self.branches.registers.load(None);
                    Some(hfscr::EBB)
                }
                _ => None,
            }
        }
    }
}

impl Demanded {
    /// # Safety
    /// Nobody needs what is in the registers.
    #[inline(never)] // Not part of what others pay.
    unsafe fn demand_monitor(&mut self) {
        (self.monitor.on, self.monitor.loads) = (true, 0);
        // SAFETY: the caller's promise.
        unsafe {
            self.newer_monitor.load(None);
            self.monitor.registers.load(None);
        }
    }
}

/// Says whether the CPU has transactions: POWER9 was the last one.
fn has_transactions() -> bool {
    !cpu::is_isa_3_1()
}

/// Runs `f`, which uses registers of transactions: MSR.TM is on meanwhile.
pub(crate) fn with_transactions(f: impl FnOnce()) {
    #[cfg(target_os = "none")]
    let before = {
        let before: u64;
        // SAFETY: makes registers accessible.
        unsafe {
            core::arch::asm!(
                "mfmsr {before}", "or {now}, {before}, {tm}", "mtmsrd {now}",
                before = out(reg) before, now = out(reg) _, tm = in(reg) msr::TM, options(nostack)
            );
        }
        before
    };
    f();
    #[cfg(target_os = "none")]
    // SAFETY: as it was.
    unsafe {
        core::arch::asm!("mtmsrd {}", in(reg) before, options(nostack));
    }
}
