// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Counts every interrupt for a long time: none may be lost, none may come twice. All CPUs wake at about the same
//! moments, by their APIC's timer, send an interrupt to every CPU, themselves too, and sleep again. One goes out only when
//! the one before it, from the same CPU to the same one, was taken: so no two can become one.
//!
//! Options: `seconds=` of sending (10), `period=` of the timer in microseconds (250000), `pv-eoi=off`.
#![no_std]
#![no_main]

use core::sync::atomic::{AtomicU32, Ordering::SeqCst};

use turnstile_guests_common::checker::{Account, Crew, Grid, Member, SPREAD, Sums};
use turnstile_guests_x86_64::console::Console;
use turnstile_guests_x86_64::random::{self, Random};
use turnstile_guests_x86_64::{apic, cpu, entry, irq, options, pic, println, pv_eoi, smp, timer};

entry!(main);

/// Most CPUs: each sends a vector of its own, that tells whose it is.
const MAX_CPUS: usize = 16;
const TIMER: u8 = 0x51;
const FIRST: u8 = 0x60;
/// By sender and receiver.
static IPIS: [[Account; MAX_CPUS]; MAX_CPUS] = [const { [const { Account::new() }; MAX_CPUS] }; MAX_CPUS];
/// By CPU.
static RINGS: [Account; MAX_CPUS] = [const { Account::new() }; MAX_CPUS];
/// Interrupts of vectors that nobody sends.
static STRANGE: AtomicU32 = AtomicU32::new(0);
static CREW: Crew = Crew::new();

fn main() {
    pic::init();
    apic::init();
    if smp::count() > MAX_CPUS {
        println!("@error {} CPUs are more than {MAX_CPUS}", smp::count());
        return;
    }
    timer::apic_ticks();
    let seconds = options::number("seconds", 10);
    CREW.set_end(timer::now() + timer::ticks(seconds * 1_000_000));
    irq::set_handler(Some(handle));
    if !smp::start_others(work) {
        return;
    }
    work(0);
    report(seconds);
}

fn ipi(sender: usize, receiver: usize) -> &'static Account {
    &IPIS[sender & 15][receiver & 15]
}

fn ring(cpu: usize) -> &'static Account {
    &RINGS[cpu & 15]
}

fn handle(vector: u8) {
    let this = cpu::this().index();
    match vector {
        TIMER => ring(this).take(timer::now()),
        FIRST.. if usize::from(vector - FIRST) < smp::count() => {
            ipi(usize::from(vector - FIRST), this).take(timer::now())
        }
        _ => _ = STRANGE.fetch_add(1, SeqCst),
    }
}

/// This CPU's timer, which rings at the moments of a grid that all CPUs have in common.
struct Clock {
    account: &'static Account,
    grid: Grid,
}

impl Clock {
    fn new() -> Self {
        let period = timer::ticks(options::number("period", 250_000)).max(1);
        Clock { account: ring(cpu::this().index()), grid: Grid::new(timer::now(), period, 0) }
    }

    fn set(&mut self, random: &mut Random) {
        let due = self.grid.next(&timer::clock()) + random.below(timer::ticks(SPREAD));
        self.account.send(due);
        timer::arm(TIMER, due);
    }
}

/// What each CPU does until everything was sent and taken.
fn work(_: u64) {
    let this = cpu::this().index();
    let mut random = random::stream(this as u64);
    if pv_eoi::is_wanted() {
        pv_eoi::enable();
    }
    let mut member = Member::join(&CREW, this, smp::count(), cpu::relax);
    let mut clock = Clock::new();
    clock.set(&mut random);
    while !CREW.is_broken() && clock.account.is_open() {
        cpu::wait();
        CREW.enter_loss(clock.account.is_lost(&timer::clock()));
        if clock.account.is_open() {
            continue;
        }
        if !member.may_leave(send(this)) {
            clock.set(&mut random);
        }
    }
    timer::disarm();
    member.leave();
}

/// Sends an interrupt to each CPU that took the last one; when the time is over, says whether all did.
fn send(this: usize) -> bool {
    CREW.send_to_all(&timer::clock(), &IPIS[this & 15][..smp::count()], |receiver| {
        apic::send_to(smp::apic_id(receiver), FIRST + this as u8);
    })
}

fn report(seconds: u64) {
    let cpus = smp::count();
    let mut sums = Sums { doubled: STRANGE.load(SeqCst), ..Sums::default() };
    let mut add = |account, source, from, to| sums.add(&mut Console, account, source, from, to);
    let (mut ipis, mut rings) = (0, 0);
    for cpu in 0..cpus {
        ipis += (0..cpus).map(|sender| add(ipi(sender, cpu), "IPI", sender, cpu)).sum::<u64>();
        rings += add(ring(cpu), "timer", 0, cpu);
    }
    let Sums { lost, doubled, slowest } = sums;
    let slowest = timer::microseconds(slowest);
    println!(
        "@done seconds={seconds} cpus={cpus} ipis={ipis} rings={rings} lost={lost} doubled={doubled} slowest={slowest}"
    );
}
