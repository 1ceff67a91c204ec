// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Date and time of day as the firmware's clock has them (LoPAPR 7.3.4).

use turnstile_devices::calendar::{date, days};

const SECOND: u64 = 1_000_000_000;
const DAY: u64 = 86_400;

/// A date and a time of day, in the order of the firmware's arguments: year, month, day, hour, minute, second, nanosecond.
pub type Fields = [u32; 7];

/// Returns the date and time of so many nanoseconds since 1970.
#[must_use]
pub fn fields(nanoseconds: u64) -> Fields {
    let seconds = nanoseconds / SECOND;
    let (year, month, day) = date(seconds / DAY);
    let rest = (seconds % DAY) as u32;
    let nanosecond = (nanoseconds % SECOND) as u32;
    [year as u32, month.into(), day.into(), rest / 3600, rest / 60 % 60, rest % 60, nanosecond]
}

/// Returns the nanoseconds since 1970; `None` if it is no date and time that 64 bits can count to.
#[must_use]
pub fn nanoseconds([year, month, day, hour, minute, second, nanosecond]: Fields) -> Option<u64> {
    let is_date = (1970..2500).contains(&year) && (1..=12).contains(&month) && (1..=31).contains(&day);
    if !is_date || hour > 23 || minute > 59 || second > 59 || u64::from(nanosecond) >= SECOND {
        return None;
    }
    let of_day = u64::from((hour * 60 + minute) * 60 + second);
    let seconds = days(year.into(), month as u8, day as u8) * DAY + of_day;
    Some(seconds * SECOND + u64::from(nanosecond))
}
