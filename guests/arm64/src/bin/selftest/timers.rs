// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The virtual and the physical timer (Arm ARM D12.2): on time, in the past, masked, moved, level again,
//! and as the end of WFI.

use core::sync::atomic::{AtomicU64, Ordering::SeqCst};

use turnstile_guests::platform::MAX_CPUS;
use turnstile_guests::psci::status;
use turnstile_guests::test::{Outcome, Test};
use turnstile_guests::timer::{self, ENABLE, IMASK, ISTATUS, Timer};
use turnstile_guests::{check, check_eq, cpu, gic, irq, skip, smp};

macro_rules! for_both {
    ($($function:ident: $virtual:literal, $physical:literal;)*) => {
        pub const TESTS: &[Test] = &[
            $(Test { name: $virtual, run: || $function(Timer::Virtual) },
            Test { name: $physical, run: || $function(Timer::Physical) },)*
            Test { name: "timer-both", run: both },
            Test { name: "timer-all-cpus", run: all_cpus },
        ];
    };
}

for_both! {
    on_time: "timer-virtual-on-time", "timer-physical-on-time";
    past: "timer-virtual-past", "timer-physical-past";
    masked: "timer-virtual-masked", "timer-physical-masked";
    nearer: "timer-virtual-nearer", "timer-physical-nearer";
    rearmed: "timer-virtual-rearmed", "timer-physical-rearmed";
    level: "timer-virtual-level", "timer-physical-level";
    moved_away: "timer-virtual-moved-away", "timer-physical-moved-away";
    wait: "timer-virtual-wait", "timer-physical-wait";
    distance: "timer-virtual-distance", "timer-physical-distance";
    pending_state: "timer-virtual-pending-state", "timer-physical-pending-state";
    withdrawn: "timer-virtual-withdrawn", "timer-physical-withdrawn";
    enabled_late: "timer-virtual-enabled-late", "timer-physical-enabled-late";
}

/// When the handler ran, by the counter of the timer that fired.
static FIRED_AT: AtomicU64 = AtomicU64::new(0);
/// How often the handler lets the timer fire again, and how far apart in ticks.
static AGAIN: AtomicU64 = AtomicU64::new(0);
static APART: AtomicU64 = AtomicU64::new(0);

fn timer_of(intid: u32) -> Option<Timer> {
    [Timer::Virtual, Timer::Physical].into_iter().find(|timer| timer.intid() == intid)
}

/// Notes the time; then masks the timer, or sets it again.
fn note(intid: u32) {
    let Some(timer) = timer_of(intid) else { return };
    FIRED_AT.store(timer.now(), SeqCst);
    match AGAIN.load(SeqCst) {
        0 => timer.set_control(ENABLE | IMASK),
        left => {
            AGAIN.store(left - 1, SeqCst);
            timer.set_compare(timer.now() + APART.load(SeqCst));
        }
    }
}

fn prepare(timer: Timer) {
    AGAIN.store(0, SeqCst);
    FIRED_AT.store(0, SeqCst);
    timer.set_control(0);
    irq::set_handler(Some(note));
    gic::enable(timer.intid());
    cpu::unmask_irq();
}

fn fired(timer: Timer, count: u32) -> bool {
    timer::wait(2_000_000, || irq::count(timer.intid()) >= count)
}

fn on_time(timer: Timer) -> Outcome {
    prepare(timer);
    for round in 1..=5 {
        let due = timer.now() + timer::ticks(2_000);
        timer.set_compare(due);
        timer.set_control(ENABLE);
        check!(timer.control() & ISTATUS == 0 || timer.now() >= due, "ISTATUS before its time");
        check!(fired(timer, round), "no interrupt");
        check!(FIRED_AT.load(SeqCst) >= due, "early");
        check_eq!(timer.control(), ENABLE | IMASK | ISTATUS, "CTL after the interrupt");
        check_eq!(timer.compare(), due, "CVAL");
        timer::delay(500);
        check_eq!(irq::count(timer.intid()), round, "interrupts after a masked one");
    }
    Ok(())
}

fn past(timer: Timer) -> Outcome {
    prepare(timer);
    let compares = [timer.now() - 1, timer.now() / 2, 0];
    for (count, compare) in (1..).zip(compares) {
        timer.set_compare(compare);
        timer.set_control(ENABLE);
        check!(fired(timer, count), "no interrupt with CVAL {compare:#x}");
    }
    Ok(())
}

fn masked(timer: Timer) -> Outcome {
    prepare(timer);
    timer.set_compare(timer.now());
    timer.set_control(ENABLE | IMASK);
    timer::delay(1_000);
    check_eq!(irq::count(timer.intid()), 0, "interrupts while masked");
    check_eq!(timer.control(), ENABLE | IMASK | ISTATUS, "CTL");
    timer.set_control(ENABLE);
    check!(fired(timer, 1), "no interrupt when unmasked");
    timer.set_control(0);
    timer.set_compare(timer.now());
    timer::delay(1_000);
    check_eq!(irq::count(timer.intid()), 1, "interrupts while disabled");
    Ok(())
}

