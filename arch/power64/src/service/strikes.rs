// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is the guest's and strikes in a service, because MSR.EE is always 1 in problem state and breakpoints do not ask whose code
//! it is. It is kept away while the service runs, and put back before the guest goes on. A guest for which nothing is due and that
//! has no breakpoints pays nothing.

use core::cell::Cell;

use crate::cpu::regs::{CIABR, DAWRX0, DEC, DPDES, MMCR0};
use crate::irq::Accepted;
use crate::state::registers::FROZEN;
use crate::time;

/// Vectors of a partition's interrupts (Power ISA 3.0B Book III, 6.5).
const DATA_STORAGE: u64 = 0x300;
const EXTERNAL: u64 = 0x500;
const DECREMENTER: u64 = 0x900;
const DOORBELL: u64 = 0xa00;
const TRACE: u64 = 0xd00;
const PERFORMANCE_MONITOR: u64 = 0xf00;

/// In DSISR: it was a watchpoint.
const WATCHPOINT: u64 = 1 << 22;
/// What keeps the decrementer from ringing.
const FAR: u64 = 0x7fff_ffff;

/// What has struck and is kept away, with what it was.
#[derive(Debug, Default)]
pub(super) struct Strikes {
    /// Whether there is any.
    any: Cell<bool>,
    external: Cell<Option<Accepted>>,
    /// When the decrementer rang, in ticks.
    decrementer: Cell<Option<u64>>,
    doorbell: Cell<bool>,
    breakpoint: Cell<Option<u64>>,
    watchpoint: Cell<Option<u64>>,
    monitor: Cell<Option<u64>>,
}

impl Strikes {
    /// Keeps away what has come to a vector of the partition. False if it is not the guest's.
    pub(super) fn keep_away(&self, vector: u64, dsisr: u64) -> bool {
        // SAFETY: registers of the resident vCPU, which nobody looks at before they are what they were again.
        unsafe {
            match vector {
                EXTERNAL => self.external.set(Some(Accepted::accept(self.external.get()))),
                DECREMENTER => {
                    self.decrementer.set(Some(time::ticks().wrapping_add(time::signed(DEC.read()) as u64)));
                    DEC.write(FAR);
                }
                DOORBELL => {
                    // Its interrupt has taken it away.
                    self.doorbell.set(true);
                }
                TRACE => {
                    self.breakpoint.set(Some(CIABR.read()));
                    CIABR.write(0);
                }
                DATA_STORAGE if dsisr & WATCHPOINT != 0 => {
                    self.watchpoint.set(Some(DAWRX0.read()));
                    DAWRX0.write(0);
                }
                PERFORMANCE_MONITOR => {
                    self.monitor.set(Some(MMCR0.read()));
                    MMCR0.write(FROZEN);
                }
                _ => return false,
            }
        }
        self.any.set(true);
        true
    }

    /// Puts everything back.
    #[inline(always)] // A load, on the way of each access.
    pub(super) fn put_back(&self) {
        if self.any.get() {
            self.put_back_some();
        }
    }

    #[cold]
    fn put_back_some(&self) {
        self.any.set(false);
        if let Some(accepted) = self.external.take() {
            accepted.give_back();
        }
        // SAFETY: as they were, but for the time that has passed.
        unsafe {
            if let Some(at) = self.decrementer.take() {
                DEC.write(time::bounded(at.wrapping_sub(time::ticks()) as i64));
            }
            if self.doorbell.take() {
                DPDES.write(1);
            }
            if let Some(breakpoint) = self.breakpoint.take() {
                CIABR.write(breakpoint);
            }
            if let Some(watchpoint) = self.watchpoint.take() {
                DAWRX0.write(watchpoint);
            }
            if let Some(monitor) = self.monitor.take() {
                MMCR0.write(monitor);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::regs::fakes::{self, Access};

    const REGISTERS: [&str; 5] = ["DEC", "DPDES", "CIABR", "DAWRX0", "MMCR0"];

    #[test]
    fn what_strikes_is_silent_until_the_guest_goes_on() {
        fakes::reset();
        fakes::set("TB", 1000);
        fakes::set("DEC", u64::from(u32::MAX));
        for (name, value) in REGISTERS.iter().zip([u64::from(u32::MAX), 0, 0x1003, 0x1e, 1 << 7]) {
            fakes::set(name, value);
        }
        fakes::set("OsState", 0xff_0000);
        fakes::set("OsAcknowledge", 0x8004);
        let strikes = Strikes::default();
        for vector in [EXTERNAL, DECREMENTER, DOORBELL, TRACE, PERFORMANCE_MONITOR] {
            assert!(strikes.keep_away(vector, 0));
        }
        assert!(strikes.keep_away(DATA_STORAGE, WATCHPOINT));
        assert_eq!(REGISTERS.map(fakes::get), [FAR, 0, 0, 0, FROZEN]);
        fakes::set("TB", 1100);
        fakes::take_log();
        strikes.put_back();
        assert_eq!(REGISTERS.map(fakes::get), [-101i64 as u64, 1, 0x1003, 0x1e, 1 << 7]);
        assert!(fakes::take_log().contains(&Access::Write("OsPriority", 0xff)));
        strikes.put_back();
        assert_eq!(fakes::take_log(), [], "once");
    }

    #[test]
    fn faults_are_the_services_own() {
        fakes::reset();
        let strikes = Strikes::default();
        for vector in (0..0x1000).step_by(0x20) {
            let own = matches!(vector, EXTERNAL | DECREMENTER | DOORBELL | TRACE | PERFORMANCE_MONITOR);
            assert_eq!(strikes.keep_away(vector, 0), own, "{vector:#x}");
        }
    }
}
