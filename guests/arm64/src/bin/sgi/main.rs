// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Measures SGIs (seeds 000, 001, 004): a receiver takes the SGI with IRQs masked, ends it, and answers through
//! memory; the sender waits for all answers.
//!
//! Options: `row=NAME` is what is reported; `target=N` sends to the CPU with this index (1), `broadcast` to all
//! others. The first CPU as its own target acknowledges and ends in the same loop. Receivers poll, or with `wfi`
//! wait by WFI; CPUs that receive nothing wait by WFI in any case. With `handoff` the first CPU and its target take
//! turns: each sends to the other and waits by WFI; with `facilities` both use FP registers and pointer authentication each time.
//! With `waiting=N` so many shared interrupts of the first CPU are pending all
//! the time, at a priority that its mask holds back. With `x20` that register has what is sent, else one that calls may change.
//!
//! Where one thread emulates all CPUs in turn, the ticks contain the waiting of all; what each side's exit
//! costs is then for the meter to say.
#![no_std]
#![no_main]

mod loops;

use core::sync::atomic::{AtomicU64, Ordering};

use loops::Loops;
use turnstile_guests::platform::platform;
use turnstile_guests::state::pauth;
use turnstile_guests::{bench, cpu, entry, gic, mmu, options, println, smp, timer};

entry!(main);

/// Time for each CPU to start, in microseconds.
const PATIENCE: u64 = 1_000_000;

/// The first of the interrupts that wait: behind those of any machine's devices.
const FIRST_WAITING: u32 = 36;
/// Their priority, and the mask that holds them back.
const HELD_BACK: [u8; 2] = [0xd0, 0xc0];

/// A word that has a cache line of its own.
#[repr(align(64))]
struct Line(AtomicU64);

/// One for each CPU that has started, and one for each SGI that was taken.
static ANSWERS: Line = Line(AtomicU64::new(0));

fn main() {
    if platform().gicd.is_none() {
        println!("@error this machine has no interrupt controller");
        return;
    }
    let this = cpu::this().index();
    let target = options::number("target", 1) as usize;
    if target >= smp::count() {
        println!("@error there is no CPU {target}: this machine has {}", smp::count());
        return;
    }
    mmu::enable();
    gic::init();
    gic::enable(0);
    let waiting = options::number("waiting", 0) as u32;
    if waiting > gic::interrupts() - FIRST_WAITING {
        println!("@error this machine has {} interrupts", gic::interrupts());
        return;
    }
    hold_back(waiting);
    let broadcast = options::get("broadcast").is_some();
    let handoff = options::get("handoff").is_some();
    for index in smp::others() {
        let work = match broadcast || index == target {
            true if handoff => take_turns,
            true => receive,
            false => stand_by,
        };
        let before = answers();
        let status = smp::start(index, work, smp::affinity(this));
        if status != 0 || !timer::wait(PATIENCE, || answers() != before) {
            println!("@error CPU {index} does not start: CPU_ON returned {status}");
            return;
        }
    }
    let row = options::get("row").unwrap_or("sgi");
    let loops = loops(match broadcast {
        true => gic::sgi_to_others(0),
        false => gic::sgi_value(0, smp::affinity(target)),
    });
    if handoff || !broadcast && target == this {
        // There and back is two of them.
        let both = if handoff { 2 } else { 1 };
        bench::measure(
            row,
            |count| hand_over(&loops, count.div_ceil(both)),
            |count| loops.nothing(count / both),
        );
    } else {
        let receivers = if broadcast { smp::others().count() as u64 } else { 1 };
        let (start, word) = (answers, ANSWERS.0.as_ptr());
        bench::measure(
            row,
            |count| loops.send(count, start(), receivers, word),
            |count| loops.empty(count, start(), receivers, word),
        );
    }
}

/// Makes so many shared interrupts pending that never are taken.
fn hold_back(count: u32) {
    let [priority, mask] = HELD_BACK;
    if count > 0 {
        gic::set_priority_mask(mask);
    }
    for intid in FIRST_WAITING..FIRST_WAITING + count {
        gic::set_priority(intid, priority);
        gic::set_edge(intid, true);
        gic::enable(intid);
        gic::set_pending(intid);
    }
}

fn answers() -> u64 {
    ANSWERS.0.load(Ordering::Acquire)
}

fn answer() {
    ANSWERS.0.fetch_add(1, Ordering::Release);
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
    hand_over(&loops(gic::sgi_value(0, first)), u64::MAX);
}

/// Returns loops that send this value, from the register that the options say.
fn loops(value: u64) -> Loops {
    Loops::new(value, options::get("x20").is_some())
}

/// Hands over so many times, with or without facilities in use.
fn hand_over(loops: &Loops, rounds: u64) {
    if options::get("facilities").is_none() {
        return loops.hand_over::<0>(rounds);
    }
    if pauth::exists() {
        pauth::enable();
    }
    loops.hand_over::<1>(rounds);
}

/// Waits for nothing until the machine is switched off.
fn stand_by(_: u64) {
    answer();
    loop {
        cpu::wfi();
    }
}

/// Takes SGIs until the machine is switched off.
fn receive(first: u64) {
    gic::init_cpu();
    gic::enable(0);
    answer();
    loops(gic::sgi_value(0, first)).receive(options::get("wfi").is_some(), ANSWERS.0.as_ptr());
}
