// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Says what share of its physical CPUs each of its CPUs got between two moments that are the same for all VMs, because
//! the physical counter tells them: the time that was not stolen from it (DEN0057). It never waits, never exits, and takes
//! no interrupts.
//!
//! Options: `from=` and `until=`, microseconds since the machine was switched on (200000 and 500000); from the start
//! on if `from=0`; with `relative`, both count from the start of this VM.
#![no_std]
#![no_main]

use core::sync::atomic::{AtomicU64, Ordering};

use turnstile_guests::console::Console;
use turnstile_guests::platform::platform;
use turnstile_guests::timer::{self, Timer};
use turnstile_guests::{cpu, entry, mmio, mmu, options, psci, smp};
use turnstile_guests_common::clock::Clock;
use turnstile_guests_common::share::{self, Shares};

entry!(main);

/// PV_TIME_ST of DEN0057: the address of this CPU's record.
const PV_TIME_ST: u64 = 0xc500_0021;

/// The time from which `from=` and `until=` count.
static BASE: AtomicU64 = AtomicU64::new(0);
static SHARES: Shares<64> = Shares::new();

fn main() {
    mmu::enable();
    if options::get("relative").is_some() {
        BASE.store(Timer::Physical.now(), Ordering::Relaxed);
    }
    if !smp::start_others(spin) {
        return;
    }
    spin(0);
    SHARES.report(&mut Console, smp::count(), cpu::relax);
}

fn spin(_: u64) {
    let clock = Clock { now: || Timer::Physical.now(), ..timer::clock() };
    let this = cpu::this().index();
    let (line, base) = (platform().command_line(), BASE.load(Ordering::Relaxed));
    let moments = share::wait_for_begin(&mut Console, line, &clock, base, this);
    let (began, before) = (clock.now(), stolen());
    while clock.now() < moments.end {}
    let microseconds = clock.microseconds(clock.now() - began);
    SHARES.enter(this, microseconds.saturating_sub((stolen() - before) / 1000));
}

/// Returns the nanoseconds that were stolen from this CPU; 0 where nobody says.
fn stolen() -> u64 {
    let record = psci::call(PV_TIME_ST, [0; 3]);
    if record < 0 {
        return 0;
    }
    mmio::read64(record as u64 + 8)
}
