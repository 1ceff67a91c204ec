// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The EL1 timers of a vCPU that is in no CPU.

use crate::cpu::mode::Mode;
use crate::cpu::regs::guest;
use crate::irq::lines::{ENABLE, IMASK, ISTATUS, fires};

/// The EL1 timers of a vCPU.
#[derive(Debug, Default)]
pub struct Timers {
    virtual_control: u64,
    virtual_value: u64,
    physical_control: u64,
    physical_value: u64,
}

impl Timers {
    /// Stores the timers and silences them: whoever is next on this CPU has others.
    #[inline(always)] // Straight code, once for each mode.
    pub fn put<M: Mode>(&mut self) {
        (self.virtual_control, self.virtual_value) =
            (guest::CNTV_CTL.read::<M>(), guest::CNTV_CVAL.read::<M>());
        (self.physical_control, self.physical_value) =
            (guest::CNTP_CTL.read::<M>(), guest::CNTP_CVAL.read::<M>());
        // SAFETY: timers of the guest, which does not run.
        unsafe {
            guest::CNTV_CTL.write::<M>(0);
            guest::CNTP_CTL.write::<M>(0);
        }
    }

    /// Loads the timers. What they are set to comes first: a line must not rise for what another vCPU waits for.
    ///
    /// # Safety
    /// They are those of the vCPU that becomes resident.
    #[inline(always)] // As above.
    pub unsafe fn load<M: Mode>(&self) {
        // In pairs: two are loaded with one instruction.
        let (virtual_control, virtual_value) = (self.virtual_control, self.virtual_value);
        let (physical_control, physical_value) = (self.physical_control, self.physical_value);
        // SAFETY: the caller's promise: the guest gets back what it had.
        unsafe {
            guest::CNTV_CVAL.write::<M>(virtual_value);
            guest::CNTV_CTL.write::<M>(virtual_control);
            guest::CNTP_CVAL.write::<M>(physical_value);
            guest::CNTP_CTL.write::<M>(physical_control);
        }
    }

    /// Returns which timers (virtual, physical) would have their lines high at `now`, a value of the physical counter.
    pub fn lines(&self, now: u64, cntvoff: u64) -> [bool; 2] {
        let high = |control: u64, value: u64, count: u64| {
            let status = if count >= value { ISTATUS } else { 0 };
            fires(control & !ISTATUS | status)
        };
        [
            high(self.virtual_control, self.virtual_value, now.wrapping_sub(cntvoff)),
            high(self.physical_control, self.physical_value, now),
        ]
    }

    /// Returns when the first of the timers in `waited_for` (virtual, physical) will interrupt, as a value of the
    /// physical counter.
    pub fn deadline(&self, cntvoff: u64, [virtual_one, physical_one]: [bool; 2]) -> Option<u64> {
        let armed = |control: u64| control & (ENABLE | IMASK) == ENABLE;
        let virtual_at = (virtual_one && armed(self.virtual_control))
            .then(|| self.virtual_value.checked_add(cntvoff))
            .flatten();
        let physical_at = (physical_one && armed(self.physical_control)).then_some(self.physical_value);
        match (virtual_at, physical_at) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_high_from_the_moment_on_that_its_timer_is_set_to() {
        let timers =
            Timers { virtual_control: 1, virtual_value: 100, physical_control: 5, physical_value: 1050 };
        assert_eq!(timers.lines(1049, 1000), [false, false]);
        assert_eq!(timers.lines(1050, 1000), [false, true]);
        assert_eq!(timers.lines(1100, 1000), [true, true]);
        let masked = Timers { virtual_control: 7, physical_control: 4, ..timers };
        assert_eq!(masked.lines(2000, 1000), [false, false]);
        let controls = [0, 1, 2, 3, 4, 5, 6, 7];
        assert_eq!(controls.map(fires), [false, false, false, false, false, true, false, false]);
    }

    #[test]
    fn a_deadline_is_that_of_an_armed_timer_that_is_waited_for() {
        let timers =
            Timers { virtual_control: 1, virtual_value: 100, physical_control: 1, physical_value: 1050 };
        assert_eq!(timers.deadline(1000, [true, true]), Some(1050));
        assert_eq!(timers.deadline(1000, [true, false]), Some(1100));
        assert_eq!(timers.deadline(1000, [false, false]), None);
        assert_eq!(timers.deadline(u64::MAX, [true, false]), None, "never, if that is beyond the counter");
        let masked = Timers { virtual_control: 3, physical_control: 0, ..timers };
        assert_eq!(masked.deadline(1000, [true, true]), None);
    }
}
