// SPDX-License-Identifier: Apache-2.0 OR MIT
//! FP and SIMD registers over exits: q0 to q31, FPCR and FPSR hold while the CPU leaves the guest in every
//! way, on all CPUs at once with patterns of their own.

use core::sync::atomic::{AtomicU64, Ordering::SeqCst};

use turnstile_guests::gic::{self, offset};
use turnstile_guests::psci::{self, function, status};
use turnstile_guests::state::fp::{self, Vectors};
use turnstile_guests::test::{Outcome, Test};
use turnstile_guests::timer::{self, Timer};
use turnstile_guests::{check, check_eq, cpu, irq, mmio, read_sysreg, skip, smp};

pub const TESTS: &[Test] = &[
    Test { name: "fp-exits", run: exits },
    Test { name: "fp-interrupts", run: interrupts },
    Test { name: "fp-all-cpus", run: all_cpus },
];

/// Runs `body` with a pattern in the registers; returns the first register that did not keep it.
fn held(seed: u64, body: impl FnOnce()) -> Option<usize> {
    let before = Vectors::pattern(seed);
    let mut after = Vectors::default();
    before.load();
    body();
    after.store();
    before.difference(&after)
}

fn each_exit() {
    psci::call(function::VERSION, [0; 3]);
    psci::call(0x8400_ffff, [0; 3]);
    mmio::read32(gic::distributor() + offset::TYPER);
    core::hint::black_box(read_sysreg!("id_aa64isar0_el1"));
    cpu::synchronize();
}

fn exits() -> Outcome {
    if !fp::exists() {
        skip!("no FP");
    }
    for seed in 1..50 {
        check!(held(seed, each_exit).is_none(), "a register changed in round {seed}");
    }
    Ok(())
}

fn interrupts() -> Outcome {
    fn rearm(_: u32) {
        Timer::Virtual.set_compare(timer::now() + timer::ticks(100));
    }
    let intid = Timer::Virtual.intid();
    irq::set_handler(Some(rearm));
    gic::enable(intid);
    Timer::Virtual.set_compare(timer::now());
    Timer::Virtual.set_control(timer::ENABLE);
    for seed in 1..20 {
        let count = irq::count(intid);
        let changed = held(seed, || {
            cpu::unmask_irq();
            timer::wait(1_000_000, || {
                each_exit();
                cpu::wfi();
                irq::count(intid) >= count + 3
            });
            cpu::mask_irq();
        });
        check!(irq::count(intid) >= count + 3, "no interrupts");
        check!(changed.is_none(), "register {changed:?} changed in round {seed}");
    }
    Ok(())
}

static BAD: AtomicU64 = AtomicU64::new(0);
static ROUNDS: AtomicU64 = AtomicU64::new(0);

fn hold_rounds(seed: u64) {
    for round in 0..50 {
        if held(seed << 32 | round, each_exit).is_some() {
            BAD.fetch_add(1, SeqCst);
        }
    }
    ROUNDS.fetch_add(1, SeqCst);
}

fn all_cpus() -> Outcome {
    if smp::count() < 2 {
        skip!("one CPU");
    }
    BAD.store(0, SeqCst);
    ROUNDS.store(0, SeqCst);
    for index in smp::others() {
        check_eq!(smp::start(index, hold_rounds, index as u64 + 1), status::SUCCESS, "CPU_ON");
    }
    hold_rounds(0x55);
    check!(timer::wait(5_000_000, || ROUNDS.load(SeqCst) as usize == smp::count()), "CPUs are missing");
    check!(smp::others().all(smp::wait_off), "CPUs do not go off");
    check!(BAD.load(SeqCst) == 0, "{} rounds with changed registers", BAD.load(SeqCst));
    Ok(())
}
