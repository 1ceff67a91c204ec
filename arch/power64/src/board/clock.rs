// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The machine's real-time clock, which the firmware reads (OPAL_RTC_READ).

use super::opal::{self, Token};
use crate::cpu;

/// Reads the seconds since 1970, zero if what it shows is no time. `None` if the machine has no clock.
pub fn read() -> Option<u64> {
    /// The firmware asks the clock, and answers that it is busy meanwhile (OPAL_BUSY_EVENT, OPAL_BUSY).
    const PATIENCE: u32 = 1_000_000;
    let (mut date, mut time) = (0u32, 0u64);
    for _ in 0..PATIENCE {
        // SAFETY: it writes the date and the time.
        match unsafe { opal::call(Token::RtcRead, &[&raw mut date as u64, &raw mut time as u64]) } {
            Ok(_) => return Some(seconds_of(u32::from_be(date), u64::from_be(time)).unwrap_or(0)),
            Err(opal::Error(-12 | -2)) => {
                opal::poll();
            }
            Err(_) => return None,
        }
        cpu::relax();
    }
    None
}

/// Returns a number that is written in decimal, four bits a digit.
fn decimal(digits: u32) -> Option<u64> {
    (0..8)
        .rev()
        .map(|digit| digits >> (4 * digit) & 0xf)
        .try_fold(0, |number, digit| (digit < 10).then_some(number * 10 + u64::from(digit)))
}

/// Returns the seconds since 1970 of a date and a time as OPAL_RTC_READ has them: year, month and day; hour, minute and
/// second in the upper bytes of the time.
fn seconds_of(date: u32, time: u64) -> Option<u64> {
    let year = decimal(date >> 16).filter(|year| (1970..=9999).contains(year))?;
    let month = decimal(date >> 8 & 0xff).filter(|month| (1..=12).contains(month))?;
    let day = decimal(date & 0xff).filter(|day| (1..=31).contains(day))?;
    let [hour, minute, second] = [56, 48, 40].map(|shift| decimal((time >> shift & 0xff) as u32));
    // Years begin in March: then the leap day is the last one.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = 365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 1;
    /// Days from March 1 of the year 0 to January 1, 1970.
    const EPOCH: u64 = 719_468;
    Some(((days - EPOCH) * 24 + hour?) * 3600 + minute? * 60 + second?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_firmwares_clock_is_read() {
        assert_eq!(seconds_of(0x1970_0101, 0), Some(0));
        assert_eq!(seconds_of(0x2024_0229, 0x2359_5800_0000_0000), Some(1_709_251_198));
        assert_eq!(seconds_of(0x2000_0301, 0x0000_0100_0000_0000), Some(951_868_801));
        assert_eq!(seconds_of(0x2024_1301, 0), None);
        assert_eq!(seconds_of(0x20aa_0101, 0), None);
    }
}
