// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Measures SGIs from the first CPU to others (seeds 001, 004): a receiver takes the SGI with IRQs masked, ends it,
//! and answers through memory; the sender waits for all answers.
//!
//! Options: `row=NAME` is what is reported; `target=N` sends to the CPU with this index (1), `broadcast` to all
//! others (ICC_SGI1R_EL1.IRM). Receivers poll, or with `wfi` wait by WFI; CPUs that receive nothing wait by WFI in
//! any case. With `handoff` the first CPU and its target take turns: each sends to the other and waits by WFI.
//!
//! Where one thread emulates all CPUs in turn, the ticks contain the waiting of all; what each side's exit
//! costs is then for the meter to say.
#![no_std]
#![no_main]

use core::arch::asm;
use core::sync::atomic::{AtomicU64, Ordering};

use turnstile_guests::platform::platform;
use turnstile_guests::{
    bench, cpu, entry, gic, measured_loop, mmu, options, println, read_sysreg, smp, timer,
};

entry!(main);

/// Time for each CPU to start, in microseconds.
const PATIENCE: u64 = 1_000_000;

/// A word that has a cache line of its own.
#[repr(align(64))]
struct Line(AtomicU64);

/// One for each CPU that has started, and one for each SGI that was taken.
static ANSWERS: Line = Line(AtomicU64::new(0));

fn main() {
    if platform().gicd.is_none() || read_sysreg!("id_aa64pfr0_el1") >> 24 & 0xf == 0 {
        println!("@error this machine has no GICv3");
        return;
    }
    let broadcast = options::get("broadcast").is_some();
    let target = options::number("target", 1) as usize;
    if !smp::others().any(|index| index == target) {
        println!("@error there is no other CPU {target}: this machine has {}", smp::count());
        return;
    }
    let handoff = options::get("handoff").is_some();
    mmu::enable();
    gic::init();
    gic::enable(0);
    for index in smp::others() {
        let work = match broadcast || index == target {
            true if handoff => take_turns,
            true => receive,
            false => stand_by,
        };
        let before = answers();
        let status = smp::start(index, work, smp::affinity(cpu::this().index()));
        if status != 0 || !timer::wait(PATIENCE, || answers() != before) {
            println!("@error CPU {index} does not start: CPU_ON returned {status}");
            return;
        }
    }
    let (value, receivers) = match broadcast {
        true => (gic::SGI_BROADCAST, smp::others().count() as u64),
        false => (gic::sgi_value(0, smp::affinity(target)), 1),
    };
    let row = options::get("row").unwrap_or("sgi");
    match handoff {
        // Each round hands over twice: there and back.
        true => {
            bench::measure(row, |count| hand_over(count.div_ceil(2), value), |count| nothing(count, value))
        }
        false => bench::measure(row, |count| send(count, value, receivers), |count| empty(count, receivers)),
    }
}

fn answers() -> u64 {
    ANSWERS.0.load(Ordering::Acquire)
}

fn answer() {
    ANSWERS.0.fetch_add(1, Ordering::Release);
}

fn send(iterations: u64, value: u64, receivers: u64) {
    let expected = answers();
    measured_loop!(iterations, [
            "add {e}, {e}, {r}",
            "msr S3_0_C12_C11_5, {value}",  // ICC_SGI1R_EL1
            "2:",
            "ldar x2, [{a}]",
            "cmp x2, {e}",
            "b.eq 3f",
            "yield",
            "b 2b",
            "3:",
        ], e = inout(reg) expected => _, r = in(reg) receivers, value = in(reg) value,
        a = in(reg) ANSWERS.0.as_ptr(), out("x2") _,);
}

fn empty(iterations: u64, receivers: u64) {
    let expected = answers();
    measured_loop!(iterations, [
            "add {e}, {e}, {r}",
            "nop",
            "2:",
            "ldar x2, [{a}]",
            "cmp x2, #0",
            "b.ne 3f",
            "yield",
            "b 2b",
            "3:",
        ], e = inout(reg) expected => _, r = in(reg) receivers, a = in(reg) ANSWERS.0.as_ptr(), out("x2") _,);
}

/// Sends, and waits to be sent to.
#[inline(never)]
fn hand_over(rounds: u64, value: u64) {
    measured_loop!(rounds, [
            "msr S3_0_C12_C11_5, {value}",  // ICC_SGI1R_EL1
            "2:",
            "mrs x2, S3_0_C12_C12_0",       // ICC_IAR1_EL1
            "cmp w2, #0x3ff",
            "b.ne 3f",
            "wfi",
            "b 2b",
            "3:",
            "msr S3_0_C12_C12_1, x2",       // ICC_EOIR1_EL1
        ], value = in(reg) value, out("x2") _,);
}

fn nothing(rounds: u64, value: u64) {
    measured_loop!(rounds, [
            "nop",
            "2:",
            "mov x2, {value}",
            "cmp x2, #0",
            "b.ne 3f",
            "wfi",
            "b 2b",
            "3:",
            "nop",
        ], value = in(reg) value, out("x2") _,);
}

/// Waits for the first SGI, and then hands over until the machine is switched off.
fn take_turns(first: u64) {
    gic::init_cpu();
    gic::enable(0);
    answer();
    let intid = loop {
        match gic::acknowledge() {
            gic::SPECIAL.. => cpu::wfi(),
            intid => break intid,
        }
    };
    gic::end(intid);
    hand_over(u64::MAX, gic::sgi_value(0, first));
}

/// Waits for nothing until the machine is switched off.
fn stand_by(_: u64) {
    answer();
    loop {
        cpu::wfi();
    }
}

/// Takes SGIs until the machine is switched off.
fn receive(_: u64) {
    gic::init_cpu();
    gic::enable(0);
    answer();
    let wfi = u64::from(options::get("wfi").is_some());
    // SAFETY: `ANSWERS` is the receivers' to add to; acknowledging and ending interrupts changes no memory.
    unsafe {
        asm!(
            "2:",
            "mrs x9, S3_0_C12_C12_0",      // ICC_IAR1_EL1
            "cmp w9, #0x3ff",
            "b.ne 4f",
            "cbz {wfi}, 3f",
            "wfi",
            "b 2b",
            "3:",
            "yield",
            "b 2b",
            "4:",
            "msr S3_0_C12_C12_1, x9",      // ICC_EOIR1_EL1
            "5:",
            "ldaxr x10, [{a}]",
            "add x10, x10, #1",
            "stlxr w9, x10, [{a}]",
            "cbnz w9, 5b",
            "b 2b",
            wfi = in(reg) wfi,
            a = in(reg) ANSWERS.0.as_ptr(),
            options(nostack, noreturn),
        );
    }
}
