// SPDX-License-Identifier: Apache-2.0 OR MIT
//! FP and SIMD registers over exits: q0 to q31, FPCR and FPSR hold while the CPU leaves the guest in every
//! way, on all CPUs at once with patterns of their own.

use core::arch::asm;
use core::sync::atomic::{AtomicU64, Ordering::SeqCst};

use turnstile_guests::gic::{self, offset};
use turnstile_guests::psci::{self, function, status};
use turnstile_guests::test::{Outcome, Test};
use turnstile_guests::timer::{self, Timer};
use turnstile_guests::{check, check_eq, cpu, irq, mmio, read_sysreg, skip, smp};

pub const TESTS: &[Test] = &[
    Test { name: "fp-exits", run: exits },
    Test { name: "fp-interrupts", run: interrupts },
    Test { name: "fp-all-cpus", run: all_cpus },
];

#[repr(C, align(16))]
struct Vectors {
    q: [u128; 32],
    fpcr: u64,
    fpsr: u64,
}

impl Vectors {
    fn pattern(seed: u64) -> Vectors {
        let word = |index: u64| (seed + index + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Vectors {
            q: core::array::from_fn(|index| {
                u128::from(word(index as u64)) << 64 | u128::from(!word(index as u64 + 77))
            }),
            fpcr: 1 << 22,
            fpsr: 1 << 27 | seed & 0xf,
        }
    }

    fn load(&self) {
        // SAFETY: this program is compiled without FP registers; they hold nothing but these patterns.
        unsafe {
            asm!(
                ".arch_extension fp", ".arch_extension simd",
                "ldp q0, q1, [{p}]", "ldp q2, q3, [{p}, #32]", "ldp q4, q5, [{p}, #64]",
                "ldp q6, q7, [{p}, #96]", "ldp q8, q9, [{p}, #128]", "ldp q10, q11, [{p}, #160]",
                "ldp q12, q13, [{p}, #192]", "ldp q14, q15, [{p}, #224]", "ldp q16, q17, [{p}, #256]",
                "ldp q18, q19, [{p}, #288]", "ldp q20, q21, [{p}, #320]", "ldp q22, q23, [{p}, #352]",
                "ldp q24, q25, [{p}, #384]", "ldp q26, q27, [{p}, #416]", "ldp q28, q29, [{p}, #448]",
                "ldp q30, q31, [{p}, #480]",
                "ldr {t}, [{p}, #512]", "msr fpcr, {t}", "ldr {t}, [{p}, #520]", "msr fpsr, {t}",
                ".arch_extension nosimd", ".arch_extension nofp",
                p = in(reg) self, t = out(reg) _, options(nostack),
            );
        }
    }

    fn store(&mut self) {
        // SAFETY: stores into this structure only.
        unsafe {
            asm!(
                ".arch_extension fp", ".arch_extension simd",
                "stp q0, q1, [{p}]", "stp q2, q3, [{p}, #32]", "stp q4, q5, [{p}, #64]",
                "stp q6, q7, [{p}, #96]", "stp q8, q9, [{p}, #128]", "stp q10, q11, [{p}, #160]",
                "stp q12, q13, [{p}, #192]", "stp q14, q15, [{p}, #224]", "stp q16, q17, [{p}, #256]",
                "stp q18, q19, [{p}, #288]", "stp q20, q21, [{p}, #320]", "stp q22, q23, [{p}, #352]",
                "stp q24, q25, [{p}, #384]", "stp q26, q27, [{p}, #416]", "stp q28, q29, [{p}, #448]",
                "stp q30, q31, [{p}, #480]",
                "mrs {t}, fpcr", "str {t}, [{p}, #512]", "mrs {t}, fpsr", "str {t}, [{p}, #520]",
                ".arch_extension nosimd", ".arch_extension nofp",
                p = in(reg) &raw mut *self, t = out(reg) _, options(nostack),
            );
        }
    }

    /// Returns the number of the first register that differs; 32 and 33 are FPCR and FPSR.
    fn difference(&self, other: &Vectors) -> Option<usize> {
        let q = self.q.iter().zip(&other.q).position(|(one, two)| one != two);
        let control = [(self.fpcr, other.fpcr), (self.fpsr, other.fpsr)];
        q.or_else(|| control.iter().position(|(one, two)| one != two).map(|index| index + 32))
    }
}

/// Runs `body` with a pattern in the registers; returns the first register that did not keep it.
fn held(seed: u64, body: impl FnOnce()) -> Option<usize> {
    let before = Vectors::pattern(seed);
    let mut after = Vectors::pattern(0);
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
    if read_sysreg!("id_aa64pfr0_el1") >> 16 & 0xf == 0xf {
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
