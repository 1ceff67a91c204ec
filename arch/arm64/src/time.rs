// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Wall-clock time: the machine's PL031 (DDI 0224) at boot, the physical counter from then on. And deadlines of
//! the hypervisor's own, by the EL2 physical timer of the CPU that sets them: for devices, and for the run queue.

use turnstile_arch_common::mmio::Registers;
use turnstile_arch_common::time::{Deadline, NEVER, Uptime, WallClock};

use crate::cpu::{self, PerCpu, regs};

static CLOCK: WallClock = WallClock::new();

/// The physical counter.
pub fn ticks() -> u64 {
    regs::CNTPCT_EL0.read()
}

/// Its ticks in a second.
pub fn frequency() -> u64 {
    regs::CNTFRQ_EL0.read().max(1)
}

/// Returns so many nanoseconds as ticks of the physical counter.
pub fn in_ticks(nanoseconds: u64) -> u64 {
    turnstile_arch_common::time::ticks(nanoseconds, frequency())
}

/// How long the machine has been on.
#[inline(always)] // Two loads.
pub fn uptime() -> Uptime {
    Uptime { ticks: ticks(), frequency: frequency() }
}

/// Takes the time from the clock whose data register is at offset 0 of `rtc`.
pub fn set_from(rtc: Registers) {
    CLOCK.set(rtc.read32(0).into(), uptime());
}

/// Seconds since 1970; since power-on, if the machine has no clock.
pub fn seconds() -> u64 {
    CLOCK.seconds(uptime())
}

/// What the EL2 physical timer of a CPU is to ring for, as values of the physical counter.
#[derive(Debug)]
pub struct Deadlines {
    devices: Deadline,
    schedule: Deadline,
    /// What the timer is set to.
    set: Deadline,
}

impl Deadlines {
    /// Makes those of a CPU that has not started: none.
    pub const fn new() -> Self {
        // SAFETY: each CPU touches only its own, which the functions of this module reach through `cpu::this`; interrupts are
        // masked at EL2.
        unsafe {
            Self { devices: Deadline::new(NEVER), schedule: Deadline::new(NEVER), set: Deadline::new(NEVER) }
        }
    }

    /// Sets the timer to the earlier one.
    fn program(&self) {
        let at = self.devices.at().min(self.schedule.at());
        if !self.set.changes(at) {
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
    deadlines.devices.advance(at);
    deadlines.program();
    cpu::isb();
}

/// Has this CPU, `cpu`, interrupted when the physical counter shows `at`, or before. What was asked for earlier is not taken back:
/// who asks often does so at nearly no cost, and once in a while there is an interrupt, and a look at the devices, without need.
#[inline(always)] // Of each entry to a service: a load and a comparison, usually.
pub(crate) fn interrupt_by(cpu: &PerCpu, at: u64) {
    #[cold]
    fn advance(at: u64) {
        set_deadline(at);
    }
    if cpu.slot::<Deadlines>().set.at() > at {
        advance(at);
    }
}

/// Sets when this CPU has to look at its run queue: instead of when it was to before.
pub fn set_schedule(at: Option<u64>) {
    let deadlines = cpu::this().slot::<Deadlines>();
    deadlines.schedule.set(at);
    deadlines.program();
}

/// Ends the deadlines that have passed, so that the timer's interrupt line falls. True if devices wait for one of them.
pub(crate) fn end_deadlines() -> bool {
    let deadlines = cpu::this().slot::<Deadlines>();
    let now = regs::CNTPCT_EL0.read();
    deadlines.schedule.end(now);
    let devices = deadlines.devices.end(now);
    deadlines.program();
    cpu::isb();
    devices
}