fn nearer(timer: Timer) -> Outcome {
    prepare(timer);
    timer.set_compare(u64::MAX);
    timer.set_control(ENABLE);
    timer::delay(500);
    check_eq!(irq::count(timer.intid()), 0, "interrupts with the farthest CVAL");
    timer.set_compare(timer.now() + timer::frequency() * 3600);
    timer::delay(500);
    check_eq!(irq::count(timer.intid()), 0, "interrupts an hour early");
    let due = timer.now() + timer::ticks(1_000);
    timer.set_compare(due);
    check!(fired(timer, 1), "no interrupt when set nearer");
    check!(FIRED_AT.load(SeqCst) >= due, "early");
    Ok(())
}

fn rearmed(timer: Timer) -> Outcome {
    prepare(timer);
    AGAIN.store(20, SeqCst);
    APART.store(timer::ticks(200), SeqCst);
    timer.set_compare(timer.now());
    timer.set_control(ENABLE);
    check!(fired(timer, 21), "{} of 21 interrupts", irq::count(timer.intid()));
    timer::delay(1_000);
    check_eq!(irq::count(timer.intid()), 21, "interrupts");
    Ok(())
}

/// The line stays up until the timer is moved or masked: the interrupt comes again after its end.
fn level(timer: Timer) -> Outcome {
    cpu::mask_irq();
    gic::enable(timer.intid());
    timer.set_compare(timer.now());
    timer.set_control(ENABLE);
    for round in 0..5 {
        check!(
            timer::wait(1_000_000, || gic::highest_pending() == timer.intid()),
            "not pending, round {round}"
        );
        check_eq!(gic::acknowledge(), timer.intid(), "acknowledged in round {round}");
        check!(gic::is_active(timer.intid()), "not active in round {round}");
        check_eq!(gic::acknowledge(), 1023, "a second one while active");
        gic::end(timer.intid());
    }
    timer.set_control(0);
    check!(!gic::is_pending(timer.intid()), "pending after the line fell");
    check_eq!(gic::acknowledge(), 1023, "after the line fell");
    Ok(())
}

/// Pending, not taken, then moved into the future: the new time counts.
fn moved_away(timer: Timer) -> Outcome {
    prepare(timer);
    cpu::mask_irq();
    timer.set_compare(timer.now());
    timer.set_control(ENABLE);
    check!(timer::wait(1_000_000, || gic::highest_pending() == timer.intid()), "not pending");
    let due = timer.now() + timer::ticks(3_000);
    timer.set_compare(due);
    let pending = gic::is_pending(timer.intid());
    check!(!pending || timer.now() >= due, "pending before its time");
    cpu::unmask_irq();
    check!(fired(timer, 1), "no interrupt at the new time");
    check!(FIRED_AT.load(SeqCst) >= due, "early");
    Ok(())
}

fn wait(timer: Timer) -> Outcome {
    cpu::mask_irq();
    gic::enable(timer.intid());
    for _ in 0..20 {
        let due = timer.now() + timer::ticks(500);
        timer.set_compare(due);
        timer.set_control(ENABLE);
        // WFI may end without a reason; an interrupt that is masked in PSTATE ends it.
        while timer.control() & ISTATUS == 0 {
            cpu::wfi();
            check!(timer.now() < due + timer::ticks(1_000_000), "WFI slept a second too long");
        }
        check!(timer.now() >= due, "ISTATUS early");
        check!(timer::wait(1_000_000, || gic::acknowledge() == timer.intid()), "no interrupt after WFI");
        timer.set_control(0);
        gic::end(timer.intid());
    }
    Ok(())
}

fn distance(timer: Timer) -> Outcome {
    prepare(timer);
    timer.set_distance(-1000);
    timer.set_control(ENABLE);
    check!(fired(timer, 1), "no interrupt with a negative TVAL");
    let ticks = timer::ticks(1_000) as i32;
    let before = timer.now();
    timer.set_distance(ticks);
    let after = timer.now();
    let compare = timer.compare();
    check!(compare >= before + ticks as u64 && compare <= after + ticks as u64, "CVAL from TVAL");
    timer.set_control(ENABLE);
    check!(fired(timer, 2), "no interrupt by TVAL");
    Ok(())
}

fn pending_state(timer: Timer) -> Outcome {
    cpu::mask_irq();
    timer.set_compare(timer.now());
    timer.set_control(ENABLE);
    check!(timer::wait(1_000_000, || gic::is_pending(timer.intid())), "ISPENDR does not show the line");
    check_eq!(gic::acknowledge(), 1023, "while disabled");
    gic::enable(timer.intid());
    check!(timer::wait(1_000_000, || gic::highest_pending() == timer.intid()), "not pending once enabled");
    check_eq!(gic::acknowledge(), timer.intid(), "INTID");
    timer.set_control(0);
    gic::end(timer.intid());
    check!(timer::wait(1_000_000, || !gic::is_pending(timer.intid())), "still pending when off");
    Ok(())
}

