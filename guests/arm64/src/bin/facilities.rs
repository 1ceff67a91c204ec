// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Looks whether anything of vector registers, PMU, debug registers and keys comes from somebody else: at the start
//! nothing is in them, later what this program has put there, through every kind of exit and while others run on the
//! same CPU.
//!
//! Options: `seed=` what is put there (a VM's own number), `rounds=` (20), `again`: resets instead of powering off.
#![no_std]
#![no_main]

use core::hint::black_box;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use turnstile_guests::gic::{self, offset};
use turnstile_guests::psci::{self, function};
use turnstile_guests::state::{self, Present, debug, pauth, pmu};
use turnstile_guests::timer::{self, Timer};
use turnstile_guests::{cpu, entry, irq, mmio, mmu, options, platform, println, read_sysreg, write_sysreg};

entry!(main);

const PRESENT: Present = Present(&state::ALL);

/// What the watchpoint watches: at the same address in each VM that runs this program.
static WATCHED: AtomicU64 = AtomicU64::new(0);

fn main() {
    mmu::enable();
    gic::init();
    irq::set_handler(Some(tick));
    gic::enable(Timer::Virtual.intid());
    let number = options::number("seed", 1);
    let mut errors = 0;
    let mut report = |what: &str, name: &str, good: bool| {
        if !good {
            errors += 1;
            println!("@error {name}: {what}");
        }
    };
    // Debug exceptions of others must not come, from the first instruction on.
    report("a watchpoint that nobody has set", "debug", debug::touch(WATCHED.as_ptr() as u64).is_none());
    for state in PRESENT.wrong(0) {
        report("not as after a reset", state.name, false);
    }
    println!("@boot facilities {PRESENT}");
    for round in 0..options::number("rounds", 20) {
        let seed = state::seed(number, round);
        PRESENT.fill(seed);
        let code = if pauth::has_generic() { pauth::code(seed, round) } else { 0 };
        for _ in 0..8 {
            exits();
        }
        for state in PRESENT.wrong(seed) {
            report("changed", state.name, false);
        }
        let same = !pauth::has_generic() || pauth::code(seed, round) == code;
        report("the key makes another code", "pauth", same);
        report("the watchpoint", "debug", watches());
        if pmu::has_counters() {
            report("counted what is not its own", "pmu", counts_its_own());
        }
    }
    if options::get("again").is_some() && errors == 0 {
        println!("@again");
        psci::system_reset();
    }
    println!("@done facilities errors={errors}");
}

/// Leaves the guest in every way; the last one gives the CPU away, if there is somebody who wants it.
fn exits() {
    psci::call(function::VERSION, [0; 3]);
    psci::call(0x8400_ffff, [0; 3]);
    mmio::read32(gic::distributor() + offset::TYPER);
    black_box(read_sysreg!("id_aa64isar0_el1"));
    let intid = Timer::Virtual.intid();
    let count = irq::count(intid);
    Timer::Virtual.set_compare(timer::now() + timer::ticks(200));
    Timer::Virtual.set_control(timer::ENABLE);
    // Masked: the interrupt must not come between the look and the WFI, which would wait for the next one.
    while irq::count(intid) == count {
        cpu::wfi();
        cpu::unmask_irq();
        cpu::mask_irq();
    }
}

/// Silences the timer.
fn tick(_: u32) {
    Timer::Virtual.set_control(0);
}

/// A watchpoint fires when it is armed, also behind exits, and not when it is not.
fn watches() -> bool {
    let address = WATCHED.as_ptr() as u64;
    let silent = debug::touch(address).is_none();
    debug::watch(address);
    exits();
    let class = debug::touch(address).map(|trap| trap.class());
    debug::unwatch();
    WATCHED.fetch_add(1, Relaxed);
    silent && class == Some(debug::CLASS_WATCHPOINT) && debug::touch(address).is_none()
}

/// Counters count what this program does, and nothing while it does not run.
fn counts_its_own() -> bool {
    pmu::stop();
    pmu::set(0, pmu::SW_INCR, 0);
    write_sysreg!("pmcntenset_el0", 1);
    write_sysreg!("pmcr_el0", pmu::ENABLE | pmu::LONG_CYCLES);
    for _ in 0..5 {
        pmu::increment(1);
        exits();
    }
    let count = pmu::count(0);
    pmu::stop();
    count == 5 && platform::platform().pmu.is_some()
}
