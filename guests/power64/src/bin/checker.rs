// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Counts every interrupt for a long time: none may be lost, none may come twice. All CPUs wake at about the same
//! moments, by their decrementers, send an interrupt to every CPU, themselves too, and sleep again (see
//! [`turnstile_guests_power64::ledger`]).
//!
//! Options: those of [`checker`](turnstile_guests_common::checker), `seed=`.
#![no_std]
#![no_main]

use core::sync::atomic::{AtomicU64, Ordering::SeqCst};

use turnstile_guests_common::checker::{Crew, Grid, Member, PATIENCE};
use turnstile_guests_power64::platform::MAX_CPUS;
use turnstile_guests_power64::random::{self, Random};
use turnstile_guests_power64::{cpu, entry, irq, ledger, println, smp, timer};

entry!(main);

/// How often a CPU tries to send to one that has an interrupt under way.
const TRIES: usize = 20;

/// Decrementer interrupts of one CPU.
struct Ring {
    sent: AtomicU64,
    taken: AtomicU64,
    due: AtomicU64,
    delays: ledger::Delays,
}

static RINGS: [Ring; MAX_CPUS] = [const {
    Ring {
        sent: AtomicU64::new(0),
        taken: AtomicU64::new(0),
        due: AtomicU64::new(0),
        delays: ledger::Delays::new(),
    }
}; MAX_CPUS];
/// Events of kinds that nobody sends.
static STRANGE: AtomicU64 = AtomicU64::new(0);
static LOST: AtomicU64 = AtomicU64::new(0);
static CREW: Crew = Crew::new();

fn main() {
    irq::init();
    irq::set_handler(Some(handle));
    if let Some(seconds) = CREW.run(smp::start_others, work) {
        report(seconds);
    }
}

fn ring() -> &'static Ring {
    &RINGS[cpu::this().index()]
}

fn handle(event: u8) {
    match event {
        irq::TIMER => {
            let ring = ring();
            ring.delays.enter(ring.due.load(SeqCst));
            ring.taken.fetch_add(1, SeqCst);
        }
        irq::IPI => ledger::take(),
        _ => _ = STRANGE.fetch_add(1, SeqCst),
    }
}

/// Sets the decrementer to the next moment of the grid that all CPUs have in common.
fn set_clock(grid: &mut Grid, random: &mut Random) {
    let due = grid.about_next(random);
    ring().sent.fetch_add(1, SeqCst);
    ring().due.store(due, SeqCst);
    timer::arm(due);
}

/// What each CPU does until everything was sent and taken.
fn work(_: u64) {
    let this = cpu::this().index();
    let mut random = random::stream(this as u64);
    let mut member = Member::join(&CREW, this, smp::count());
    let mut grid = Grid::of_options(0);
    loop {
        set_clock(&mut grid, &mut random);
        while ring().taken.load(SeqCst) < ring().sent.load(SeqCst) && !CREW.is_broken() {
            cpu::wait();
        }
        let quiet = CREW.is_over(timer::now());
        if !quiet {
            send_to_all();
        }
        let may_leave = member.may_leave(quiet);
        if CREW.is_broken() || may_leave && !ledger::of(this).is_open() {
            break;
        }
    }
    timer::disarm();
    member.leave();
}

/// Sends an interrupt to each CPU, or looks how old the one under way is.
fn send_to_all() {
    for receiver in 0..smp::count() {
        let sent = (0..TRIES).any(|_| {
            cpu::take_interrupts();
            let sent = ledger::send(receiver);
            if !sent {
                // The receiver may need this CPU, in an emulator.
                cpu::relax();
            }
            sent
        });
        if !sent && ledger::of(receiver).age() > timer::ticks(PATIENCE) {
            LOST.fetch_add(1, SeqCst);
            CREW.enter_loss(true);
        }
    }
}

fn report(seconds: u64) {
    let cpus = smp::count();
    let [mut ipis, mut rings, mut slowest, mut late, mut doubled] = [0, 0, 0, 0, STRANGE.load(SeqCst)];
    let mut lost = LOST.load(SeqCst);
    for (cpu, ring) in RINGS.iter().enumerate().take(cpus) {
        let account = ledger::of(cpu);
        let [sent, taken] = [&account.sent, &account.taken].map(|field| field.load(SeqCst));
        if sent != taken || account.doubled.load(SeqCst) != 0 {
            println!(
                "@error IPIs to CPU {cpu}: sent {sent}, taken {taken}, doubled {}",
                account.doubled.load(SeqCst)
            );
            lost += sent.saturating_sub(taken);
        }
        let [set, rung] = [&ring.sent, &ring.taken].map(|field| field.load(SeqCst));
        if set != rung {
            println!("@error timer of CPU {cpu}: set {set}, rung {rung}");
            lost += set.saturating_sub(rung);
            doubled += rung.saturating_sub(set);
        }
        doubled += account.doubled.load(SeqCst);
        ipis += taken;
        rings += rung;
        for delays in [&account.delays, &ring.delays] {
            let (longest, count) = delays.get();
            slowest = slowest.max(longest);
            late += count;
        }
    }
    let slowest = timer::microseconds(slowest);
    println!(
        "@done seconds={seconds} cpus={cpus} ipis={ipis} rings={rings} lost={lost} doubled={doubled} \
         slowest={slowest} late={late}"
    );
}
