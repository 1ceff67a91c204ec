// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Far more interrupts at once than list registers: all SGIs between all CPUs, all private and all shared
//! interrupts pending together, at mixed priorities, with handlers nested in handlers. Each one that was sent is
//! taken exactly once.
//!
//! Options: `test=NAME` selects, `rounds=` (default 8) says how often, `seed=` (1) with which priorities.
#![no_std]
#![no_main]

mod account;
mod crew;
mod line;

use turnstile_guests::platform::platform;
use turnstile_guests::random::{self, Random};
use turnstile_guests::test::{Outcome, Test};
use turnstile_guests::{
    check, console, cpu, entry, gic, irq, mmio, mmu, options, platform as machine, println, skip, smp, test,
    timer,
};

entry!(main);

const TESTS: &[Test] = &[
    Test { name: "pressure-all", run: || storm(Storm::CALM) },
    Test { name: "pressure-disabled", run: || storm(Storm { disabling: true, ..Storm::CALM }) },
    Test { name: "pressure-lines", run: || storm(Storm { lines: true, ..Storm::CALM }) },
    Test { name: "pressure-eoi-mode", run: || storm(Storm { late: true, ..Storm::CALM }) },
    Test {
        name: "pressure-eoi-mode-elsewhere",
        run: || storm(Storm { elsewhere: true, late: true, ..Storm::CALM }),
    },
    Test {
        name: "pressure-together",
        run: || storm(Storm { disabling: true, lines: true, elsewhere: true, late: true }),
    },
];

/// What makes it harder.
#[derive(Clone, Copy)]
struct Storm {
    /// Shared interrupts are disabled and enabled while they are pending and active.
    disabling: bool,
    /// The console's line rises and falls.
    lines: bool,
    /// EOImode 1, and the deactivation comes later.
    late: bool,
    /// The deactivation of shared interrupts comes from another CPU.
    elsewhere: bool,
}

impl Storm {
    const CALM: Self = Self { disabling: false, lines: false, late: false, elsewhere: false };
}

fn main() {
    println!("@boot pressure");
    machine::report();
    mmu::enable();
    test::run(&[TESTS]);
}

/// Runs rounds of a storm with all CPUs.
fn storm(how: Storm) -> Outcome {
    if platform().gicd.is_none() {
        skip!("no interrupt controller");
    }
    if smp::count() > account::MAX_CPUS || how.elsewhere && smp::count() < 2 {
        skip!("{} CPUs", smp::count());
    }
    account::reset();
    let outcome = crew::with(how.late, how.elsewhere, || rounds(how));
    line::set(false);
    console::init();
    outcome
}

fn rounds(how: Storm) -> Outcome {
    let mut random = random::stream(1);
    let mut together = 0;
    for round in 1..=options::number("rounds", 8) as u32 {
        set_up(round);
        crew::step();
        account::shared_words().for_each(|(word, mask)| {
            mmio::write32(gic::distributor() + gic::offset::ISPENDR + 4 * word, mask);
        });
        crew::send();
        crew::step();
        together = together.max(account::waiting());
        crew::step();
        cpu::unmask_irq();
        let mut disturbances = 200;
        let done = timer::wait(20_000_000, || {
            if disturbances > 0 {
                disturbances -= 1;
                disturb(how, &mut random);
            } else {
                calm(how);
            }
            crew::deactivate();
            disturbances == 0 && account::first_wrong(round).is_none()
        });
        crew::finish(round);
        if let Some(wrong) = account::first_wrong(round) {
            check!(false, "round {round}: {wrong}");
        }
        check!(done, "round {round} does not end");
    }
    let (deepest, lines) = (crew::deepest(), platform().uart.map_or(0, |uart| irq::count(uart.intid)));
    println!("  {together} at once, {deepest} nested, {lines} levels, {} spurious", irq::spurious());
    check!(together > 100, "only {together} were pending at once");
    check!(deepest == crew::DEEPEST, "handlers were not nested");
    check!(!how.lines || lines > 0, "the line was never high");
    Ok(())
}

/// Gives shared interrupts other priorities and other CPUs in each round, and sets up the leader's own.
fn set_up(round: u32) {
    for intid in account::shared().chain(platform().uart.map(|uart| uart.intid)) {
        gic::set_edge(intid, !line::is(intid));
        gic::set_priority(intid, crew::priority(intid, round));
        gic::set_route(intid, smp::affinity((intid + round) as usize % smp::count()));
        gic::enable(intid);
    }
    crew::set_up(round);
}

/// Switches something off and on while interrupts come and go.
fn disturb(how: Storm, random: &mut Random) {
    if how.disabling {
        let base = gic::distributor();
        for (word, mask) in account::shared_words() {
            let some = mask & random.number() as u32;
            mmio::write32(base + gic::offset::ICENABLER + 4 * word, some);
            mmio::write32(base + gic::offset::ISENABLER + 4 * word, mask & random.number() as u32);
        }
    }
    if how.lines {
        line::set(random.below(2) == 0);
    }
}

/// Ends what [`disturb`] does.
fn calm(how: Storm) {
    if how.disabling {
        for (word, mask) in account::shared_words() {
            mmio::write32(gic::distributor() + gic::offset::ISENABLER + 4 * word, mask);
        }
    }
    if how.lines {
        line::set(false);
    }
}
