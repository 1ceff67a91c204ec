// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Time: the time base, whose frequency the device tree tells; the wall clock, read once from the firmware's real-time
//! clock; and deadlines of the hypervisor's own, by the hypervisor decrementer of the CPU that sets them: for devices, for
//! the run queue, and for looks at the console.

use core::cell::Cell;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::board::opal::{self, Token};
use crate::board::uart;
use crate::cpu;
use crate::cpu::regs::{DEC, HDEC, TB};

/// Seconds since 1970 when the time base was zero.
static BASE: AtomicU64 = AtomicU64::new(0);
/// Ticks of the time base in a second: the architecture's, unless the device tree says something else.
static FREQUENCY: AtomicU64 = AtomicU64::new(512_000_000);

/// The time base (Power ISA 3.0B Book II, 6.1).
#[inline(always)] // One instruction.
pub fn ticks() -> u64 {
    TB.read()
}

/// Ticks of the time base in a second.
pub fn frequency() -> u64 {
    FREQUENCY.load(Ordering::Relaxed)
}

/// Whether a guest that masks its interrupts keeps doorbells of the hypervisor away.
static DOORBELLS_WAIT: AtomicBool = AtomicBool::new(false);

/// Says whether doorbells wait until the guest takes interrupts: QEMU's do, against Power ISA 3.0B Book III, 6.5. Then a CPU
/// that vCPUs share looks at its run queue as often as a slice is long, whether or not it knows of somebody who waits. Before
/// any guest runs.
pub fn set_doorbells_wait(wait: bool) {
    DOORBELLS_WAIT.store(wait, Ordering::Relaxed);
}

/// Takes what the device tree says of the time base.
pub fn set_frequency(frequency: u64) {
    FREQUENCY.store(frequency.max(1), Ordering::Relaxed);
}

fn uptime() -> u64 {
    ticks() / frequency()
}

/// Takes the wall clock from the firmware's.
pub fn set_from_clock() {
    /// The firmware asks the clock, and answers that it is busy meanwhile (OPAL_BUSY_EVENT, OPAL_BUSY).
    const PATIENCE: u32 = 1_000_000;
    let (mut date, mut time) = (0u32, 0u64);
    for _ in 0..PATIENCE {
        // SAFETY: it writes the date and the time.
        match unsafe { opal::call(Token::RtcRead, &[&raw mut date as u64, &raw mut time as u64]) } {
            Ok(_) => {
                let seconds = seconds_of(u32::from_be(date), u64::from_be(time)).unwrap_or(0);
                BASE.store(seconds.wrapping_sub(uptime()), Ordering::Relaxed);
                return;
            }
            Err(opal::Error(-12 | -2)) => {
                opal::poll();
            }
            Err(_) => return,
        }
        cpu::relax();
    }
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

/// Seconds since 1970; since power-on, if the machine has no clock.
pub fn seconds() -> u64 {
    BASE.load(Ordering::Relaxed).wrapping_add(uptime())
}

/// Nanoseconds since 1970; since power-on, if the machine has no clock.
pub fn wall_nanoseconds() -> u64 {
    const NANOSECONDS: u128 = 1_000_000_000;
    let since = u128::from(ticks()) * NANOSECONDS / u128::from(frequency());
    BASE.load(Ordering::Relaxed).wrapping_mul(NANOSECONDS as u64).wrapping_add(since as u64)
}

/// No deadline.
const NEVER: u64 = u64::MAX;
/// What the hypervisor decrementer is set to at most: it has 32 bits, of which one is the sign, where LPCR.LD is off, and
/// rings early then, which harms nothing.
const FARTHEST: u64 = 0x7fff_ffff;
/// Looks in a second, of a CPU at which doorbells may wait.
const LOOKS: u64 = 250;

/// What the hypervisor decrementer of a CPU is to ring for, as values of the time base.
#[derive(Debug)]
pub struct Deadlines {
    devices: Cell<u64>,
    schedule: Cell<u64>,
    console: Cell<u64>,
    /// What the decrementer is set to.
    set: Cell<u64>,
    /// The most ticks that it is set to.
    farthest: Cell<u64>,
}

// SAFETY: each CPU touches only its own, which the functions of this module reach through `cpu::this`; interrupts are
// masked in the hypervisor.
unsafe impl Sync for Deadlines {}
// SAFETY: as above; before its CPU starts, the boot CPU alone has it.
unsafe impl Send for Deadlines {}

impl Deadlines {
    /// Makes those of a CPU that has not started: none.
    pub const fn new() -> Self {
        Self {
            devices: Cell::new(NEVER),
            schedule: Cell::new(NEVER),
            console: Cell::new(NEVER),
            set: Cell::new(0),
            farthest: Cell::new(FARTHEST),
        }
    }

    /// Says whether the decrementer rings for nothing.
    fn is_quiet(&self) -> bool {
        self.set.get() == NEVER && self.farthest.get() == FARTHEST
    }

    /// Returns the earliest one.
    fn next(&self) -> u64 {
        self.devices.get().min(self.schedule.get()).min(self.console.get())
    }

    /// Sets the decrementer to the earliest one.
    fn program(&self) {
        let at = self.next();
        if at != self.set.replace(at) {
            self.set_decrementer(at);
        }
    }

    /// Lets the hypervisor decrementer ring at a value of the time base, or before.
    fn set_decrementer(&self, at: u64) {
        let farthest = self.farthest.get();
        let ticks = if at == NEVER { farthest } else { at.saturating_sub(ticks()).min(farthest) };
        // SAFETY: the hypervisor's own timer.
        unsafe { HDEC.write(ticks) };
    }
}

impl Default for Deadlines {
    fn default() -> Self {
        Self::new()
    }
}

/// Those of this CPU.
#[inline(always)] // An address computation.
fn deadlines() -> &'static Deadlines {
    cpu::this().slot()
}

