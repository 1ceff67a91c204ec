// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The real-time clock and the battery-backed memory of a PC (Motorola MC146818A; registers of the PC/AT).
//!
//! The time of day comes with each call, in nanoseconds since 1970, so no call is needed in between.
//! [`Cmos::deadline`] says when the interrupt line may rise by itself.

mod calendar;

use calendar::Calendar;

const SECOND: u64 = 1_000_000_000;

const SECONDS: usize = 0x00;
const SECONDS_ALARM: usize = 0x01;
const MINUTES_ALARM: usize = 0x03;
const HOURS_ALARM: usize = 0x05;
const A: usize = 0x0a;
const B: usize = 0x0b;
const C: usize = 0x0c;
const D: usize = 0x0d;
/// The shutdown code: why the firmware finds itself at its first instruction (IBM PC/AT Technical Reference, "CMOS RAM").
const SHUTDOWN: usize = 0x0f;
/// The shutdown code that lets the firmware jump to the address at 40h:67h.
const RESUME: u8 = 0x0a;
/// The century, as FADT names it.
const CENTURY: usize = 0x32;

/// A: an update is about to happen.
const UPDATE: u8 = 1 << 7;
/// A: the divider chain runs, and the periodic rate is 1024 Hz.
const A_RESET: u8 = 0x26;
const B_SET: u8 = 1 << 7;
const B_BINARY: u8 = 1 << 2;
const B_24_HOURS: u8 = 1 << 1;
/// C, and the enables in B: periodic, alarm, update ended.
const PERIODIC: u8 = 1 << 6;
const ALARM: u8 = 1 << 5;
const ENDED: u8 = 1 << 4;
/// C: one of the three is enabled and set.
const REQUEST: u8 = 1 << 7;
/// D: the battery is good.
const VALID: u8 = 1 << 7;
/// How long before an update the time is not to be read, in nanoseconds.
const WARNING: u64 = 244_000;
/// The alarm's bytes from here on match anything.
const ANY: u8 = 0xc0;

/// The clock and memory behind ports 0x70 and 0x71.
#[derive(Clone, Debug)]
pub struct Cmos {
    index: u8,
    bytes: [u8; 128],
    /// What to add to the caller's seconds.
    offset: i64,
    /// The time of day as it was set while the clock stands (B.SET).
    standing: Option<Calendar>,
    flags: u8,
    /// Up to which time the flags were looked at; zero before the first call.
    checked: u64,
}

impl Cmos {
    /// The port of the index. Its bit 7 masks NMIs.
    pub const INDEX: u16 = 0x70;
    /// The port of the data.
    pub const DATA: u16 = 0x71;

    /// Makes the clock of a machine with `memory` bytes of RAM below 4 GiB, and `high` above.
    pub fn new(memory: u64, high: u64) -> Self {
        let mut bytes = [0; 128];
        bytes[A] = A_RESET;
        bytes[B] = B_24_HOURS;
        // Equipment: no disk drives, a coprocessor.
        bytes[0x14] = 1 << 1;
        let mut put = |at: usize, size: usize, value: u64| {
            let value = value.min((1 << (8 * size)) - 1).to_le_bytes();
            bytes[at..at + size].copy_from_slice(&value[..size]);
        };
        put(0x15, 2, 640);
        let above_1m = memory.saturating_sub(1 << 20) >> 10;
        put(0x17, 2, above_1m);
        put(0x30, 2, above_1m);
        put(0x34, 2, memory.saturating_sub(16 << 20) >> 16);
        put(0x5b, 3, high >> 16);
        Self { index: 0, bytes, offset: 0, standing: None, flags: 0, checked: 0 }
    }

    /// Reads a port at a time of day.
    pub fn read(&mut self, port: u16, now: u64) -> u8 {
        if port != Self::DATA {
            // The index cannot be read.
            return 0xff;
        }
        self.advance(now);
        match usize::from(self.index & 0x7f) {
            index @ (SECONDS | 2 | 4 | 6..=9 | CENTURY) => self.read_time(index, now),
            A => self.bytes[A] | self.is_updating(now),
            C => core::mem::take(&mut self.flags),
            D => VALID,
            index => self.bytes[index],
        }
    }

    /// Writes a port at a time of day.
    pub fn write(&mut self, port: u16, value: u8, now: u64) {
        if port == Self::INDEX {
            self.index = value;
            return;
        }
        self.advance(now);
        match usize::from(self.index & 0x7f) {
            index @ (SECONDS | 2 | 4 | 6..=9 | CENTURY) => self.write_time(index, value, now),
            A => self.bytes[A] = value & !UPDATE,
            B => self.write_b(value, now),
            C | D => {}
            index => self.bytes[index] = value,
        }
        self.update_request();
    }

    /// Does what the firmware does with the shutdown code behind a reset of the processors: it clears the code, and looks whether
    /// that says that it is to jump to the address at 40h:67h. If not, it begins from the beginning.
    pub fn take_resume(&mut self) -> bool {
        core::mem::take(&mut self.bytes[SHUTDOWN]) == RESUME
    }

    /// Says whether port 0x70 masks NMIs.
    pub fn masks_nmi(&self) -> bool {
        self.index & 0x80 != 0
    }

    /// Returns the level of the interrupt line, as of the last call that gave the time.
    pub fn interrupt(&self) -> bool {
        self.flags & REQUEST != 0
    }

