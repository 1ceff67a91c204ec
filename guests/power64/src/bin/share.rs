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

use turnstile_guests_common::share::{self, Shares};
use turnstile_guests_power64::console::Console;
use turnstile_guests_power64::platform::{MAX_CPUS, platform};
use turnstile_guests_power64::{cpu, entry, smp, timer};

entry!(main);

/// Microseconds that no loop of this program takes, and no visit of a hypervisor that gives nobody else the CPU.
const GAP: u64 = 50;

static SHARES: Shares<MAX_CPUS> = Shares::new();

fn main() {
    if !smp::start_others(spin) {
        return;
    }
    spin(0);
    SHARES.report(&mut Console, smp::count(), cpu::relax);
}

fn spin(_: u64) {
    let (this, gap) = (cpu::this().index(), timer::ticks(GAP));
    let until = share::wait_for_begin(&mut Console, platform().command_line(), &timer::clock(), this);
    let mut last = timer::now();
    let mut ran = 0;
    while last < until {
        let now = timer::now();
        let passed = now - last;
        ran += if passed < gap { passed } else { 0 };
        last = now;
    }
    SHARES.enter(this, timer::microseconds(ran));
}
