// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Says what share of its physical CPUs each of its CPUs got between two moments of the timebase, which all VMs have in
//! common: the time that was not taken from it. It never waits, never exits, and takes no interrupts.
//!
//! The gaps between two looks at the timebase that are longer than a few microseconds are the time of others: no hypervisor
//! has to tell.
//!
//! Options: `from=` and `until=`, microseconds on the timebase (200000 and 500000); from the start on if `from=0`;
//! with `relative`, both count from the start of this VM. `told` compares the gaps with what the hypervisor tells of them.
#![no_std]
#![no_main]

use core::sync::atomic::{AtomicU64, Ordering};

use turnstile_guests_common::share::{self, Shares};
use turnstile_guests_power64::console::Console;
use turnstile_guests_power64::platform::{MAX_CPUS, platform};
use turnstile_guests_power64::{cpu, entry, options, println, smp, timer, turns};

entry!(main);

/// Microseconds that no loop of this program takes, and no visit of a hypervisor that gives nobody else the CPU.
const GAP: u64 = 50;

/// What is told may differ from the gaps by so many thousandths of the time: of the hypervisor's own work, gaps have what is
/// behind a turn's end and before the next one's begin.
const TOLERANCE: u64 = 20;

/// The time from which `from=` and `until=` count.
static BASE: AtomicU64 = AtomicU64::new(0);
static SHARES: Shares<MAX_CPUS> = Shares::new();

fn main() {
    if options::get("relative").is_some() {
        BASE.store(timer::now(), Ordering::Relaxed);
    }
    if !smp::start_others(spin) {
        return;
    }
    spin(0);
    SHARES.report(&mut Console, smp::count(), cpu::relax);
}

fn spin(_: u64) {
    let (this, gap) = (cpu::this().index(), timer::ticks(GAP));
    let (line, base) = (platform().command_line(), BASE.load(Ordering::Relaxed));
    let moments = share::wait_for_begin(&mut Console, line, &timer::clock(), base, this);
    let told = options::get("told").is_some();
    if told {
        turns::register();
    }
    let mut last = timer::now();
    let mut ran = 0;
    while last < moments.end {
        let now = timer::now();
        let passed = now - last;
        ran += if passed < gap { passed } else { 0 };
        last = now;
    }
    if told {
        let all = moments.end - moments.start;
        compare(turns::stolen(), all.saturating_sub(ran), all);
    }
    SHARES.enter(this, timer::microseconds(ran));
}

/// Complains if what was told is not what was missed.
fn compare(told: u64, missed: u64, of: u64) {
    let [told, missed, of] = [told, missed, of].map(timer::microseconds);
    println!("@told stolen={told} missed={missed}");
    if told.abs_diff(missed) > of * TOLERANCE / 1000 {
        println!("@error {told} microseconds are said to be stolen, and {missed} were missed");
    }
}
