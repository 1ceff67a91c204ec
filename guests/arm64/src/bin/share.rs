// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Says what share of its physical CPUs each of its CPUs got between two moments that are the same for all VMs, because
//! the physical counter tells them: the time that was not stolen from it (DEN0057). It never waits, never exits, and takes
//! no interrupts.
//!
//! Options: `from=` and `until=`, microseconds since the machine was switched on (200000 and 500000); from the start
//! on if `from=0`.
#![no_std]
#![no_main]

use core::sync::atomic::{AtomicU64, Ordering};

use turnstile_guests::timer::{self, Timer};
use turnstile_guests::{cpu, entry, mmio, mmu, options, println, psci, smp};

entry!(main);

/// PV_TIME_ST of DEN0057: the address of this CPU's record.
const PV_TIME_ST: u64 = 0xc500_0021;

/// CPUs that have finished.
static FINISHED: AtomicU64 = AtomicU64::new(0);
static RAN: [AtomicU64; 64] = [const { AtomicU64::new(0) }; 64];

fn main() {
    mmu::enable();
    for index in smp::others() {
        if smp::start(index, spin, 0) != psci::status::SUCCESS {
            println!("@error CPU {index} does not start");
            return;
        }
    }
    spin(0);
    let all = smp::count() as u64;
    // The others may be behind by as long as they have waited for their turn.
    while FINISHED.load(Ordering::Acquire) != all {
        cpu::relax();
    }
    for (index, ran) in RAN.iter().enumerate().take(smp::count()) {
        println!("@share cpu={index} ran={}", ran.load(Ordering::Relaxed));
    }
    println!("@done");
}

fn spin(_: u64) {
    let at = |option, default| timer::ticks(options::number(option, default));
    let (from, until) = (at("from", 200_000), at("until", 500_000));
    if from != 0 && Timer::Physical.now() >= from {
        println!("@late cpu={}", cpu::this().index());
    }
    while Timer::Physical.now() < from {}
    let (began, before) = (Timer::Physical.now(), stolen());
    while Timer::Physical.now() < until {}
    let microseconds = (Timer::Physical.now() - began) * 1_000_000 / timer::frequency();
    let ran = microseconds.saturating_sub((stolen() - before) / 1000);
    RAN[cpu::this().index() & 63].store(ran, Ordering::Relaxed);
    FINISHED.fetch_add(1, Ordering::Release);
}

/// Returns the nanoseconds that were stolen from this CPU; 0 where nobody says.
fn stolen() -> u64 {
    let record = psci::call(PV_TIME_ST, [0; 3]);
    if record < 0 {
        return 0;
    }
    mmio::read64(record as u64 + 8)
}
