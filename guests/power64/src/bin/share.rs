// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Says what share of its physical CPUs each of its CPUs got between two moments of the timebase, which all VMs have in
//! common: the time that was not taken from it. It never waits, never exits, and takes no interrupts.
//!
//! The gaps between two looks at the timebase that are longer than a few microseconds are the time of others: no hypervisor
//! has to tell.
//!
//! Options: `from=` and `until=`, microseconds on the timebase (200000 and 500000); from the start on if `from=0`.
#![no_std]
#![no_main]

use core::sync::atomic::{AtomicU64, Ordering};

use turnstile_guests_power64::platform::MAX_CPUS;
use turnstile_guests_power64::{cpu, entry, options, println, smp, timer};

entry!(main);

/// Microseconds that no loop of this program takes, and no visit of a hypervisor that gives nobody else the CPU.
const GAP: u64 = 50;

/// CPUs that have finished.
static FINISHED: AtomicU64 = AtomicU64::new(0);
static RAN: [AtomicU64; MAX_CPUS] = [const { AtomicU64::new(0) }; MAX_CPUS];

fn main() {
    for index in smp::others() {
        if !smp::start(index, spin, 0) {
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
    let (this, gap) = (cpu::this().index(), timer::ticks(GAP));
    if from != 0 && timer::now() >= from {
        println!("@late cpu={this}");
    }
    while timer::now() < from {}
    let mut last = timer::now();
    let mut ran = 0;
    while last < until {
        let now = timer::now();
        let passed = now - last;
        ran += if passed < gap { passed } else { 0 };
        last = now;
    }
    RAN[this].store(timer::microseconds(ran), Ordering::Relaxed);
    FINISHED.fetch_add(1, Ordering::Release);
}
