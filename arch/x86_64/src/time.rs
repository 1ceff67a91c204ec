// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Time: the time stamp counter, measured at boot against the machine's timer; the wall clock, read once from the
//! real-time clock; and deadlines of the hypervisor's own, by the local APIC's timer of the CPU that sets them: for devices,
//! for the run queue, and for the timer of the vCPU that is resident.

use core::cell::Cell;
use core::sync::atomic::{AtomicU64, Ordering};

use turnstile_firmware::clock;

use crate::cpu;
use crate::cpu::ports;
pub use crate::cpu::ticks;
use crate::irq::lapic;

/// Seconds since 1970 when the time stamp counter was zero.
static BASE: AtomicU64 = AtomicU64::new(0);
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

fn uptime() -> u64 {
    ticks() / frequency()
}

/// Takes the wall clock from the real-time clock; `century` is the register that the firmware's tables name.
pub fn set_from_clock(century: Option<u8>) {
    const NMI_ENABLED: u8 = 0;
    const UPDATE: u8 = 1 << 7;
    let read = |register: u8| {
        // SAFETY: the index and data ports of a PC's real-time clock, which nobody else drives.
        unsafe {
            ports::write8(0x70, NMI_ENABLED | register);
            ports::read8(0x71)
        }
    };
    let values = || clock::REGISTERS.map(read);
    for _ in 0..PATIENCE {
        if read(clock::REGISTER_A) & UPDATE != 0 {
            cpu::relax();
            continue;
        }
        let (first, second) = (values(), values());
        if first == second {
            let seconds = clock::seconds(first, read(clock::REGISTER_B), century.map(read)).unwrap_or(0);
            BASE.store(seconds.wrapping_sub(uptime()), Ordering::Relaxed);
            return;
        }
    }
}

/// Seconds since 1970; since power-on, if the machine has no clock.
pub fn seconds() -> u64 {
    BASE.load(Ordering::Relaxed).wrapping_add(uptime())
}

const NANOSECONDS: u128 = 1_000_000_000;

/// Nanoseconds since power-on.
pub fn nanoseconds() -> u64 {
    (u128::from(ticks()) * NANOSECONDS / u128::from(frequency())) as u64
}

/// Nanoseconds since 1970; since power-on, if the machine has no clock.
pub fn wall_nanoseconds() -> u64 {
    BASE.load(Ordering::Relaxed).wrapping_mul(NANOSECONDS as u64).wrapping_add(nanoseconds())
}

/// No deadline.
const NEVER: u64 = u64::MAX;

/// What the timer of a CPU's local APIC is to ring for, as values of the time stamp counter.
#[derive(Debug)]
pub struct Deadlines {
    devices: Cell<u64>,
    schedule: Cell<u64>,
    guest: Cell<u64>,
    /// What the timer is set to.
    set: Cell<u64>,
}

// SAFETY: each CPU touches only its own, which the functions of this module reach through `cpu::this`; no interrupt
// handler touches it.
unsafe impl Sync for Deadlines {}
// SAFETY: as above; before its CPU starts, the boot CPU alone has it.
unsafe impl Send for Deadlines {}

impl Deadlines {
    /// Makes those of a CPU that has not started: none.
    pub const fn new() -> Self {
        Self {
            devices: Cell::new(NEVER),
            schedule: Cell::new(NEVER),
            guest: Cell::new(NEVER),
            set: Cell::new(NEVER),
        }
    }

    /// Sets the timer to the earliest one.
    #[inline]
    fn program(&self) {
        let at = self.devices.get().min(self.schedule.get()).min(self.guest.get());
        if at != self.set.replace(at) {
            lapic::set_timer((at != NEVER).then_some(at));
        }
    }
}

impl Default for Deadlines {
    fn default() -> Self {
        Self::new()
    }
}

/// Returns what the time stamp counter shows in so many nanoseconds.
pub fn after(nanoseconds: u64) -> u64 {
    let wait = u128::from(nanoseconds) * u128::from(frequency()) / NANOSECONDS;
    ticks().saturating_add(u64::try_from(wait).unwrap_or(NEVER))
}

/// Lets [`crate::Monitor::deadline`] be called on this CPU when the time stamp counter shows `at`, or before.
pub fn set_deadline(at: u64) {
    let deadlines = cpu::this().slot::<Deadlines>();
    deadlines.devices.set(deadlines.devices.get().min(at));
    deadlines.program();
}

/// Sets when this CPU has to look at its run queue: instead of when it was to before.
pub fn set_schedule(at: Option<u64>) {
    let deadlines = cpu::this().slot::<Deadlines>();
    deadlines.schedule.set(at.unwrap_or(NEVER));
    deadlines.program();
}

/// Lets the timer of the vCPU that is resident on this CPU ring in so many nanoseconds, unless it rings earlier. When it has rung,
/// what it was set to is set again.
pub fn ring_guest_in(nanoseconds: u64) {
    let at = after(nanoseconds);
    let deadlines = cpu::this().slot::<Deadlines>();
    deadlines.guest.set(deadlines.guest.get().min(at));
    deadlines.program();
}

/// Sets when the timer of the vCPU that is resident on this CPU rings: instead of when it was to before.
#[inline]
pub fn set_guest(at: Option<u64>) {
    let deadlines = cpu::this().slot::<Deadlines>();
    deadlines.guest.set(at.unwrap_or(NEVER));
    deadlines.program();
}

/// When the timer of the resident vCPU rings.
#[cfg(test)]
pub(crate) fn guest_deadline() -> u64 {
    cpu::this().slot::<Deadlines>().guest.get()
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
    let end = |deadline: &Cell<u64>| {
        let passed = deadline.get() <= now;
        if passed {
            deadline.set(NEVER);
        }
        passed
    };
    let passed = Passed {
        devices: end(&deadlines.devices),
        guest: end(&deadlines.guest),
        schedule: end(&deadlines.schedule),
    };
    // It has rung, so it is set to nothing.
    deadlines.set.set(NEVER);
    deadlines.program();
    passed
}
