// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One CPU that sends to itself.

use core::sync::atomic::Ordering::SeqCst;

use turnstile_guests_power64::test::Outcome;
use turnstile_guests_power64::{check, check_eq, cpu, irq, ledger, random, timer};

use crate::wanted;

fn handle(event: u8) {
    if event == irq::IPI {
        ledger::take();
    }
}

fn begin() {
    ledger::reset();
    irq::set_handler(Some(handle));
}

fn finish(sent: u64) -> Outcome {
    let account = ledger::of(cpu::this().index());
    check_eq!(account.taken.load(SeqCst), sent, "taken of those sent");
    check_eq!(account.doubled.load(SeqCst), 0, "taken without having been sent");
    Ok(())
}

/// Nothing comes while interrupts are masked; what was sent meanwhile comes at once when they are let in.
pub fn masked() -> Outcome {
    begin();
    let this = cpu::this().index();
    let mut random = random::stream(1);
    for round in 0..wanted() {
        check!(ledger::send(this), "round {round}: the one before is still under way");
        for _ in 0..random.below(4) {
            cpu::relax();
        }
        check!(ledger::of(this).is_open(), "round {round}: it came while interrupts were masked");
        cpu::take_interrupts();
        check!(!ledger::of(this).is_open(), "round {round}: it did not come");
    }
    finish(wanted())
}

/// H_CEDE with an interrupt pending does not wait, and the interrupt comes.
pub fn ceded() -> Outcome {
    begin();
    let this = cpu::this().index();
    for round in 0..wanted() {
        check!(ledger::send(this), "round {round}: the one before is still under way");
        // Ends a wait that does not end.
        timer::arm(timer::now() + timer::ticks(1_000_000));
        cpu::wait();
        check!(!ledger::of(this).is_open(), "round {round}: it did not come");
    }
    finish(wanted())
}

/// With the decrementer due at the same time, and a doorbell: each comes once.
pub fn together() -> Outcome {
    begin();
    let this = cpu::this().index();
    let mut random = random::stream(3);
    let rounds = wanted() / 4;
    for round in 0..rounds {
        check!(ledger::send(this), "round {round}: the one before is still under way");
        timer::arm(timer::now() + random.below(400));
        let timers = irq::count(irq::TIMER);
        let mut tries = 0;
        while irq::count(irq::TIMER) == timers || ledger::of(this).is_open() {
            if random.below(2) == 0 {
                cpu::wait();
            } else {
                cpu::take_interrupts();
            }
            tries += 1;
            check!(tries < 1_000_000, "round {round}: something did not come");
        }
        check_eq!(irq::count(irq::TIMER), timers + 1, "round {round}: decrementer interrupts");
    }
    finish(rounds)
}
