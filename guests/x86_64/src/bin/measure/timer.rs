// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The APIC's timer by a deadline: set, and its interrupt taken and ended, by paravirtual EOI where that is offered, as Linux does.

use turnstile_guests_x86_64::cpu::feature;
use turnstile_guests_x86_64::{apic, bench, cpu, measured_loop, println, pv_eoi, timer};

use super::self_ipi::{VECTOR, prepare, word};

/// Microseconds to the interrupt of a CPU that goes on, and how often it goes round meanwhile, in two instructions: longer than
/// that, whatever it is interrupted by, where an instruction takes a nanosecond.
const SOON: u64 = 20;
const ROUNDS: u32 = 12_000;
/// Microseconds of sleep: more than other hypervisors spend on looking whether something comes.
const LATER: u64 = 1000;

/// Sets APIC, handler and timer up; says whether this machine has what is needed. With paravirtual EOI?
fn begin() -> Option<bool> {
    if !cpu::has(feature::TSC_DEADLINE) {
        println!("@error this machine's timer knows no deadline");
        return None;
    }
    let pv = pv_eoi::is_offered();
    prepare(true, pv).then(|| {
        apic::write(apic::register::LVT_TIMER, apic::DEADLINE | u32::from(VECTOR));
        pv
    })
}

/// The CPU executes a fixed number of instructions, during which the timer fires: so what the exits take adds to the time of an
/// operation, and the guest's counter sees it.
pub fn interrupt() {
    let Some(pv) = begin() else { return };
    cpu::unmask();
    match pv {
        true => bench::measure("timer-interrupt", running, idle::<4>),
        false => bench::measure("timer-interrupt", running, idle::<6>),
    }
    cpu::mask();
}

fn running(count: u64) {
    measured_loop!(count, [
            "inc r15",
            "rdtsc",
            "add eax, r11d",
            "adc edx, 0",
            "mov ecx, 0x6e0",
            "wrmsr",
            "mov ecx, {rounds}",
            "2:",
            "dec ecx",
            "jnz 2b",
            "3:",
            "cmp r14, r15",
            "je 4f",
            "pause",
            "jmp 3b",
            "4:",
        ], inout("r14") 0_u64 => _, inout("r15") 0_u64 => _, in("r13") word(), in("r11") timer::ticks(SOON),
        rounds = const ROUNDS, out("rax") _, out("rcx") _, out("rdx") _,);
}

/// The same without a timer; the handler has so many instructions.
fn idle<const HANDLER: usize>(count: u64) {
    measured_loop!(count, [
            ".rept 6 + {handler}",
            "nop",
            ".endr",
            "mov ecx, {rounds}",
            "2:",
            "dec ecx",
            "jnz 2b",
            "nop",
            "nop",
        ], handler = const HANDLER, rounds = const ROUNDS, out("rcx") _,);
}

/// The CPU waits by HLT, with interrupts let in by it alone.
pub fn sleep() {
    if begin().is_none() {
        return;
    }
    bench::measure("sleep-wake", sleeping, awake);
}

fn sleeping(count: u64) {
    measured_loop!(count, [
            "inc r15",
            "rdtsc",
            "add eax, r11d",
            "adc edx, 0",
            "mov ecx, 0x6e0",
            "wrmsr",
            "2:",
            "cmp r14, r15",
            "je 3f",
            "sti",
            "hlt",
            "cli",
            "jmp 2b",
            "3:",
        ], inout("r14") 0_u64 => _, inout("r15") 0_u64 => _, in("r13") word(), in("r11") timer::ticks(LATER),
        out("rax") _, out("rcx") _, out("rdx") _,);
}

fn awake(count: u64) {
    measured_loop!(count, ["inc r15", "nop"], inout("r15") 0_u64 => _,);
}
