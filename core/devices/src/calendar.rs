// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Dates of the Gregorian calendar, counted in days from 1970 on.

/// Days from 0000-03-01 to 1970-01-01.
const EPOCH: u64 = 719_468;
/// Days of 400 years.
const ERA: u64 = 146_097;

/// Returns year, month (1 to 12) and day (1 to 31) of so many days since 1970-01-01.
pub fn date(days: u64) -> (u64, u8, u8) {
    let days = days + EPOCH;
    let (era, of_era) = (days / ERA, days % ERA);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / (ERA - 1)) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = (of_year - (153 * month + 2) / 5 + 1) as u8;
    let year = year + era * 400 + u64::from(month >= 10);
    (year, (if month < 10 { month + 3 } else { month - 9 }) as u8, day)
}

/// Returns the days since 1970-01-01 of a date; zero for what is before. Months and days that there are not count as the
/// nearest that there are, or go on into the next month.
pub fn days(year: u64, month: u8, day: u8) -> u64 {
    // Years that begin in March: the leap day is the last.
    let month = u64::from(month.clamp(1, 12));
    let (year, month) = if month > 2 { (year, month - 3) } else { (year.saturating_sub(1), month + 9) };
    let of_year = (153 * month + 2) / 5 + u64::from(day.max(1)) - 1;
    (year * 365 + year / 4 - year / 100 + year / 400 + of_year).saturating_sub(EPOCH)
}
