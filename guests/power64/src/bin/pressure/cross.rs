// SPDX-License-Identifier: Apache-2.0 OR MIT
//! All CPUs send to all, themselves too. Some poll, some wait by H_CEDE, some have interrupts masked for a while.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

use turnstile_guests_power64::test::Outcome;
use turnstile_guests_power64::{check, check_eq, cpu, irq, ledger, random, smp, timer};

use crate::wanted;

static OVER: AtomicBool = AtomicBool::new(false);
static READY: AtomicU64 = AtomicU64::new(0);
static LEFT: AtomicU64 = AtomicU64::new(0);

fn handle(event: u8) {
    match event {
        irq::IPI => ledger::take(),
        // Ends every wait.
        irq::TIMER => timer::arm(timer::now() + timer::ticks(500)),
        _ => {}
    }
}

fn total() -> u64 {
    (0..smp::count()).map(|cpu| ledger::of(cpu).taken.load(SeqCst)).sum()
}

/// All CPUs of the machine.
pub fn all() -> Outcome {
    ledger::reset();
    irq::set_handler(Some(handle));
    OVER.store(false, SeqCst);
    READY.store(0, SeqCst);
    LEFT.store(0, SeqCst);
    for index in smp::others() {
        check!(smp::start(index, work, 0), "CPU {index} does not start");
    }
    work(0);
    for index in smp::others() {
        check!(smp::wait_done(index), "CPU {index} does not end");
    }
    for cpu in 0..smp::count() {
        let account = ledger::of(cpu);
        check_eq!(account.doubled.load(SeqCst), 0, "taken by CPU {cpu} without having been sent");
        check_eq!(account.taken.load(SeqCst), account.sent.load(SeqCst), "taken by CPU {cpu}");
    }
    check!(total() >= wanted(), "{} interrupts, before something was lost", total());
    Ok(())
}

fn work(_: u64) {
    let this = cpu::this().index();
    let count = smp::count() as u64;
    let mut random = random::stream(100 + this as u64);
    timer::arm(timer::now() + timer::ticks(500));
    // What is sent to a CPU before it has set up its interrupts is not its.
    READY.fetch_add(1, SeqCst);
    while READY.load(SeqCst) < count {
        cpu::relax();
    }
    let mut progress = (0, timer::now());
    while !OVER.load(SeqCst) {
        ledger::send(random.below(count) as usize);
        match random.below(8) {
            0 => cpu::wait(),
            1..6 => cpu::take_interrupts(),
            _ => {}
        }
        if total() != progress.0 {
            progress = (total(), timer::now());
        }
        // For ten seconds nobody has taken anything: something is lost.
        if total() >= wanted() || timer::now() - progress.1 > timer::ticks(10_000_000) {
            OVER.store(true, SeqCst);
        }
    }
    // The others may have sent something here still.
    let end = timer::now() + timer::ticks(2_000_000);
    LEFT.fetch_add(1, SeqCst);
    while (LEFT.load(SeqCst) < count || ledger::of(this).is_open()) && timer::now() < end {
        cpu::take_interrupts();
    }
    timer::disarm();
    cpu::take_interrupts();
    timer::disarm();
}