/// Sets this CPU's decrementer up: it rings for nothing.
pub fn start_cpu() {
    deadlines().program();
}

/// From now on vCPUs share this CPU.
pub fn share_cpu() {
    if DOORBELLS_WAIT.load(Ordering::Relaxed) {
        let deadlines = deadlines();
        deadlines.farthest.set(frequency() / LOOKS);
        deadlines.set_decrementer(deadlines.next());
    }
}

/// Lets [`crate::Monitor::deadline`] be called on this CPU when the time base shows `at`, or before.
pub fn set_deadline(at: u64) {
    let deadlines = deadlines();
    deadlines.devices.set(deadlines.devices.get().min(at));
    deadlines.program();
}

/// Sets when this CPU has to look at its run queue: instead of when it was to before.
pub fn set_schedule(at: Option<u64>) {
    let deadlines = deadlines();
    deadlines.schedule.set(at.unwrap_or(NEVER));
    deadlines.program();
}

/// Lets this CPU look at the console from now on.
pub fn poll_console() {
    let deadlines = deadlines();
    deadlines.console.set(ticks() + period());
    deadlines.program();
}

/// Ticks between two looks at the console.
fn period() -> u64 {
    (u128::from(uart::PERIOD) * u128::from(frequency()) / 1_000_000_000) as u64
}

/// Stops this CPU by `stop`, until a deadline at the latest. Says whether one has come, which ends with [`end_deadlines`].
///
/// The hypervisor decrementer ends no STOP (LPCR's PECE has no bit for it, Power ISA 3.0B Book III, 2.2), and where it does, as
/// in QEMU, its exception stays until a guest is interrupted by it. So the resident guest's decrementer rings for it meanwhile,
/// if that one is later, and then is set to what it would be: it also says how long that was, without the time base.
#[must_use = "what is due has to be served"]
#[inline(always)] // On the way of every wait.
pub(crate) fn stop(stop: impl FnOnce()) -> bool {
    let deadlines = deadlines();
    if deadlines.is_quiet() {
        // No guest's decrementer is later.
        // SAFETY: the hypervisor's own timer.
        unsafe { HDEC.write(FARTHEST) };
        stop();
        return false;
    }
    let left = signed(HDEC.read());
    if left <= 0 {
        return true;
    }
    let guests = signed(DEC.read());
    let lent = left < guests;
    // SAFETY: the hypervisor's own timer, and the guest's, which nobody looks at before it is set again below.
    unsafe {
        HDEC.write(FARTHEST);
        if lent {
            DEC.write(left as u64);
        }
    }
    stop();
    let passed = left.min(guests) - signed(DEC.read());
    // SAFETY: as above.
    unsafe {
        if lent {
            DEC.write((guests - passed).max(i32::MIN.into()) as u64);
        }
        if left > passed {
            HDEC.write((left - passed) as u64);
        }
    }
    left <= passed
}

/// Extends the sign of a decrementer, which has 32 bits while LPCR.LD is off.
pub(crate) fn signed(decrementer: u64) -> i64 {
    decrementer as i32 as i64
}

/// Returns what a decrementer is to be set to for so many ticks: one that has expired longer ago than 32 bits say would be one
/// that has not.
#[inline(always)] // A comparison.
pub(crate) fn bounded(ticks: i64) -> u64 {
    let word = ticks as i32;
    // Almost always: a comparison instead of two.
    if i64::from(word) == ticks {
        return ticks as u64;
    }
    let farthest = if ticks < 0 { i32::MIN } else { i32::MAX };
    i64::from(farthest) as u64
}

