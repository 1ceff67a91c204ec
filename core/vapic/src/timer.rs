// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The APIC timer as arithmetic over the guest's time stamp counter (APM vol. 2, 16.4.1; SDM vol. 3A, "APIC Timer"). Its
//! clock is the time stamp counter, divided as the guest says.

use core::mem;

/// No deadline.
pub const NEVER: u64 = u64::MAX;

/// The least number of ticks between two interrupts of a periodic timer: more often it would fire while its last interrupt
/// is being taken, and the vCPU would get nowhere. The count that the guest reads knows nothing of it.
pub(crate) const LEAST_PERIOD: u64 = 20_000;

/// The modes of the timer's LVT entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TimerMode {
    OneShot,
    Periodic,
    TscDeadline,
}

impl TimerMode {
    pub(crate) fn of(entry: u32) -> Self {
        match entry >> 17 & 3 {
            0 => Self::OneShot,
            1 => Self::Periodic,
            // 11 is reserved: an x2APIC refuses it.
            _ => Self::TscDeadline,
        }
    }
}

/// The timer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timer {
    mode: TimerMode,
    initial: u32,
    /// What the clock is divided by, as a power of two.
    shift: u32,
    /// The count had the value `count` at `start`.
    start: u64,
    count: u32,
    /// When it expires next.
    deadline: u64,
    /// The same while it rests; [`NEVER`] if it does not.
    resting: u64,
}

impl Timer {
    pub(crate) const STOPPED: Self = Self {
        mode: TimerMode::OneShot,
        initial: 0,
        shift: 1,
        start: 0,
        count: 0,
        deadline: NEVER,
        resting: NEVER,
    };

    /// Returns when it expires next.
    pub(crate) fn deadline(&self) -> u64 {
        self.deadline
    }

    /// Returns what the guest wrote to the initial count register.
    pub(crate) fn initial(&self) -> u32 {
        self.initial
    }

    /// Reads the current count register.
    pub(crate) fn current(&self, now: u64) -> u32 {
        let elapsed = now.saturating_sub(self.start) >> self.shift;
        match u64::from(self.count).checked_sub(elapsed) {
            Some(left @ 1..) => left as u32,
            // A count that has ended begins again if it has ended as a periodic one: not because it has become one since.
            // The other register is never zero then. Checked all the same: the light tier has no way into a panic.
            _ if self.mode == TimerMode::Periodic && self.count != 0 && self.initial != 0 => {
                let into = (elapsed - u64::from(self.count)) % u64::from(self.initial);
                self.initial - into as u32
            }
            _ => 0,
        }
    }

    /// Writes the initial count register: the timer starts, or stops with zero. Without effect in TSC-deadline mode.
    pub(crate) fn set_initial(&mut self, now: u64, initial: u32) {
        if self.mode != TimerMode::TscDeadline {
            self.initial = initial;
            self.count_from(now, initial);
        }
    }

    /// Writes the divide configuration register: the count goes on from where it is.
    pub(crate) fn set_divide(&mut self, now: u64, divide: u32) {
        let left = self.current(now);
        // Bits 3, 1 and 0 say 2, 4 … 128, 1.
        self.shift = ((divide >> 1 & 4 | divide & 3) + 1) & 7;
        if self.mode != TimerMode::TscDeadline && self.deadline != NEVER {
            self.count_from(now, left);
        }
    }

    /// Takes over the mode of the LVT entry. Changes to and from TSC-deadline stop the timer.
    pub(crate) fn set_mode(&mut self, now: u64, mode: TimerMode) {
        if mode == self.mode {
            return;
        }
        let left = self.current(now);
        if mode == TimerMode::TscDeadline || self.mode == TimerMode::TscDeadline {
            *self = Self { mode, shift: self.shift, ..Self::STOPPED };
        } else {
            self.mode = mode;
            self.count_from(now, left);
        }
    }

    /// Reads the deadline of TSC-deadline mode; zero if there is none, or in another mode.
    pub(crate) fn tsc_deadline(&self) -> u64 {
        if self.mode == TimerMode::TscDeadline && self.deadline != NEVER { self.deadline } else { 0 }
    }

    /// Writes the deadline of TSC-deadline mode, where zero stops the timer. Ignored in other modes.
    pub(crate) fn set_tsc_deadline(&mut self, deadline: u64) {
        if self.mode == TimerMode::TscDeadline {
            self.deadline = if deadline == 0 { NEVER } else { deadline };
        }
    }

    /// The guest has moved its time stamp counter by `by`: counts do not feel that, a deadline does.
    pub(crate) fn shift_clock(&mut self, by: u64) {
        self.start = self.start.wrapping_add(by);
        if self.mode != TimerMode::TscDeadline && self.deadline != NEVER {
            self.deadline = self.deadline.wrapping_add(by);
        }
    }

    /// Says whether it has expired since it was asked last, and goes on to the next time. Expiries that nobody
    /// asked about are one.
    pub(crate) fn expire(&mut self, now: u64) -> bool {
        if now < self.deadline {
            return false;
        }
        self.deadline = match self.mode {
            TimerMode::Periodic if self.initial != 0 => {
                let period = (u64::from(self.initial) << self.shift).max(LEAST_PERIOD);
                let missed = (now - self.deadline) / period;
                self.deadline.saturating_add((missed + 1).saturating_mul(period))
            }
            _ => NEVER,
        };
        true
    }

    /// Expires no more until [`Timer::rise`]. The count goes on. Nothing else is asked of it meanwhile.
    pub(crate) fn rest(&mut self) {
        if self.resting == NEVER {
            self.resting = mem::replace(&mut self.deadline, NEVER);
        }
    }

    /// Expires as if it had not rested, if it has.
    pub(crate) fn rise(&mut self) {
        if self.resting != NEVER {
            self.deadline = mem::replace(&mut self.resting, NEVER);
        }
    }

    /// Expires no more until [`Timer::sound`] gets what this returns, whether or not it rests.
    pub(crate) fn silence(&mut self) -> u64 {
        mem::replace(&mut self.deadline, NEVER)
    }

    /// Expires again as if it had not been silent.
    pub(crate) fn sound(&mut self, deadline: u64) {
        self.deadline = deadline;
    }

    fn count_from(&mut self, now: u64, count: u32) {
        self.start = now;
        self.count = count;
        self.deadline = match count {
            0 => NEVER,
            _ => now.saturating_add(u64::from(count) << self.shift),
        };
    }
}
