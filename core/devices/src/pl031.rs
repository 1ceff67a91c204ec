// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The Arm PrimeCell real-time clock, PL031 (Arm DDI 0224).
//!
//! It counts seconds, in 32 bits, from whatever the guest loads. The caller passes monotonic seconds with every call. Before the
//! guest loads anything, the count equals them, so a caller that has the time of day gives it to the guest.

use crate::truncate;

const DR: u64 = 0x000;
const MR: u64 = 0x004;
const LR: u64 = 0x008;
const CR: u64 = 0x00c;
const IMSC: u64 = 0x010;
const RIS: u64 = 0x014;
const MIS: u64 = 0x018;
const ICR: u64 = 0x01c;
const PERIPH_ID: u64 = 0xfe0;

/// RTCPeriphID0-3 and RTCPCellID0-3: part 0x031, designer Arm, revision 1.
const IDENTIFICATION: [u8; 8] = [0x31, 0x10, 0x14, 0x00, 0x0d, 0xf0, 0x05, 0xb1];

/// A PL031.
#[derive(Debug)]
pub struct Pl031 {
    /// What to add to the caller's seconds.
    offset: u32,
    /// The count when the match was last looked for; `None` before the first call.
    checked: Option<u32>,
    matched: u32,
    load: u32,
    mask: bool,
    raw: bool,
}

impl Default for Pl031 {
    fn default() -> Self {
        Self::new()
    }
}

impl Pl031 {
    /// Makes a PL031 in its reset state.
    pub const fn new() -> Self {
        Self { offset: 0, checked: None, matched: 0, load: 0, mask: false, raw: false }
    }

    /// Reads `size` bytes at `offset`; `now` is the caller's time in seconds.
    pub fn read(&mut self, now: u64, offset: u64, size: u8) -> u64 {
        self.advance(now);
        let value = match offset {
            DR => self.count(now),
            MR => self.matched,
            LR => self.load,
            // Started: the clock always runs, and once started cannot be stopped.
            CR => 1,
            IMSC => self.mask.into(),
            RIS => self.raw.into(),
            MIS => (self.raw && self.mask).into(),
            PERIPH_ID..0x1000 if offset.is_multiple_of(4) => {
                IDENTIFICATION.get((offset - PERIPH_ID) as usize / 4).copied().unwrap_or(0).into()
            }
            _ => 0,
        };
        truncate(value.into(), size)
    }

    /// Writes `size` bytes at `offset`; `now` is the caller's time in seconds.
    pub fn write(&mut self, now: u64, offset: u64, size: u8, value: u64) {
        self.advance(now);
        let value = truncate(value, size) as u32;
        match offset {
            MR => {
                self.matched = value;
                self.raw |= value == self.count(now);
            }
            LR => {
                self.load = value;
                self.offset = value.wrapping_sub(now as u32);
                self.checked = Some(value);
                self.raw |= value == self.matched;
            }
            IMSC => self.mask = value & 1 != 0,
            ICR if value & 1 != 0 => self.raw = false,
            _ => {}
        }
    }

    /// Lets the clock reach `now`: the match may set the interrupt.
    pub fn advance(&mut self, now: u64) {
        let count = self.count(now);
        if let Some(checked) = self.checked.replace(count) {
            // Both distances from where the match was last looked for: the match lies on the way if it is not
            // farther than the count, and not where it was looked for already.
            let ahead = self.matched.wrapping_sub(checked);
            self.raw |= ahead != 0 && ahead <= count.wrapping_sub(checked);
        }
    }

    /// Says whether the interrupt line may rise by itself: it is neither masked nor up already. Who asks this first need not
    /// know the time.
    pub fn is_armed(&self) -> bool {
        self.mask && !self.raw
    }

    /// Returns in how many seconds from `now` the interrupt line may rise, for the caller's timer: `None` if it
    /// cannot.
    pub fn deadline(&self, now: u64) -> Option<u64> {
        if !self.is_armed() {
            return None;
        }
        match self.matched.wrapping_sub(self.count(now)) {
            // The match is a whole turn of the counter away.
            0 => Some(1 << 32),
            seconds => Some(seconds.into()),
        }
    }

    /// Returns the level of the interrupt line, RTCINTR, as of the last call that gave the time.
    pub fn interrupt(&self) -> bool {
        self.raw && self.mask
    }

    fn count(&self, now: u64) -> u32 {
        self.offset.wrapping_add(now as u32)
    }
}
