// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Counts every interrupt for a long time: none may be lost, none may come twice. All CPUs wake at about the same
//! moments, by their APIC's timer, send an interrupt to every CPU, themselves too, and sleep again. One goes out only when
//! the one before it, from the same CPU to the same one, was taken: so no two can become one.
//!
//! Options: those of [`checker`](turnstile_guests_common::checker), `seed=`, `pv-eoi=off`.
#![no_std]
#![no_main]

use turnstile_guests_common::checker::{Grid, Ledger, Member};
use turnstile_guests_x86_64::{apic, cpu, entry, irq, pic, pv_eoi, random, smp, timer};

entry!(main);

const TIMER: u8 = 0x51;
/// Each CPU sends a vector of its own, that tells whose it is.
const FIRST: u8 = 0x60;
static LEDGER: Ledger<1> = Ledger::new();

fn main() {
    pic::init();
    apic::init();
    timer::apic_ticks();
    irq::set_handler(Some(handle));
    LEDGER.run(smp::count(), smp::start_others, work);
}

fn handle(vector: u8) {
    let this = cpu::this().index();
    match vector {
        TIMER => LEDGER.ring(this, 0).take(timer::now()),
        FIRST.. if usize::from(vector - FIRST) < smp::count() => {
            LEDGER.ipi(usize::from(vector - FIRST), this).take(timer::now());
        }
        _ => LEDGER.enter_strange(),
    }
}

/// What each CPU does until everything was sent and taken.
fn work(_: u64) {
    let this = cpu::this().index();
    let ring = LEDGER.ring(this, 0);
    let mut random = random::stream(this as u64);
    if pv_eoi::is_wanted() {
        pv_eoi::enable();
    }
    let mut member = Member::join(&LEDGER.crew, this, smp::count());
    let mut grid = Grid::of_options(0);
    let mut set = || {
        let due = grid.about_next(&mut random);
        ring.send(due);
        timer::arm(TIMER, due);
    };
    set();
    while !LEDGER.crew.is_broken() && ring.is_open() {
        cpu::wait();
        if !LEDGER.awaits(ring) && !member.may_leave(send(this)) {
            set();
        }
    }
    timer::disarm();
    member.leave();
}

/// Sends an interrupt to each CPU that took the last one; when the time is over, says whether all did.
fn send(this: usize) -> bool {
    LEDGER.send_to_all(this, smp::count(), |receiver| {
        apic::send_to(smp::apic_id(receiver), FIRST + this as u8);
    })
}
