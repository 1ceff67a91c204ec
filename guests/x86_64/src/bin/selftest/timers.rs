// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The APIC's timer and the time-stamp counter.

use turnstile_guests_x86_64::apic::{self, register};
use turnstile_guests_x86_64::cpu::{self, feature, msr};
use turnstile_guests_x86_64::test::{Outcome, Test};
use turnstile_guests_x86_64::{check, check_eq, skip, timer};

use crate::log;

pub const TESTS: &[Test] = &[
    Test { name: "timer-one-shot", run: one_shot },
    Test { name: "timer-count", run: count },
    Test { name: "timer-periodic", run: periodic },
    Test { name: "timer-divide", run: divide },
    Test { name: "timer-masked", run: masked },
    Test { name: "timer-stopped", run: stopped },
    Test { name: "timer-deadline", run: deadline },
    Test { name: "timer-deadline-past", run: deadline_past },
    Test { name: "timer-ended", run: ended },
    Test { name: "timer-tsc", run: tsc },
];

const VECTOR: u8 = 0x51;

fn ticks(microseconds: u64) -> u32 {
    ((timer::ticks(microseconds) * timer::apic_ticks()) >> 20) as u32
}

fn one_shot() -> Outcome {
    let count = ticks(1000);
    log::begin();
    let start = timer::now();
    apic::set_timer(VECTOR, 0, count);
    check!(log::wait_for(1), "no interrupt");
    let late = timer::now() - start;
    check!(late >= timer::ticks(990), "it came after {} microseconds", timer::microseconds(late));
    log::wait(3000);
    check_eq!(log::count(), 1, "interrupts");
    check_eq!(apic::read(register::TIMER_CURRENT), 0, "the count afterwards");
    Ok(())
}

fn count() -> Outcome {
    timer::apic_ticks();
    apic::set_timer(VECTOR, apic::MASKED, u32::MAX);
    check_eq!(apic::read(register::TIMER_INITIAL), u32::MAX, "the first count");
    let first = apic::read(register::TIMER_CURRENT);
    timer::wait(100, || false);
    let second = apic::read(register::TIMER_CURRENT);
    check!(second < first, "the count goes from {first:#x} to {second:#x}");
    Ok(())
}

fn periodic() -> Outcome {
    let period = ticks(500);
    log::begin();
    apic::set_timer(VECTOR, apic::PERIODIC, period);
    log::wait(10_250);
    let came = log::count();
    check!((18..=21).contains(&came), "{came} interrupts in 20 periods");
    apic::write(register::TIMER_INITIAL, 0);
    log::wait(100);
    let came = log::count();
    log::wait(2000);
    check_eq!(log::count(), came, "interrupts after the end");
    Ok(())
}

/// With each divider, an eighth of the ticks takes an eighth of the time.
fn divide() -> Outcome {
    let count = ticks(1000);
    for (value, divisor) in [(0xb, 1), (0, 2), (2, 8), (0xa, 128)] {
        log::begin();
        apic::write(register::LVT_TIMER, u32::from(VECTOR));
        apic::write(register::TIMER_DIVIDE, value);
        let start = timer::now();
        apic::write(register::TIMER_INITIAL, count / divisor);
        check!(log::wait_for(1), "no interrupt with the divider {divisor}");
        let took = timer::microseconds(timer::now() - start);
        check!((980..3000).contains(&took), "{took} microseconds with the divider {divisor}");
    }
    Ok(())
}

fn masked() -> Outcome {
    let count = ticks(200);
    log::begin();
    apic::set_timer(VECTOR, apic::MASKED, count);
    log::wait(1000);
    check_eq!(log::count(), 0, "interrupts");
    check!(!apic::bit(register::IRR, VECTOR), "it is pending");
    Ok(())
}

fn stopped() -> Outcome {
    let count = ticks(500);
    log::begin();
    apic::set_timer(VECTOR, 0, count);
    apic::write(register::TIMER_INITIAL, 0);
    log::wait(2000);
    check_eq!(log::count(), 0, "interrupts");
    Ok(())
}

fn deadline() -> Outcome {
    if !cpu::has(feature::TSC_DEADLINE) {
        skip!("no deadline");
    }
    log::begin();
    let due = timer::now() + timer::ticks(1000);
    timer::arm(VECTOR, due);
    check_eq!(cpu::read_msr(msr::TSC_DEADLINE), due, "the deadline");
    check!(log::wait_for(1), "no interrupt");
    check!(timer::now() >= due, "it came too early");
    check_eq!(cpu::read_msr(msr::TSC_DEADLINE), 0, "the deadline afterwards");
    timer::arm(VECTOR, timer::now() + timer::ticks(1000));
    timer::disarm();
    log::wait(3000);
    check_eq!(log::count(), 1, "interrupts after a deadline was taken back");
    Ok(())
}

fn deadline_past() -> Outcome {
    if !cpu::has(feature::TSC_DEADLINE) {
        skip!("no deadline");
    }
    log::begin();
    timer::arm(VECTOR, 1);
    check!(log::wait_for(1), "no interrupt for a deadline that has passed");
    if crate::is_bare() {
        return Ok(());
    }
    // It does not wait for a timer: the interrupt is there before the next instruction but one.
    for round in 2..20 {
        cpu::unmask();
        timer::arm(VECTOR, timer::now());
        cpu::relax();
        cpu::mask();
        check_eq!(log::count(), round, "interrupts in time");
        check_eq!(cpu::read_msr(msr::TSC_DEADLINE), 0, "the deadline afterwards");
    }
    Ok(())
}

/// A count that has ended stays where it is when the mode changes: a new one begins with the initial count's register.
fn ended() -> Outcome {
    if crate::is_bare() {
        skip!("QEMU's count begins again");
    }
    log::begin();
    apic::set_timer(VECTOR, 0, ticks(100));
    check!(log::wait_for(1), "no interrupt");
    apic::write(register::LVT_TIMER, apic::PERIODIC | u32::from(VECTOR));
    log::wait(500);
    check_eq!(apic::read(register::TIMER_CURRENT), 0, "the count");
    check_eq!(log::count(), 1, "interrupts");
    Ok(())
}

fn tsc() -> Outcome {
    if crate::is_bare() {
        skip!("QEMU's register is zero");
    }
    let mut before = timer::now();
    for _ in 0..1000 {
        let now = timer::now();
        check!(now >= before, "the counter goes back from {before:#x} to {now:#x}");
        before = now;
        cpu::cpuid(0, 0);
    }
    let read = cpu::read_msr(msr::TSC);
    check!(
        read >= before && read - before < timer::ticks(100_000),
        "the MSR says {read:#x}, RDTSC {before:#x}"
    );
    Ok(())
}
