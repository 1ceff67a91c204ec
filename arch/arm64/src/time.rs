// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Wall-clock time: the machine's PL031 (DDI 0224) at boot, the physical counter from then on. And deadlines of
//! the hypervisor's own, by the EL2 physical timer of the CPU that sets them: for devices, and for the run queue.

use core::cell::Cell;
use core::sync::atomic::{AtomicU64, Ordering};
use turnstile_arch_common::mmio::Registers;

use crate::cpu::{self, regs};

/// Seconds since 1970 when the physical counter was zero.
static BASE: AtomicU64 = AtomicU64::new(0);

/// The physical counter.
pub fn ticks() -> u64 {
    regs::CNTPCT_EL0.read()
}

fn uptime() -> u64 {
    regs::CNTPCT_EL0.read() / regs::CNTFRQ_EL0.read().max(1)
}

/// Takes the time from the clock whose data register is at offset 0 of `rtc`.
pub fn set_from(rtc: Registers) {
    BASE.store(u64::from(rtc.read32(0)).wrapping_sub(uptime()), Ordering::Relaxed);
}

/// Seconds since 1970; since power-on, if the machine has no clock.
pub fn seconds() -> u64 {
    BASE.load(Ordering::Relaxed).wrapping_add(uptime())
}

/// No deadline.
const NEVER: u64 = u64::MAX;

/// What the EL2 physical timer of a CPU is to ring for, as values of the physical counter.
#[derive(Debug)]
pub struct Deadlines {
    devices: Cell<u64>,
    schedule: Cell<u64>,
    /// What the timer is set to.
    set: Cell<u64>,
}

// SAFETY: each CPU touches only its own, which the functions of this module reach through `cpu::this`; interrupts are
// masked at EL2.
unsafe impl Sync for Deadlines {}
// SAFETY: as above; before its CPU starts, the boot CPU alone has it.
unsafe impl Send for Deadlines {}

impl Deadlines {
    /// Makes those of a CPU that has not started: none.
    pub const fn new() -> Self {
        Self { devices: Cell::new(NEVER), schedule: Cell::new(NEVER), set: Cell::new(NEVER) }
    }

    /// Sets the timer to the earlier one.
    fn program(&self) {
        let at = self.devices.get().min(self.schedule.get());
        if at == self.set.replace(at) {
            return;
        }
        // SAFETY: the hypervisor's own timer; its interrupt is masked while EL2 runs.
        unsafe {
            if at == NEVER {
                regs::CNTHP_CTL_EL2.write(0);
            } else {
                regs::CNTHP_CVAL_EL2.write(at);
                regs::CNTHP_CTL_EL2.write(1);
            }
        }
    }
}

impl Default for Deadlines {
    fn default() -> Self {
        Self::new()
    }
}

/// Returns what the physical counter shows in so many seconds.
pub fn after(seconds: u64) -> u64 {
    let ticks = seconds.saturating_mul(regs::CNTFRQ_EL0.read());
    regs::CNTPCT_EL0.read().saturating_add(ticks)
}

/// Lets [`crate::vm::Monitor::deadline`] be called on this CPU when the physical counter shows `at`, or before.
pub fn set_deadline(at: u64) {
    let deadlines = cpu::this().slot::<Deadlines>();
    deadlines.devices.set(deadlines.devices.get().min(at));
    deadlines.program();
    cpu::isb();
}

/// Sets when this CPU has to look at its run queue: instead of when it was to before.
pub fn set_schedule(at: Option<u64>) {
    let deadlines = cpu::this().slot::<Deadlines>();
    deadlines.schedule.set(at.unwrap_or(NEVER));
    deadlines.program();
}

/// Ends the deadlines that have passed, so that the timer's interrupt line falls. True if devices wait for one of them.
pub(crate) fn end_deadlines() -> bool {
    let deadlines = cpu::this().slot::<Deadlines>();
    let now = regs::CNTPCT_EL0.read();
    if deadlines.schedule.get() <= now {
        deadlines.schedule.set(NEVER);
    }
    let devices = deadlines.devices.get() <= now;
    if devices {
        deadlines.devices.set(NEVER);
    }
    deadlines.program();
    cpu::isb();
    devices
}
