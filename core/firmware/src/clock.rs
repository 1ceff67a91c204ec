// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The date and time in the registers of a PC's real-time clock (MC146818 data sheet), as seconds.

/// Registers that hold the date and time: seconds, minutes, hours, day of the month, month, year.
pub const REGISTERS: [u8; 6] = [0x00, 0x02, 0x04, 0x07, 0x08, 0x09];
/// Register A, whose highest bit says that the others are about to change.
pub const REGISTER_A: u8 = 0x0a;
/// Register B, which says how numbers are written.
pub const REGISTER_B: u8 = 0x0b;

const BINARY: u8 = 1 << 2;
const HOURS_24: u8 = 1 << 1;
const AFTERNOON: u8 = 1 << 7;

/// Seconds since 1970 for the values of [`REGISTERS`], of [`REGISTER_B`], and of the register of the century if there is
/// one. `None` if they are not a date.
pub fn seconds(values: [u8; 6], mode: u8, century: Option<u8>) -> Option<u64> {
    let number = |value: u8| -> Option<u64> {
        if mode & BINARY != 0 {
            return Some(value.into());
        }
        let (tens, ones) = (value >> 4, value & 15);
        (tens < 10 && ones < 10).then(|| u64::from(tens * 10 + ones))
    };
    let [second, minute, hour, day, month, year] = values;
    let (second, minute, day, month, year) =
        (number(second)?, number(minute)?, number(day)?, number(month)?, number(year)?);
    let hour = match mode & HOURS_24 {
        0 => number(hour & !AFTERNOON)? % 12 + if hour & AFTERNOON != 0 { 12 } else { 0 },
        _ => number(hour)?,
    };
    // Without a register for it, the century is the one that this code was written in.
    let century = century.and_then(number).filter(|century| (19..=99).contains(century)).unwrap_or(20);
    let year = century * 100 + year;
    if !(1970..=9999).contains(&year) || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    if hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    Some(((days(year, month, day) * 24 + hour) * 60 + minute) * 60 + second)
}

/// Days from 1970 to a date of the Gregorian calendar.
fn days(year: u64, month: u64, day: u64) -> u64 {
    // Years begin in March here, so that leap days end them.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let before_month = (153 * month + 2) / 5;
    let leap_days = year / 4 - year / 100 + year / 400;
    /// The same count for the first of January 1970.
    const EPOCH: u64 = 1969 * 365 + 1969 / 4 - 1969 / 100 + 1969 / 400 + 306;
    year * 365 + leap_days + before_month + day - 1 - EPOCH
}

#[cfg(test)]
mod tests {
    use super::*;

    const DECIMAL_24: u8 = HOURS_24;

    #[test]
    fn dates_are_those_of_other_clocks() {
        let at = |values, mode, century| seconds(values, mode, century);
        assert_eq!(at([0, 0, 0, 1, 1, 0x70], DECIMAL_24, Some(0x19)), Some(0));
        assert_eq!(at([0, 0, 0, 1, 1, 0x24], DECIMAL_24, Some(0x20)), Some(1_704_067_200));
        assert_eq!(at([0x59, 0x59, 0x23, 0x29, 2, 0x24], DECIMAL_24, None), Some(1_709_251_199));
        assert_eq!(at([7, 46, 1, 9, 9, 1], HOURS_24 | BINARY, Some(20)), Some(1_000_000_000 - 33));
        // Twelve at night, and at noon, on a clock of twelve hours.
        assert_eq!(at([0, 0, 0x12, 1, 1, 0x70], 0, Some(0x19)), Some(0));
        assert_eq!(at([0, 0, 0x92, 1, 1, 0x70], 0, Some(0x19)), Some(12 * 3600));
    }

    #[test]
    fn what_is_no_date_is_none() {
        assert_eq!(seconds([0xff; 6], 0xff, None), None);
        assert_eq!(seconds([0, 0, 0, 1, 0x13, 0x24], DECIMAL_24, None), None);
        assert_eq!(seconds([0, 0x60, 0, 1, 1, 0x24], DECIMAL_24, None), None);
        assert_eq!(seconds([0x0a, 0, 0, 1, 1, 0x24], DECIMAL_24, None), None);
    }
}
