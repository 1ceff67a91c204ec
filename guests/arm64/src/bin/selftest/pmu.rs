// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A PMU with event counters, which the guest owns: they count what the guest does and nothing else, and their
//! overflow interrupts it (Arm ARM D13).

use core::hint::black_box;

use turnstile_guests::platform::platform;
use turnstile_guests::state::pmu;
use turnstile_guests::test::{Outcome, Test};
use turnstile_guests::{check, check_eq, cpu, gic, irq, psci, read_sysreg, skip, timer, write_sysreg};

pub const TESTS: &[Test] = &[
    Test { name: "pmu-counts-its-own", run: counts_its_own },
    Test { name: "pmu-counts-nothing-below", run: counts_nothing_below },
    Test { name: "pmu-overflow", run: overflow },
];

/// Instructions of the guest in one turn of a loop around a hypercall, at most. The hypervisor executes more for it.
const MOST_PER_TURN: u64 = 24;
const TURNS: u64 = 100;

/// Starts the first counter with an event and a value.
fn start(event: u64, value: u64) {
    pmu::stop();
    pmu::set(0, event, value);
    write_sysreg!("pmcntenset_el0", 1);
    write_sysreg!("pmcr_el0", pmu::ENABLE | pmu::LONG_CYCLES);
}

fn counts_its_own() -> Outcome {
    if !pmu::has_counters() {
        skip!("no event counters");
    }
    start(pmu::SW_INCR, 0);
    for _ in 0..7 {
        pmu::increment(1);
        psci::call(psci::function::VERSION, [0; 3]);
    }
    let count = pmu::count(0);
    pmu::stop();
    check_eq!(count, 7, "SW_INCR");
    Ok(())
}

/// Instructions at EL2 are not counted.
fn counts_nothing_below() -> Outcome {
    if !pmu::has_counters() || read_sysreg!("pmceid0_el0") >> pmu::INST_RETIRED & 1 == 0 {
        skip!("instructions are not counted here");
    }
    start(pmu::INST_RETIRED, 0);
    let before = pmu::count(0);
    for _ in 0..TURNS {
        black_box(psci::call(psci::function::VERSION, [0; 3]));
    }
    let count = pmu::count(0).wrapping_sub(before);
    pmu::stop();
    check!((TURNS..=TURNS * MOST_PER_TURN).contains(&count), "{count} instructions in {TURNS} turns");
    Ok(())
}

fn overflow() -> Outcome {
    let Some(intid) = platform().pmu else { skip!("no PMU") };
    if !pmu::has_counters() {
        skip!("no event counters");
    }
    fn end(_: u32) {
        write_sysreg!("pmovsclr_el0", 1);
    }
    irq::set_handler(Some(end));
    gic::enable(intid);
    start(pmu::SW_INCR, 0xffff_fff0);
    write_sysreg!("pmintenset_el1", 1);
    let before = irq::count(intid);
    cpu::unmask_irq();
    for _ in 0..15 {
        pmu::increment(1);
    }
    timer::delay(100);
    let early = irq::count(intid) - before;
    pmu::increment(1);
    let came = timer::wait(100_000, || irq::count(intid) != before);
    timer::delay(100);
    cpu::mask_irq();
    let count = irq::count(intid) - before;
    // From PMUv3p5 on it has 64 bits, and overflows out of 32 all the same.
    let counter = pmu::count(0) & 0xffff_ffff;
    pmu::stop();
    check_eq!(early, 0, "interrupts before the overflow");
    check!(came, "no overflow interrupt");
    check_eq!(count, 1, "overflow interrupts");
    check_eq!(counter, 0, "the counter behind the overflow");
    Ok(())
}
