// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Time: the time base, whose frequency the device tree tells; the wall clock, read once from the firmware's real-time
//! clock; and deadlines of the hypervisor's own, by the hypervisor decrementer of the CPU that sets them: for devices, for
//! the run queue, and for looks at the console.

use core::cell::Cell;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use turnstile_arch_common::of_cpu::OfCpu;
use turnstile_arch_common::time::{Deadline, NANOSECONDS, NEVER, Uptime, WallClock};

use crate::board::{clock, uart};
use crate::cpu;
use crate::cpu::regs::{DEC, HDEC, TB};

static CLOCK: WallClock = WallClock::new();
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

/// Returns so many nanoseconds as ticks of the time base.
pub fn in_ticks(nanoseconds: u64) -> u64 {
    turnstile_arch_common::time::ticks(nanoseconds, frequency())
}

/// How long the machine has been on.
#[inline(always)] // Two loads.
pub fn uptime() -> Uptime {
    Uptime { ticks: ticks(), frequency: frequency() }
}

/// Takes the wall clock from the firmware's.
pub fn set_from_clock() {
    if let Some(seconds) = clock::read() {
        CLOCK.set(seconds, uptime());
    }
}

/// Nanoseconds since 1970; since power-on, if the machine has no clock.
pub fn wall_nanoseconds() -> u64 {
    CLOCK.nanoseconds(uptime())
}

/// What the hypervisor decrementer is set to at most: it has 32 bits, of which one is the sign, where LPCR.LD is off, and
/// rings early then, which harms nothing.
const FARTHEST: u64 = 0x7fff_ffff;
/// Looks in a second, of a CPU at which doorbells may wait.
const LOOKS: u64 = 250;

/// What the hypervisor decrementer of a CPU is to ring for, as values of the time base.
#[derive(Debug)]
pub struct Deadlines {
    devices: Deadline,
    schedule: Deadline,
    console: Deadline,
    /// What the decrementer is set to.
    set: Deadline,
    /// The most ticks that it is set to.
    farthest: OfCpu<Cell<u64>>,
}

impl Deadlines {
    /// Makes those of a CPU that has not started: none.
    pub const fn new() -> Self {
        // SAFETY: each CPU touches only its own, which the functions of this module reach through `cpu::this`; interrupts are
        // masked in the hypervisor.
        unsafe {
            Self {
                devices: Deadline::new(NEVER),
                schedule: Deadline::new(NEVER),
                console: Deadline::new(NEVER),
                set: Deadline::new(0),
                farthest: OfCpu::new(Cell::new(FARTHEST)),
            }
        }
    }

    /// Says whether the decrementer rings for nothing.
    fn is_quiet(&self) -> bool {
        self.set.at() == NEVER && self.farthest.get() == FARTHEST
    }

    /// Returns the earliest one.
    fn next(&self) -> u64 {
        self.devices.at().min(self.schedule.at()).min(self.console.at())
    }

    /// Sets the decrementer to the earliest one.
    fn program(&self) {
        let at = self.next();
        if self.set.changes(at) {
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
    deadlines.devices.advance(at);
    deadlines.program();
}

/// Sets when this CPU has to look at its run queue: instead of when it was to before.
pub fn set_schedule(at: Option<u64>) {
    let deadlines = deadlines();
    deadlines.schedule.set(at);
    deadlines.program();
}

/// Lets this CPU look at the console from now on.
pub fn poll_console() {
    let deadlines = deadlines();
    deadlines.console.set(Some(ticks() + period()));
    deadlines.program();
}

/// Ticks until the next look at the console.
fn period() -> u64 {
    (u128::from(uart::period()) * u128::from(frequency()) / u128::from(NANOSECONDS)) as u64
}

/// Says whether this CPU's timer has rung: [`end_deadlines`] is due.
pub(crate) fn is_due() -> bool {
    signed(HDEC.read()) < 0
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
    deadlines.schedule.end(now);
    let devices = deadlines.devices.end(now);
    let console = deadlines.console.end(now);
    if console {
        deadlines.console.set(Some(now + period()));
    }
    // It goes on counting below zero, and rings until it is set.
    let at = deadlines.next();
    deadlines.set.set(Some(at));
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
