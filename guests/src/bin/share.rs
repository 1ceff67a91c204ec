// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Says what share of its physical CPUs each of its CPUs got: counts turns of a loop between two moments that are the
//! same for all VMs, because the physical counter tells them. It never waits, never exits, and takes no interrupts.
//!
//! Options: `from=` and `until=`, microseconds since the machine was switched on (1000000 and 2000000).
#![no_std]
#![no_main]

use core::sync::atomic::{AtomicU64, Ordering};

use turnstile_guests::timer::{self, Timer};
use turnstile_guests::{cpu, entry, mmu, options, println, psci, smp};

entry!(main);

/// CPUs that have finished.
static FINISHED: AtomicU64 = AtomicU64::new(0);
static TURNS: [AtomicU64; 64] = [const { AtomicU64::new(0) }; 64];

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
    for (index, turns) in TURNS.iter().enumerate().take(smp::count()) {
        println!("@share cpu={index} turns={}", turns.load(Ordering::Relaxed));
    }
    println!("@done");
}

fn spin(_: u64) {
    let at = |option, default| timer::ticks(options::number(option, default));
    let (from, until) = (at("from", 1_000_000), at("until", 2_000_000));
    if Timer::Physical.now() >= from {
        println!("@error CPU {} came too late", cpu::this().index());
    }
    while Timer::Physical.now() < from {}
    let mut turns = 0;
    while Timer::Physical.now() < until {
        turns += 1;
    }
    TURNS[cpu::this().index() & 63].store(turns, Ordering::Relaxed);
    FINISHED.fetch_add(1, Ordering::Release);
}
