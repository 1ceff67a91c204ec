// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Dates and times of day: of the Gregorian calendar, from 1970 on.

use crate::calendar::{date, days};

/// A date and a time of day. Fields hold whatever a guest puts there; [`Calendar::seconds`] takes them as they come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Calendar {
    pub(super) second: u8,
    pub(super) minute: u8,
    pub(super) hour: u8,
    /// 1 is Sunday.
    week_day: u8,
    day: u8,
    month: u8,
    year: u8,
    century: u8,
}

const DAY: u64 = 86_400;

impl Calendar {
    /// Returns the date and time of so many seconds since 1970.
    pub(super) fn of(seconds: u64) -> Self {
        let days = seconds / DAY;
        let (year, month, day) = date(days);
        let rest = (seconds % DAY) as u32;
        Self {
            second: (rest % 60) as u8,
            minute: (rest / 60 % 60) as u8,
            hour: (rest / 3600) as u8,
            // 1970 began on a Thursday.
            week_day: ((days + 4) % 7) as u8 + 1,
            day,
            month,
            year: (year % 100) as u8,
            century: (year / 100 % 100) as u8,
        }
    }

    /// Returns the seconds since 1970; zero for what is before.
    pub(super) fn seconds(&self) -> u64 {
        let year = u64::from(self.century) * 100 + u64::from(self.year);
        days(year, self.month, self.day) * DAY + u64::from(self.second_of_day())
    }

    /// Returns the second of the day.
    pub(super) fn second_of_day(&self) -> u32 {
        (u32::from(self.hour) * 60 + u32::from(self.minute)) * 60 + u32::from(self.second)
    }

    /// Returns the field of a byte of the clock.
    pub(super) fn field(&self, index: usize) -> u8 {
        match index {
            0 => self.second,
            2 => self.minute,
            4 => self.hour,
            6 => self.week_day,
            7 => self.day,
            8 => self.month,
            9 => self.year,
            _ => self.century,
        }
    }

    /// Sets the field of a byte of the clock.
    pub(super) fn set_field(&mut self, index: usize, value: u8) {
        let field = match index {
            0 => &mut self.second,
            2 => &mut self.minute,
            4 => &mut self.hour,
            6 => &mut self.week_day,
            7 => &mut self.day,
            8 => &mut self.month,
            9 => &mut self.year,
            _ => &mut self.century,
        };
        *field = value;
    }
}

/// Returns how many seconds after `second` of a day an alarm of hour, minute and second matches: `None` for those that match
/// anything. `None` if it never does.
pub(super) fn until(second: u32, [hour, minute, at]: [Option<u8>; 3]) -> Option<u32> {
    let matches = |field: Option<u8>, value: u32| field.is_none_or(|field| u32::from(field) == value);
    // The seconds of a matching minute: this minute's rest, or another one's first.
    let first = |from: u32| match at {
        Some(at) => (u32::from(at) < 60 && from <= u32::from(at)).then(|| u32::from(at)),
        None => Some(from),
    };
    (0..=24 * 60).find_map(|minutes| {
        let of_day = (second / 60 + minutes) % (24 * 60);
        if !matches(hour, of_day / 60) || !matches(minute, of_day % 60) {
            return None;
        }
        let from = if minutes == 0 { second % 60 } else { 0 };
        first(from).map(|at| minutes * 60 + at - second % 60)
    })
}
