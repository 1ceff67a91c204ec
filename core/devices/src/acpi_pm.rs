// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The fixed registers of ACPI's power management (ACPI 6.5, section 4.8.3): PM1 event and control blocks, and the timer of
//! 3.58 MHz with 32 bits. ACPI mode is always on.

/// The timer's frequency in ticks per second.
pub const PM_TIMER_FREQUENCY: u64 = 3_579_545;
/// Ticks in a nanosecond, in units of 2^-64.
const TICKS_PER_NANOSECOND: u64 = (((PM_TIMER_FREQUENCY as u128) << 64) / 1_000_000_000) as u64;

const STATUS: u16 = 0;
const ENABLE: u16 = 2;
const CONTROL: u16 = 4;
const TIMER: u16 = 8;

/// Status and enable: the timer's highest bit has changed.
const TIMER_CHANGED: u16 = 1 << 0;
/// Status and enable: the power button.
const POWER_BUTTON: u16 = 1 << 8;
/// The bits of the enable register: timer, global lock, power button, sleep button, clock.
const ENABLES: u16 = 1 << 10 | 1 << 9 | POWER_BUTTON | 1 << 5 | TIMER_CHANGED;
/// Control: ACPI mode.
const SCI_ENABLED: u16 = 1 << 0;
/// Control: the type of the sleeping state, kept.
const SLEEP_TYPE: u16 = 7 << 10;
/// Control: enter it. Reads as zero.
const SLEEP: u16 = 1 << 13;
/// Between two changes of the timer's highest bit.
const HALF: u64 = 1 << 31;

fn tick(nanoseconds: u64) -> u64 {
    ((u128::from(nanoseconds) * u128::from(TICKS_PER_NANOSECOND)) >> 64) as u64
}

/// What the guest asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PowerOff;

/// The registers, by their distance from the first.
#[derive(Clone, Debug, Default)]
pub struct AcpiPm {
    status: u16,
    enable: u16,
    control: u16,
    /// The tick up to which changes of the timer's highest bit were looked for.
    checked: u64,
}

impl AcpiPm {
    /// How many ports there are.
    pub const PORTS: u16 = 12;
    /// `SLP_TYP` of S5, as the DSDT says.
    pub const S5: u16 = 0;

    /// Makes them in their reset state.
    pub const fn new() -> Self {
        Self { status: 0, enable: 0, control: SCI_ENABLED, checked: 0 }
    }

    /// Reads `size` bytes at a time in nanoseconds.
    pub fn read(&mut self, offset: u16, size: u8, now: u64) -> u32 {
        self.advance(now);
        let word = |at: u16| match at {
            STATUS => u32::from(self.status),
            ENABLE => u32::from(self.enable),
            CONTROL => u32::from(self.control),
            TIMER => tick(now) as u32,
            10 => (tick(now) >> 16) as u32 & 0xffff,
            _ => 0,
        };
        let low = word(offset & !1) >> (8 * u32::from(offset & 1));
        let value = match (size, offset & !1) {
            (4, TIMER) => low,
            (4, _) => low & 0xffff | word((offset & !1) + 2) << 16,
            _ => low,
        };
        crate::truncate(value.into(), size) as u32
    }

    /// Writes `size` bytes at a time in nanoseconds. Returns whether the guest switches its machine off.
    pub fn write(&mut self, offset: u16, size: u8, value: u32, now: u64) -> Option<PowerOff> {
        self.advance(now);
        let bytes = value.to_le_bytes();
        let mut off = None;
        for (at, byte) in (offset..).zip(bytes.into_iter().take(size.into())) {
            off = off.or(self.write_byte(at, byte));
        }
        off
    }

    fn write_byte(&mut self, offset: u16, value: u8) -> Option<PowerOff> {
        let shift = 8 * u32::from(offset & 1);
        let (value, mask) = (u16::from(value) << shift, 0xff << shift);
        match offset & !1 {
            // Written ones clear.
            STATUS => self.status &= !value,
            ENABLE => self.enable = self.enable & !mask | value & ENABLES,
            CONTROL => {
                self.control = (self.control & !mask | value) & SLEEP_TYPE | SCI_ENABLED;
                let sleeps = value & SLEEP != 0 && (self.control & SLEEP_TYPE) >> 10 == Self::S5;
                return sleeps.then_some(PowerOff);
            }
            _ => {}
        }
        None
    }

    /// Lets the timer reach a time: its status may be set.
    pub fn advance(&mut self, now: u64) {
        let now = tick(now);
        if now / HALF != self.checked / HALF {
            self.status |= TIMER_CHANGED;
        }
        self.checked = now;
    }

    /// Returns the level of the SCI, as of the last call that gave the time.
    pub fn interrupt(&self) -> bool {
        self.status & self.enable != 0
    }

    /// Returns the time in nanoseconds at which the SCI may rise by itself.
    pub fn deadline(&self, now: u64) -> Option<u64> {
        if self.enable & TIMER_CHANGED == 0 || self.interrupt() {
            return None;
        }
        let tick = (tick(now) / HALF + 1) * HALF;
        (u128::from(tick) << 64).div_ceil(u128::from(TICKS_PER_NANOSECOND)).try_into().ok()
    }
}
