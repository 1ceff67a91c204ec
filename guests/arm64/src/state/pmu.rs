// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The PMU's counters (PMUv3, Arm ARM D13).

use core::arch::asm;

use super::word;
use crate::platform::platform;
use crate::{read_sysreg, write_sysreg};

/// PMCR_EL0.E.
pub const ENABLE: u64 = 1 << 0;
/// PMCR_EL0.P and C: all counters to zero.
pub const RESET: u64 = 1 << 1 | 1 << 2;
/// PMCR_EL0.LC.
pub const LONG_CYCLES: u64 = 1 << 6;
/// The cycle counter's bit in PMCNTENSET_EL0 and others.
pub const CYCLES: u64 = 1 << 31;
/// Event: a write of PMSWINC_EL0.
pub const SW_INCR: u64 = 0x00;
/// Event: an instruction executed.
pub const INST_RETIRED: u64 = 0x08;
const ALL: u64 = 0xffff_ffff;

/// Returns how many event counters there are.
pub fn counters() -> u64 {
    if platform().pmu.is_none() { 0 } else { read_sysreg!("pmcr_el0") >> 11 & 0x1f }
}

/// Says whether there are event counters.
pub fn has_counters() -> bool {
    counters() != 0
}

/// Selects a counter's event, and sets the counter.
pub fn set(counter: u64, event: u64, value: u64) {
    write_sysreg!("pmselr_el0", counter);
    write_sysreg!("pmxevtyper_el0", event);
    write_sysreg!("pmxevcntr_el0", value);
}

/// Returns an event counter.
pub fn count(counter: u64) -> u64 {
    write_sysreg!("pmselr_el0", counter);
    read_sysreg!("pmxevcntr_el0")
}

/// Returns an event counter's event.
fn event(counter: u64) -> u64 {
    write_sysreg!("pmselr_el0", counter);
    read_sysreg!("pmxevtyper_el0")
}

/// Stops everything.
pub fn stop() {
    write_sysreg!("pmcr_el0", LONG_CYCLES);
    write_sysreg!("pmcntenclr_el0", ALL);
    write_sysreg!("pmintenclr_el1", ALL);
    write_sysreg!("pmovsclr_el0", ALL);
}

/// Fills the registers: counters that stand still.
pub fn fill(seed: u64) {
    stop();
    for counter in 0..counters() {
        set(counter, SW_INCR, word(seed, counter) & ALL);
    }
    write_sysreg!("pmccntr_el0", word(seed, 31));
    write_sysreg!("pmuserenr_el0", seed & 1);
    write_sysreg!("pmcntenset_el0", seed & 1);
}

/// Says whether the registers are as filled.
pub fn holds(seed: u64) -> bool {
    let selected = read_sysreg!("pmselr_el0");
    let still = read_sysreg!("pmcr_el0") & ENABLE == 0
        && read_sysreg!("pmcntenset_el0") == seed & 1
        && read_sysreg!("pmuserenr_el0") == seed & 1
        && read_sysreg!("pmintenset_el1") == 0
        && read_sysreg!("pmovsset_el0") == 0
        && read_sysreg!("pmccntr_el0") == word(seed, 31)
        && selected == if seed == 0 { 0 } else { counters() - 1 };
    let counts =
        (0..counters()).all(|counter| count(counter) == word(seed, counter) & ALL && event(counter) == 0);
    // The comparison has selected others.
    write_sysreg!("pmselr_el0", selected);
    still && counts
}

/// Counts one SW_INCR on each counter in `mask`.
pub fn increment(mask: u64) {
    // SAFETY: counts.
    unsafe { asm!("msr pmswinc_el0, {}", "isb", in(reg) mask, options(nomem, nostack)) };
}