/// Ends the deadlines that have passed, and sets the decrementer for the others: after it has rung. True if devices wait
/// for one of them. `look` looks at the console, if time has come for that.
pub(crate) fn end_deadlines(look: impl FnOnce()) -> bool {
    let deadlines = deadlines();
    let now = ticks();
    if deadlines.schedule.get() <= now {
        deadlines.schedule.set(NEVER);
    }
    let devices = deadlines.devices.get() <= now;
    if devices {
        deadlines.devices.set(NEVER);
    }
    let console = deadlines.console.get() <= now;
    if console {
        deadlines.console.set(now + period());
    }
    // It goes on counting below zero, and rings until it is set.
    let at = deadlines.next();
    deadlines.set.set(at);
    deadlines.set_decrementer(at);
    if console {
        look();
    }
    devices
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

    #[test]
    fn the_decrementer_rings_for_the_earliest_deadline() {
        use crate::cpu::regs::fakes;
        fakes::reset();
        fakes::set("TB", 1000);
        set_schedule(Some(5000));
        assert_eq!(fakes::get("HDEC"), 4000);
        set_deadline(frequency() + 1000);
        assert_eq!(fakes::get("HDEC"), 4000);
        fakes::set("TB", 5001);
        assert!(!end_deadlines(|| {}));
        assert_eq!(fakes::get("HDEC"), frequency() + 1000 - 5001);
        fakes::set("TB", frequency() + 1000);
        assert!(end_deadlines(|| {}));
        assert_eq!(fakes::get("HDEC"), FARTHEST);
        poll_console();
        assert_eq!(fakes::get("HDEC"), period());
        fakes::set("TB", frequency() + 1000 + period());
        assert!(!end_deadlines(|| {}));
        assert_eq!(fakes::get("HDEC"), period());
    }

    #[test]
    fn a_stopped_cpu_goes_on_by_the_guests_decrementer() {
        use crate::cpu::regs::fakes;
        /// Stops for so many ticks; returns what DEC was meanwhile, and whether a deadline has come.
        fn stopped(passed: u64) -> (u64, bool) {
            let mut dec = 0;
            let due = stop(|| {
                dec = fakes::get("DEC");
                assert_eq!(fakes::get("HDEC"), FARTHEST, "it does not ring meanwhile");
                fakes::set("TB", fakes::get("TB") + passed);
                fakes::set("DEC", dec.wrapping_sub(passed));
            });
            (dec, due)
        }
        fakes::reset();
        fakes::set("TB", 1000);
        end_deadlines(|| {});
        fakes::set("DEC", 7000);
        assert_eq!(stopped(100), (7000, false), "without a deadline the guest's is left alone");
        assert_eq!(fakes::get("DEC"), 6900);
        fakes::set("TB", 1000);
        fakes::set("DEC", 7000);
        set_schedule(Some(6000));
        assert_eq!(stopped(1000), (5000, false));
        assert_eq!((fakes::get("DEC"), fakes::get("HDEC")), (6000, 4000));
        assert_eq!(stopped(4500), (4000, true));
        assert_eq!(fakes::get("DEC"), 1500);
        end_deadlines(|| {});
        fakes::set("DEC", 10);
        set_schedule(Some(fakes::get("TB") + 50));
        assert_eq!(stopped(20), (10, false), "the guest's rings first");
        assert_eq!(fakes::get("HDEC"), 30);
        fakes::set("HDEC", u64::from(u32::MAX));
        assert!(stop(|| panic!("what is due is served first")));
    }

    #[test]
    fn where_doorbells_wait_a_shared_cpu_looks_by_itself() {
        use crate::cpu::regs::fakes;
        fakes::reset();
        fakes::set("TB", 1000);
        share_cpu();
        set_schedule(None);
        assert_eq!(fakes::get("HDEC"), FARTHEST, "where they do not, it need not");
        set_doorbells_wait(true);
        share_cpu();
        assert_eq!(fakes::get("HDEC"), frequency() / LOOKS);
        set_schedule(Some(5000));
        assert_eq!(fakes::get("HDEC"), 4000);
        fakes::set("TB", 5001);
        set_schedule(None);
        assert_eq!(fakes::get("HDEC"), frequency() / LOOKS);
        set_schedule(Some(u64::MAX / 2));
        assert_eq!(fakes::get("HDEC"), frequency() / LOOKS, "also where the next deadline is far");
        set_doorbells_wait(false);
    }
}
