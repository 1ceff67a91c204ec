// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Facilities that a guest is given when it uses them: the performance monitor, transactions, event-based branches. HFSCR has
//! a bit for each, and a guest that uses what is off makes an exit (Power ISA 3.0B Book III, 6.2.11). Then it is loaded, and
//! kept for [`LOADS`] switches: without having used it since, the guest gives it up.

use core::sync::atomic::{AtomicBool, Ordering};

use turnstile_papr::Memory;
use turnstile_papr::vpa::offset;

use super::registers::{Branches, Monitor, Transactions};
#[cfg(target_os = "none")]
use crate::regs::msr;
use crate::regs::{MMCR0, PVR, hfscr};
use crate::vcpu::Vcpu;

/// How many times a facility is loaded before it is found out anew whether the guest uses it: a counter of eight bits.
#[cfg_attr(not(test), allow(dead_code, reason = "named for what the counter's width means"))]
pub(super) const LOADS: u32 = 1 << u8::BITS;

/// What every guest has, all the time.
pub(super) const ALWAYS: u64 =
    hfscr::FP | hfscr::VECTOR | hfscr::DSCR | hfscr::TAR | hfscr::SCV | hfscr::PREFIX;

/// MMCR0: counters are frozen.
pub(crate) const FROZEN: u64 = 1 << 31;

/// Whether the CPU minds HFSCR.
static ENFORCED: AtomicBool = AtomicBool::new(true);

/// Says whether the CPU minds HFSCR: QEMU's does not. Then all facilities are given to every guest from the start, because
/// nothing would keep it from those that are off. Before any guest runs.
pub fn set_enforced(enforced: bool) {
    ENFORCED.store(enforced, Ordering::Relaxed);
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
        self.on &= self.loads != 0 || !ENFORCED.load(Ordering::Relaxed);
        self.on
    }
}

/// The facilities of a vCPU.
#[derive(Clone, Copy, Debug)]
pub(super) struct Demanded {
    monitor: Facility<Monitor>,
    transactions: Facility<Transactions>,
    branches: Facility<Branches>,
}

impl Demanded {
    /// Makes those of a vCPU that has never run.
    pub(super) fn new() -> Self {
        let on = !ENFORCED.load(Ordering::Relaxed);
        let transactions = on && has_transactions();
        Self {
            monitor: Facility { registers: Monitor::RESET, on, loads: 0 },
            transactions: Facility { registers: Transactions::RESET, on: transactions, loads: 0 },
            branches: Facility { registers: Branches::RESET, on, loads: 0 },
        }
    }

    /// Before they are loaded: returns HFSCR with those that the guest has.
    pub(super) fn grow_old(&mut self, hfscr: u64) -> u64 {
        let bit = |on, bit| if on { bit } else { 0 };
        hfscr & !(hfscr::PM | hfscr::TM | hfscr::EBB)
            | bit(self.monitor.grow_old(), hfscr::PM)
            | bit(self.transactions.grow_old(), hfscr::TM)
            | bit(self.branches.grow_old(), hfscr::EBB)
    }

    /// Stores those that the guest has. The performance monitor is nobody's then, and counts nothing.
    pub(super) fn save(&mut self, vcpu: &Vcpu) {
        if self.monitor.on {
            // What the guest says it does not use is frozen, and forgotten (LoPAPR 14.11.3.2: PMC registers in use).
            if counters_in_use(vcpu) {
                self.monitor.registers.save();
            } else {
                self.monitor.registers = Monitor::RESET;
            }
            // SAFETY: counts no more.
            unsafe { MMCR0.write(FROZEN) };
        }
        if self.transactions.on {
            with_transactions(|| self.transactions.registers.save());
        }
        if self.branches.on {
            self.branches.registers.save();
        }
    }

    /// Loads those that the guest has.
    ///
    /// # Safety
    /// Nobody needs what is in the registers.
    pub(super) unsafe fn load(&self, before: Option<&Self>) {
        // SAFETY: the caller's promise. What another one had switched on is compared with; what it had not is unknown.
        unsafe {
            if self.monitor.on {
                // Frozen as it is now, whatever the one before had counted.
                let mut frozen = before.filter(|b| b.monitor.on).map(|b| b.monitor.registers);
                if let Some(registers) = &mut frozen {
                    registers.mmcr0 = FROZEN;
                }
                self.monitor.registers.load(frozen.as_ref());
            }
            if self.transactions.on {
                let before = before.filter(|b| b.transactions.on).map(|b| &b.transactions.registers);
                with_transactions(|| self.transactions.registers.load(before));
            }
            if self.branches.on {
                let before = before.filter(|b| b.branches.on).map(|b| &b.branches.registers);
                self.branches.registers.load(before);
            }
        }
    }

    /// Gives the resident vCPU a facility, by the number of its bit, and loads it. Returns the bit; `None` if it is not given
    /// on demand.
    pub(super) fn demand(&mut self, facility: u8) -> Option<u64> {
        const PM: u8 = hfscr::PM.trailing_zeros() as u8;
        const TM: u8 = hfscr::TM.trailing_zeros() as u8;
        const EBB: u8 = hfscr::EBB.trailing_zeros() as u8;
        // SAFETY: registers of a facility that the guest that was resident before either had, and has stored, or never had.
        unsafe {
            match facility {
                PM => {
                    (self.monitor.on, self.monitor.loads) = (true, 0);
                    self.monitor.registers.load(None);
                    Some(hfscr::PM)
                }
                TM if has_transactions() => {
                    (self.transactions.on, self.transactions.loads) = (true, 0);
                    with_transactions(|| self.transactions.registers.load(None));
                    Some(hfscr::TM)
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

/// Says whether the CPU has transactions: POWER9 was the last one.
fn has_transactions() -> bool {
    const POWER10: u64 = 0x80;
    PVR.read() >> 16 < POWER10
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

/// What the guest says in the area that it shares: without one, all counters are in use.
fn counters_in_use(vcpu: &Vcpu) -> bool {
    let Some(area) = vcpu.owned(|owned| owned.areas.vpa) else { return true };
    let mut flag = [1];
    let read = vcpu.vm.read(area.address + offset::PMC_IN_USE, &mut flag);
    !read || flag != [0]
}