    /// Lets the clock reach a time of day: flags may be set.
    pub fn advance(&mut self, now: u64) {
        let from = self.checked;
        self.checked = now.max(from);
        if from == 0 || now <= from || self.bytes[B] & B_SET != 0 {
            return;
        }
        let seconds = from / SECOND + 1..now / SECOND + 1;
        if !seconds.is_empty() {
            self.flags |= ENDED;
            // The alarm's bytes repeat after a day at the latest.
            let first = seconds.start.max(seconds.end.saturating_sub(86_400));
            if self.next_alarm(first).is_some_and(|at| at < seconds.end) {
                self.flags |= ALARM;
            }
        }
        if let Some(period) = self.period()
            && now / period > from / period
        {
            self.flags |= PERIODIC;
        }
        self.update_request();
    }

    /// Returns the time of day at which the interrupt line may rise by itself.
    pub fn deadline(&self, now: u64) -> Option<u64> {
        let enabled = self.bytes[B] & (PERIODIC | ALARM | ENDED);
        if self.interrupt() || self.bytes[B] & B_SET != 0 {
            return None;
        }
        let next_second = now / SECOND + 1;
        let ended = (enabled & ENDED != 0).then(|| next_second * SECOND);
        let alarm =
            (enabled & ALARM != 0).then(|| self.next_alarm(next_second)).flatten().map(|at| at * SECOND);
        let periodic = if enabled & PERIODIC != 0 { self.period() } else { None };
        let periodic = periodic.map(|period| (now / period + 1) * period);
        [ended, alarm, periodic].into_iter().flatten().min()
    }

    /// Returns the period of the periodic interrupt in nanoseconds (MC146818A, table 5).
    fn period(&self) -> Option<u64> {
        let rate = match self.bytes[A] & 0xf {
            0 => return None,
            // With the 32 kHz crystal the first two are those of 8 and 9.
            rate @ 1..=2 => rate + 7,
            rate => rate,
        };
        Some(SECOND * (1 << (rate - 1)) / 32_768)
    }

    fn update_request(&mut self) {
        let wanted = self.flags & self.bytes[B] & (PERIODIC | ALARM | ENDED) != 0;
        self.flags = self.flags & !REQUEST | if wanted { REQUEST } else { 0 };
    }

    fn is_updating(&self, now: u64) -> u8 {
        let soon = now % SECOND >= SECOND - WARNING;
        if soon && self.bytes[B] & B_SET == 0 { UPDATE } else { 0 }
    }

    /// Returns the first of the caller's seconds from `first` on whose time of day the alarm's bytes match.
    fn next_alarm(&self, first: u64) -> Option<u64> {
        let field = |index: usize| match self.bytes[index] {
            ANY.. => None,
            value => Some(self.decode(index - 1, value)),
        };
        let (second, minute, hour) = (field(SECONDS_ALARM), field(MINUTES_ALARM), field(HOURS_ALARM));
        let day = self.clock(first).second_of_day();
        let until = calendar::until(day, [hour, minute, second])?;
        Some(first + u64::from(until))
    }

    fn clock(&self, seconds: u64) -> Calendar {
        Calendar::of(seconds.saturating_add_signed(self.offset))
    }

    fn calendar(&self, now: u64) -> Calendar {
        self.standing.unwrap_or_else(|| self.clock(now / SECOND))
    }

    fn read_time(&self, index: usize, now: u64) -> u8 {
        let time = self.calendar(now);
        let hour = time.hour;
        if index == 4 && self.bytes[B] & B_24_HOURS == 0 {
            let afternoon = if hour >= 12 { 0x80 } else { 0 };
            return self.encode((hour + 11) % 12 + 1) | afternoon;
        }
        self.encode(time.field(index))
    }

    fn write_time(&mut self, index: usize, value: u8, now: u64) {
        let value = self.decode(index, value);
        let mut time = self.calendar(now);
        time.set_field(index, value);
        if self.bytes[B] & B_SET != 0 {
            self.standing = Some(time);
        } else {
            self.set_clock(time, now);
        }
    }

    fn set_clock(&mut self, time: Calendar, now: u64) {
        self.offset = time.seconds() as i64 - (now / SECOND) as i64;
    }

    fn write_b(&mut self, value: u8, now: u64) {
        if value & B_SET != 0 && self.bytes[B] & B_SET == 0 {
            self.standing = Some(self.calendar(now));
        } else if value & B_SET == 0
            && let Some(time) = self.standing.take()
        {
            self.set_clock(time, now);
        }
        // SET ends the updates' interrupt (MC146818A, "Register B").
        self.bytes[B] = if value & B_SET != 0 { value & !ENDED } else { value };
    }

    fn encode(&self, value: u8) -> u8 {
        if self.bytes[B] & B_BINARY != 0 { value } else { ((value / 10 % 10) << 4) | (value % 10) }
    }

    /// Decodes what is written to the byte of a part of the time: BCD, and hours of 12.
    fn decode(&self, index: usize, value: u8) -> u8 {
        let twelve = index == 4 && self.bytes[B] & B_24_HOURS == 0;
        let digits = if twelve { value & 0x7f } else { value };
        let number = match self.bytes[B] & B_BINARY {
            0 => (digits >> 4) * 10 + (digits & 0xf),
            _ => digits,
        };
        match twelve {
            true => number % 12 + if value & 0x80 != 0 { 12 } else { 0 },
            false => number,
        }
    }
}
