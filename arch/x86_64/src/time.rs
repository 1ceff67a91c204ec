// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Time: the time stamp counter, measured at boot against the machine's timer; the wall clock, read once from the
//! real-time clock; and deadlines of the hypervisor's own, by the local APIC's timer of the CPU that sets them: for devices,
//! for the run queue, and for the timer of the vCPU that is resident.

use core::sync::atomic::{AtomicU64, Ordering};

use turnstile_arch_common::time::{Deadline, NEVER, Uptime, WallClock};

use crate::board::clock;
use crate::cpu;
use crate::cpu::PerCpu;
use crate::cpu::ports;
pub use crate::cpu::ticks;
use crate::irq::lapic;

static CLOCK: WallClock = WallClock::new();
/// Ticks of the time stamp counter in a second.
static FREQUENCY: AtomicU64 = AtomicU64::new(1_000_000_000);

/// Ticks of the time stamp counter in a second.
pub fn frequency() -> u64 {
    FREQUENCY.load(Ordering::Relaxed)
}

/// Spins for so long.
pub fn spin_microseconds(microseconds: u64) {
    let until = ticks().saturating_add((frequency() / 1_000_000).max(1) * microseconds);
    while ticks() < until {}
}

/// Measures the time stamp counter and the local APIC's timer, by the power management timer whose port is given, or else
/// by the 8254. Takes 10 ms. False if the machine has neither: then a tick is taken for a nanosecond.
pub fn measure(pm_timer: Option<u16>) -> bool {
    lapic::start_measuring();
    let start = ticks();
    let by_pm_timer = pm_timer.and_then(|port| Some((wait_pm_timer(port)?, 3_579_545)));
    let measured = by_pm_timer.or_else(|| Some((wait_8254()?, 1_193_182)));
    let elapsed = ticks() - start;
    lapic::end_measuring(elapsed);
    if let Some((count, rate)) = measured {
        FREQUENCY.store(rounded(u128::from(elapsed) * rate / u128::from(count)), Ordering::Relaxed);
    }
    measured.is_some()
}

/// A frequency no finer than the measurement, whose timers tick every few hundred nanoseconds: multiples of 100 kHz are
/// those of real clocks.
fn rounded(frequency: u128) -> u64 {
    const STEP: u128 = 100_000;
    (((frequency + STEP / 2) / STEP) * STEP).max(STEP) as u64
}

/// Waits 10 ms by the power management timer (ACPI 4.8.3.3), whose lower 24 bits are always there. Returns how many ticks
/// it took; `None` if it stands still.
fn wait_pm_timer(port: u16) -> Option<u64> {
    const BITS: u32 = 0xff_ffff;
    // SAFETY: the firmware's tables say that the timer is there.
    let read = || unsafe { ports::read32(port) };
    let start = read();
    for _ in 0..PATIENCE {
        let passed = read().wrapping_sub(start) & BITS;
        if passed >= 35_795 {
            return Some(passed.into());
        }
        cpu::relax();
    }
    None
}

/// Looks at a timer before it is taken for dead.
const PATIENCE: u32 = 10_000_000;

/// Waits 10 ms by channel 0 of the 8254, whose interrupt is masked. Returns how many ticks it took; `None` if there is no
/// 8254.
fn wait_8254() -> Option<u64> {
    const COUNT: u16 = 11_932;
    const CHANNEL_0: u16 = 0x40;
    const CONTROL: u16 = 0x43;
    /// Both bytes, interrupt on terminal count, binary.
    const MODE: u8 = 0b0011_0000;
    /// Read the status of channel 0 back.
    const STATUS: u8 = 0b1110_0010;
    const OUTPUT: u8 = 1 << 7;
    const PROGRAMMED: u8 = 0x3f;
    // SAFETY: the 8254 of a PC; nobody else drives it.
    unsafe {
        ports::write8(CONTROL, MODE);
        ports::write8(CHANNEL_0, COUNT as u8);
        ports::write8(CHANNEL_0, (COUNT >> 8) as u8);
    }
    for _ in 0..PATIENCE {
        // SAFETY: as above.
        let status = unsafe {
            ports::write8(CONTROL, STATUS);
            ports::read8(CHANNEL_0)
        };
        if status & PROGRAMMED != MODE {
            return None;
        }
        if status & OUTPUT != 0 {
            return Some(COUNT.into());
        }
        cpu::relax();
    }
    None
}

/// How long the machine has been on.
#[inline(always)] // Two loads.
pub fn uptime() -> Uptime {
    Uptime { ticks: ticks(), frequency: frequency() }
}

