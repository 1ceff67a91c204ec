// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Counts every interrupt for a long time: none may be lost, none may come twice. All CPUs wake at about the same
//! moments, by either timer, send an SGI to every CPU, themselves too, and sleep again. An SGI goes out only when the
//! one before it, from the same CPU to the same one, was taken: so no two can become one.
//!
//! Options: `seconds=` of sending (10), `period=` of each timer in microseconds (250000).
#![no_std]
#![no_main]

use core::sync::atomic::{AtomicU32, Ordering::SeqCst};

use turnstile_guests::console::Console;
use turnstile_guests::gic::{self, Version};
use turnstile_guests::random::{self, Random};
use turnstile_guests::timer::{self, Timer};
use turnstile_guests::{cpu, entry, irq, mmu, options, println, smp};
use turnstile_guests_common::checker::{Account, Crew, Grid, Member, SPREAD, Sums};

entry!(main);

/// Most CPUs: each sends the SGI of its own number, so that also a GICv3 tells whose it is.
const MAX_CPUS: usize = 16;
const TIMERS: [Timer; 2] = [Timer::Virtual, Timer::Physical];
/// By sender and receiver.
static SGIS: [[Account; MAX_CPUS]; MAX_CPUS] = [const { [const { Account::new() }; MAX_CPUS] }; MAX_CPUS];
/// By CPU, as in [`TIMERS`].
static RINGS: [[Account; 2]; MAX_CPUS] = [const { [const { Account::new() }; 2] }; MAX_CPUS];
/// SGIs that a GICv2 says another CPU sent than it was.
static STRANGE: AtomicU32 = AtomicU32::new(0);
static CREW: Crew = Crew::new();

fn main() {
    mmu::enable();
    gic::init();
    if smp::count() > MAX_CPUS {
        println!("@error {} CPUs are more than {MAX_CPUS}", smp::count());
        return;
    }
    let seconds = options::number("seconds", 10);
    CREW.set_end(timer::now() + timer::ticks(seconds * 1_000_000));
    irq::set_handler(Some(handle));
    if !smp::start_others(work) {
        return;
    }
    work(0);
    report(seconds);
}

fn sgi(sender: usize, receiver: usize) -> &'static Account {
    &SGIS[sender & 15][receiver & 15]
}

fn ring(cpu: usize, timer: usize) -> &'static Account {
    &RINGS[cpu & 15][timer & 1]
}

fn handle(intid: u32) {
    let this = cpu::this().index();
    if let Some(index) = TIMERS.iter().position(|timer| timer.intid() == intid) {
        TIMERS[index & 1].set_control(0);
        return ring(this, index).take(timer::now());
    }
    if gic::version() == Version::Gicv2 && u32::from(gic::v2::last_sender(intid)) != intid {
        STRANGE.fetch_add(1, SeqCst);
    }
    sgi(intid as usize, this).take(timer::now());
}

/// One of this CPU's timers, which rings at the moments of a grid that all CPUs have in common.
struct Clock {
    timer: Timer,
    account: &'static Account,
    grid: Grid,
}

impl Clock {
    fn new(index: usize, timer: Timer) -> Self {
        let period = timer::ticks(options::number("period", 250_000)).max(1);
        // The two timers ring in turn.
        let grid = Grid::new(timer::now(), period, index as u64 * period / 2);
        Clock { timer, account: ring(cpu::this().index(), index), grid }
    }

    fn set(&mut self, random: &mut Random) {
        let due = self.grid.next(&timer::clock()) + random.below(timer::ticks(SPREAD));
        self.account.send(due);
        // The physical count is another one.
        self.timer.set_compare(self.timer.now() + due.saturating_sub(timer::now()));
        self.timer.set_control(timer::ENABLE);
    }
}

/// What each CPU does until everything was sent and taken.
fn work(_: u64) {
    let (this, count) = (cpu::this().index(), smp::count());
    let mut random = random::stream(this as u64);
    gic::init_cpu();
    (0..count as u32).for_each(gic::enable);
    TIMERS.iter().for_each(|timer| gic::enable(timer.intid()));
    let mut member = Member::join(&CREW, this, count, cpu::relax);
    let mut clocks = [0, 1].map(|index| Clock::new(index, TIMERS[index & 1]));
    clocks.iter_mut().for_each(|clock| clock.set(&mut random));
    cpu::mask_irq();
    while !CREW.is_broken() && clocks.iter().any(|clock| clock.account.is_open()) {
        // A pending interrupt ends the wait, although it is masked: nothing comes between looking and waiting.
        cpu::wfi();
        cpu::unmask_irq();
        cpu::mask_irq();
        for clock in &mut clocks {
            CREW.enter_loss(clock.account.is_lost(&timer::clock()));
            if clock.account.is_open() {
                continue;
            }
            if !member.may_leave(send(this)) {
                clock.set(&mut random);
            }
        }
    }
    TIMERS.iter().for_each(|timer| timer.set_control(0));
    member.leave();
}

/// Sends an SGI to each CPU that took the last one; when the time is over, says whether all did.
fn send(this: usize) -> bool {
    CREW.send_to_all(&timer::clock(), &SGIS[this & 15][..smp::count()], |receiver| {
        gic::send_sgi(gic::sgi_value(this as u32, smp::affinity(receiver)));
    })
}

fn report(seconds: u64) {
    let cpus = smp::count();
    let mut sums = Sums { doubled: STRANGE.load(SeqCst), ..Sums::default() };
    let mut add = |account, source, from, to| sums.add(&mut Console, account, source, from, to);
    let (mut sgis, mut rings) = (0, 0);
    for cpu in 0..cpus {
        sgis += (0..cpus).map(|sender| add(sgi(sender, cpu), "SGI", sender, cpu)).sum::<u64>();
        rings += (0..2).map(|timer| add(ring(cpu, timer), "timer", timer, cpu)).sum::<u64>();
    }
    let Sums { lost, doubled, slowest } = sums;
    let slowest = timer::microseconds(slowest);
    println!(
        "@done seconds={seconds} cpus={cpus} sgis={sgis} rings={rings} lost={lost} doubled={doubled} slowest={slowest}"
    );
}
