// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Measures an SGI from one CPU to another through the GICv3 system registers (seed 004): the receiver takes it
//! by polling with IRQs masked, ends it, and answers through memory; the sender waits for the answer.
//!
//! Where one thread emulates both CPUs in turn, the ticks contain the waiting of both; what each side's exit
//! costs is then for the meter to say.
#![no_std]
#![no_main]

use core::arch::asm;
use core::sync::atomic::{AtomicU64, Ordering};

use turnstile_guests::platform::platform;
use turnstile_guests::{bench, entry, gic, measured_loop, mmu, println, read_sysreg, smp, timer};

entry!(main);

/// Time for the receiver to start, in microseconds.
const PATIENCE: u64 = 1_000_000;
/// What the receiver has answered before it has taken anything.
const READY: u64 = 1 << 32;

/// A word that has a cache line of its own.
#[repr(align(64))]
struct Line(AtomicU64);

/// How many SGIs the receiver has taken, above [`READY`]; zero until it has started.
static ANSWERS: Line = Line(AtomicU64::new(0));

fn main() {
    if platform().gicd.is_none() || read_sysreg!("id_aa64pfr0_el1") >> 24 & 0xf == 0 {
        println!("@error this machine has no GICv3");
        return;
    }
    let Some(receiver) = smp::others().next() else {
        println!("@error this machine has one CPU, and an IPI needs two");
        return;
    };
    mmu::enable();
    gic::init();
    let status = smp::start(receiver, receive, 0);
    if status != 0 || !timer::wait(PATIENCE, || answers() == READY) {
        println!("@error the second CPU does not start: CPU_ON returned {status}");
        return;
    }
    let value = gic::sgi_value(0, smp::affinity(receiver));
    bench::measure(
        "virtual-ipi",
        |iterations| send(iterations, value),
        |iterations| empty(iterations, value),
    );
}

fn answers() -> u64 {
    ANSWERS.0.load(Ordering::Acquire)
}

fn send(iterations: u64, value: u64) {
    let expected = answers();
    measured_loop!(iterations, [
            "add {e}, {e}, #1",
            "msr S3_0_C12_C11_5, {value}",  // ICC_SGI1R_EL1
            "2:",
            "ldar x2, [{a}]",
            "cmp x2, {e}",
            "b.eq 3f",
            "yield",
            "b 2b",
            "3:",
        ], e = inout(reg) expected => _, value = in(reg) value, a = in(reg) ANSWERS.0.as_ptr(), out("x2") _,);
}

fn empty(iterations: u64, value: u64) {
    let expected = answers();
    measured_loop!(iterations, [
            "add {e}, {e}, #1",
            "nop",
            "2:",
            "ldar x2, [{a}]",
            "cmp x2, {v}",
            "b.ne 3f",
            "yield",
            "b 2b",
            "3:",
        ], e = inout(reg) expected => _, v = in(reg) value, a = in(reg) ANSWERS.0.as_ptr(), out("x2") _,);
}

/// Takes SGIs until the machine is switched off.
fn receive(_: u64) {
    gic::init_cpu();
    gic::enable(0);
    // SAFETY: `ANSWERS` is the receiver's to write; acknowledging and ending interrupts changes no memory.
    unsafe {
        asm!(
            "stlr {n}, [{a}]",
            "2:",
            "mrs {i}, S3_0_C12_C12_0",      // ICC_IAR1_EL1
            "cmp {i:w}, #0x3ff",
            "b.ne 3f",
            "yield",
            "b 2b",
            "3:",
            "msr S3_0_C12_C12_1, {i}",      // ICC_EOIR1_EL1
            "add {n}, {n}, #1",
            "stlr {n}, [{a}]",
            "b 2b",
            n = in(reg) READY,
            a = in(reg) ANSWERS.0.as_ptr(),
            i = in(reg) 0_u64,
            options(nostack, noreturn),
        );
    }
}