/// Takes the wall clock from the real-time clock; `century` is the register that the firmware's tables name.
pub fn set_from_clock(century: Option<u8>) {
    if let Some(seconds) = clock::read(century) {
        CLOCK.set(seconds, uptime());
    }
}

/// Nanoseconds since 1970; since power-on, if the machine has no clock.
pub fn wall_nanoseconds() -> u64 {
    CLOCK.nanoseconds(uptime())
}

/// What the timer of a CPU's local APIC is to ring for, as values of the time stamp counter.
#[derive(Debug)]
pub struct Deadlines {
    devices: Deadline,
    schedule: Deadline,
    guest: Deadline,
    /// What the timer is set to.
    set: Deadline,
}

impl Deadlines {
    /// Makes those of a CPU that has not started: none.
    pub const fn new() -> Self {
        // SAFETY: each CPU touches only its own, which the functions of this module reach through `cpu::this`; no interrupt
        // handler touches it.
        unsafe {
            Self {
                devices: Deadline::new(NEVER),
                schedule: Deadline::new(NEVER),
                guest: Deadline::new(NEVER),
                set: Deadline::new(NEVER),
            }
        }
    }

    /// Sets the timer to the earliest one.
    #[inline]
    fn program(&self) {
        let at = self.devices.at().min(self.schedule.at()).min(self.guest.at());
        if self.set.changes(at) {
            lapic::set_timer((at != NEVER).then_some(at));
        }
    }
}

impl Default for Deadlines {
    fn default() -> Self {
        Self::new()
    }
}

/// Returns so many nanoseconds as ticks of the time stamp counter.
pub fn in_ticks(nanoseconds: u64) -> u64 {
    turnstile_arch_common::time::ticks(nanoseconds, frequency())
}

/// Returns what the time stamp counter shows in so many nanoseconds.
pub fn after(nanoseconds: u64) -> u64 {
    ticks().saturating_add(in_ticks(nanoseconds))
}

/// Lets [`crate::Monitor::deadline`] be called on this CPU when the time stamp counter shows `at`, or before.
pub fn set_deadline(at: u64) {
    let deadlines = cpu::this().slot::<Deadlines>();
    deadlines.devices.advance(at);
    deadlines.program();
}

/// Sees to it that this CPU, which is `cpu`, is interrupted when the time stamp counter shows `at`, or before. Most of the time it is
/// anyway.
#[inline(always)] // A comparison, on each way into a service.
pub fn interrupt_by(cpu: &'static PerCpu, at: u64) {
    if cpu.slot::<Deadlines>().set.at() > at {
        advance(at);
    }
}

#[cold]
#[inline(never)] // Once in the time that a service may take.
fn advance(at: u64) {
    set_deadline(at);
}

/// Sets when this CPU has to look at its run queue: instead of when it was to before.
pub fn set_schedule(at: Option<u64>) {
    let deadlines = cpu::this().slot::<Deadlines>();
    deadlines.schedule.set(at);
    deadlines.program();
}

/// Lets the timer of the vCPU that is resident on this CPU ring in so many nanoseconds, unless it rings earlier. When it has rung,
/// what it was set to is set again.
pub fn ring_guest_in(nanoseconds: u64) {
    let at = after(nanoseconds);
    let deadlines = cpu::this().slot::<Deadlines>();
    deadlines.guest.advance(at);
    deadlines.program();
}

/// Sets when the timer of the vCPU that is resident on this CPU rings: instead of when it was to before.
#[inline]
pub fn set_guest(at: Option<u64>) {
    let deadlines = cpu::this().slot::<Deadlines>();
    deadlines.guest.set(at);
    deadlines.program();
}

/// When the timer of the resident vCPU rings.
#[cfg(test)]
pub(crate) fn guest_deadline() -> u64 {
    cpu::this().slot::<Deadlines>().guest.at()
}

/// Which deadlines have passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Passed {
    /// One that devices wait for.
    pub devices: bool,
    /// That of the resident vCPU's timer.
    pub guest: bool,
    /// The run queue is to be looked at.
    pub schedule: bool,
}

/// Ends the deadlines that have passed, and sets the timer for the others: after it has rung.
pub(crate) fn end_deadlines() -> Passed {
    let deadlines = cpu::this().slot::<Deadlines>();
    let now = ticks();
    let passed = Passed {
        devices: deadlines.devices.end(now),
        guest: deadlines.guest.end(now),
        schedule: deadlines.schedule.end(now),
    };
    // It has rung, so it is set to nothing.
    deadlines.set.set(None);
    deadlines.program();
    passed
}