/// The ways in which a line falls.
const LOWER: [fn(Timer); 4] = [
    |timer| timer.set_control(0),
    |timer| timer.set_control(ENABLE | IMASK),
    |timer| timer.set_compare(u64::MAX),
    |timer| timer.set_distance(i32::MAX),
];

/// Lets the timer's line rise.
fn raise(timer: Timer) {
    timer.set_compare(timer.now());
    timer.set_control(ENABLE);
}

/// Pending, not taken, and the line falls: it is not pending any more. Active, and the line falls: it does not come again.
fn withdrawn(timer: Timer) -> Outcome {
    cpu::mask_irq();
    gic::enable(timer.intid());
    for (way, lower) in LOWER.into_iter().enumerate() {
        for round in 0..3 {
            raise(timer);
            let offered = || gic::highest_pending() == timer.intid();
            check!(timer::wait(1_000_000, offered), "not offered, way {way}, round {round}");
            check!(gic::is_pending(timer.intid()), "not pending, way {way}");
            lower(timer);
            check!(!gic::is_pending(timer.intid()), "still pending, way {way}");
            check_eq!(gic::highest_pending(), 1023, "offered, way {way}");
            check_eq!(gic::acknowledge(), 1023, "taken, way {way}");
            raise(timer);
            check!(timer::wait(1_000_000, offered), "not offered again, way {way}, round {round}");
            check_eq!(gic::acknowledge(), timer.intid(), "INTID");
            check!(gic::is_pending(timer.intid()), "the line of an active one does not show, way {way}");
            lower(timer);
            check!(!gic::is_pending(timer.intid()), "the line shows that has fallen, way {way}");
            gic::end(timer.intid());
            timer::delay(20);
            check_eq!(gic::acknowledge(), 1023, "taken again, way {way}");
        }
    }
    timer.set_control(0);
    Ok(())
}

/// The line falls before its interrupt is enabled: enabling it delivers nothing.
fn enabled_late(timer: Timer) -> Outcome {
    cpu::mask_irq();
    for (way, lower) in LOWER.into_iter().enumerate() {
        gic::disable(timer.intid());
        raise(timer);
        check!(timer::wait(1_000_000, || gic::is_pending(timer.intid())), "not pending, way {way}");
        lower(timer);
        gic::enable(timer.intid());
        check_eq!(gic::acknowledge(), 1023, "taken, way {way}");
        raise(timer);
        check!(timer::wait(1_000_000, || gic::acknowledge() == timer.intid()), "not taken, way {way}");
        lower(timer);
        gic::end(timer.intid());
    }
    timer.set_control(0);
    Ok(())
}

fn both() -> Outcome {
    let timers = [Timer::Virtual, Timer::Physical];
    timers.into_iter().for_each(prepare);
    for timer in timers {
        timer.set_compare(timer.now() + timer::ticks(1_000));
        timer.set_control(ENABLE);
    }
    for timer in timers {
        check!(fired(timer, 1), "no interrupt of the {timer:?} timer");
        check_eq!(irq::count(timer.intid()), 1, "interrupts of the {timer:?} timer");
    }
    Ok(())
}

static WANTED: u32 = 20;
static FINISHED: [AtomicU64; MAX_CPUS] = [const { AtomicU64::new(0) }; MAX_CPUS];

fn tick(intid: u32) {
    if let Some(timer) = timer_of(intid) {
        timer.set_compare(timer.now() + timer::ticks(300));
    }
}

fn take_ticks(_: u64) {
    let index = cpu::this().index();
    gic::init_cpu();
    for timer in [Timer::Virtual, Timer::Physical] {
        gic::enable(timer.intid());
        timer.set_compare(timer.now() + timer::ticks(300));
        timer.set_control(ENABLE);
    }
    cpu::unmask_irq();
    let count = |timer: Timer| irq::count_on(index, timer.intid());
    timer::wait(2_000_000, || {
        cpu::wfi();
        count(Timer::Virtual) >= WANTED && count(Timer::Physical) >= WANTED
    });
    cpu::mask_irq();
    for timer in [Timer::Virtual, Timer::Physical] {
        timer.set_control(0);
    }
    if let Some(finished) = FINISHED.get(index) {
        finished.store(1, SeqCst);
    }
}

fn all_cpus() -> Outcome {
    if smp::count() < 2 {
        skip!("one CPU");
    }
    irq::set_handler(Some(tick));
    FINISHED.iter().for_each(|finished| finished.store(0, SeqCst));
    for index in smp::others() {
        check_eq!(smp::start(index, take_ticks, 0), status::SUCCESS, "CPU_ON of cpu {index}");
    }
    take_ticks(0);
    for index in smp::others() {
        let finished = || FINISHED.get(index).is_some_and(|finished| finished.load(SeqCst) == 1);
        check!(timer::wait(3_000_000, finished), "cpu {index} does not finish");
        check!(smp::wait_off(index), "cpu {index} does not go off");
    }
    for index in 0..smp::count() {
        for timer in [Timer::Virtual, Timer::Physical] {
            let count = irq::count_on(index, timer.intid());
            check!(count >= WANTED, "cpu {index}: {count} interrupts of the {timer:?} timer");
        }
    }
    Ok(())
}
