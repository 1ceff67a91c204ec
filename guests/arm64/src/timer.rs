// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The architected timers (Arm ARM D12).

pub use turnstile_guests_common::clock::{microseconds, ticks, wait};

use turnstile_guests_common::clock::Clock;

use crate::platform::platform;
use crate::{cpu, read_sysreg, write_sysreg};

/// Which of the two timers of EL1.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Timer {
    /// CNTV_*.
    Virtual,
    /// CNTP_*.
    Physical,
}

/// CTL.ENABLE.
pub const ENABLE: u64 = 1 << 0;
/// CTL.IMASK.
pub const IMASK: u64 = 1 << 1;
/// CTL.ISTATUS.
pub const ISTATUS: u64 = 1 << 2;

impl Timer {
    /// Returns the timer's interrupt.
    pub fn intid(self) -> u32 {
        match self {
            Timer::Virtual => platform().virtual_timer,
            Timer::Physical => platform().physical_timer,
        }
    }

    /// Returns the timer's counter.
    pub fn now(self) -> u64 {
        cpu::synchronize();
        match self {
            Timer::Virtual => read_sysreg!("cntvct_el0"),
            Timer::Physical => read_sysreg!("cntpct_el0"),
        }
    }

    /// Sets the compare value.
    pub fn set_compare(self, value: u64) {
        match self {
            Timer::Virtual => write_sysreg!("cntv_cval_el0", value),
            Timer::Physical => write_sysreg!("cntp_cval_el0", value),
        }
    }

    /// Returns the compare value.
    pub fn compare(self) -> u64 {
        match self {
            Timer::Virtual => read_sysreg!("cntv_cval_el0"),
            Timer::Physical => read_sysreg!("cntp_cval_el0"),
        }
    }

    /// Sets the timer value: the compare value as a signed distance from now.
    pub fn set_distance(self, value: i32) {
        let value = u64::from(value as u32);
        match self {
            Timer::Virtual => write_sysreg!("cntv_tval_el0", value),
            Timer::Physical => write_sysreg!("cntp_tval_el0", value),
        }
    }

    /// Sets the control register.
    pub fn set_control(self, value: u64) {
        match self {
            Timer::Virtual => write_sysreg!("cntv_ctl_el0", value),
            Timer::Physical => write_sysreg!("cntp_ctl_el0", value),
        }
    }

    /// Returns the control register.
    pub fn control(self) -> u64 {
        cpu::synchronize();
        match self {
            Timer::Virtual => read_sysreg!("cntv_ctl_el0"),
            Timer::Physical => read_sysreg!("cntp_ctl_el0"),
        }
    }
}

/// Returns the virtual count.
pub fn now() -> u64 {
    Timer::Virtual.now()
}

/// Returns the counter's frequency in hertz.
pub fn frequency() -> u64 {
    read_sysreg!("cntfrq_el0")
}

/// Returns the virtual count as a clock.
pub fn clock() -> Clock {
    Clock { now, frequency: frequency(), relax: cpu::relax }
}

/// Spins for a time.
pub fn delay(microseconds: u64) {
    wait(microseconds, || false);
}

/// Waits until `condition` holds or the time is over, looking only every 10 ms and sleeping by WFI between: for
/// long times, which spinning makes slow in an emulator that counts instructions. Returns whether it holds.
/// Interrupts are masked; the virtual timer is used and left off.
pub fn wait_asleep(microseconds: u64, mut condition: impl FnMut() -> bool) -> bool {
    let end = now() + ticks(microseconds);
    let mut holds = condition();
    while !holds && now() < end {
        let due = now() + ticks(10_000);
        Timer::Virtual.set_compare(due);
        Timer::Virtual.set_control(1);
        while now() < due {
            cpu::wfi();
        }
        Timer::Virtual.set_control(0);
        // It may be offered still, although its condition is gone: it is taken, so that it hides nothing.
        if crate::gic::highest_pending() == Timer::Virtual.intid() {
            crate::gic::end(crate::gic::acknowledge());
        }
        holds = condition();
    }
    holds
}
