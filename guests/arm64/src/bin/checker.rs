// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Counts every interrupt for a long time: none may be lost, none may come twice. All CPUs wake at about the same
//! moments, by either timer, send an SGI to every CPU, themselves too, and sleep again. An SGI goes out only when the
//! one before it, from the same CPU to the same one, was taken: so no two can become one.
//!
//! Options: `seconds=` of sending (10), `period=` of each timer in microseconds (250000).
#![no_std]
#![no_main]

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::SeqCst};

use turnstile_guests::gic::{self, Version};
use turnstile_guests::random::{self, Random};
use turnstile_guests::timer::{self, Timer};
use turnstile_guests::{cpu, entry, irq, mmu, options, println, psci, smp};

entry!(main);

/// Most CPUs: each sends the SGI of its own number, so that also a GICv3 tells whose it is.
const MAX_CPUS: usize = 16;
const TIMERS: [Timer; 2] = [Timer::Virtual, Timer::Physical];
/// So long after it was sent, in microseconds, an interrupt is lost.
const PATIENCE: u64 = 3_000_000;
/// The CPUs wake within so many microseconds.
const SPREAD: u64 = 50;

/// The interrupts of one source at one CPU.
struct Account {
    sent: AtomicU32,
    taken: AtomicU32,
    lost: AtomicU32,
    doubled: AtomicU32,
    /// The virtual count when the last one was sent, and how long the slowest was under way.
    sent_at: AtomicU64,
    slowest: AtomicU64,
}

impl Account {
    const fn new() -> Self {
        Account {
            sent: AtomicU32::new(0),
            taken: AtomicU32::new(0),
            lost: AtomicU32::new(0),
            doubled: AtomicU32::new(0),
            sent_at: AtomicU64::new(0),
            slowest: AtomicU64::new(0),
        }
    }

    fn is_open(&self) -> bool {
        self.taken.load(SeqCst) < self.sent.load(SeqCst)
    }

    /// Enters one that is due at this virtual count.
    fn send(&self, at: u64) {
        self.sent_at.store(at, SeqCst);
        self.sent.fetch_add(1, SeqCst);
    }

    fn take(&self) {
        if !self.is_open() {
            self.doubled.fetch_add(1, SeqCst);
        }
        self.slowest.fetch_max(self.age(), SeqCst);
        self.taken.fetch_add(1, SeqCst);
    }

    fn age(&self) -> u64 {
        timer::now().saturating_sub(self.sent_at.load(SeqCst))
    }

    /// Says whether it should have been taken long ago, and enters that.
    fn is_lost(&self) -> bool {
        let lost = self.is_open() && self.age() > timer::ticks(PATIENCE);
        self.lost.fetch_add(lost.into(), SeqCst);
        lost
    }
}

/// By sender and receiver.
static SGIS: [[Account; MAX_CPUS]; MAX_CPUS] = [const { [const { Account::new() }; MAX_CPUS] }; MAX_CPUS];
/// By CPU, as in [`TIMERS`].
static RINGS: [[Account; 2]; MAX_CPUS] = [const { [const { Account::new() }; 2] }; MAX_CPUS];
/// SGIs that a GICv2 says another CPU sent than it was.
static STRANGE: AtomicU32 = AtomicU32::new(0);
/// The virtual count at which sending ends.
static END: AtomicU64 = AtomicU64::new(0);
/// How many CPUs can take interrupts, whose SGIs have all been taken, and that have left.
static READY: AtomicU32 = AtomicU32::new(0);
static FINISHED: AtomicU32 = AtomicU32::new(0);
static LEFT: AtomicU32 = AtomicU32::new(0);
/// Something was lost: nobody goes on.
static BROKEN: AtomicBool = AtomicBool::new(false);

fn main() {
    mmu::enable();
    gic::init();
    if smp::count() > MAX_CPUS {
        println!("@error {} CPUs are more than {MAX_CPUS}", smp::count());
        return;
    }
    let seconds = options::number("seconds", 10);
    END.store(timer::now() + timer::ticks(seconds * 1_000_000), SeqCst);
    irq::set_handler(Some(handle));
    for index in smp::others() {
        if smp::start(index, work, 0) != psci::status::SUCCESS {
            println!("@error CPU {index} does not start");
            return;
        }
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
        return ring(this, index).take();
    }
    if gic::version() == Version::Gicv2 && u32::from(gic::v2::last_sender(intid)) != intid {
        STRANGE.fetch_add(1, SeqCst);
    }
    sgi(intid as usize, this).take();
}

/// One of this CPU's timers, which rings at the moments of a grid that all CPUs have in common.
struct Clock {
    timer: Timer,
    account: &'static Account,
    period: u64,
    /// The last moment, as a virtual count.
    grid: u64,
}

impl Clock {
    fn new(index: usize, timer: Timer) -> Self {
        let period = timer::ticks(options::number("period", 250_000)).max(1);
        // The two timers ring in turn.
        let grid = timer::now() / period * period + index as u64 * period / 2;
        Clock { timer, account: ring(cpu::this().index(), index), period, grid }
    }

    fn set(&mut self, random: &mut Random) {
        while self.grid <= timer::now() {
            self.grid += self.period;
        }
        let due = self.grid + random.below(timer::ticks(SPREAD));
        self.account.send(due);
        // The physical count is another one.
        self.timer.set_compare(self.timer.now() + due.saturating_sub(timer::now()));
        self.timer.set_control(timer::ENABLE);
    }
}

/// What each CPU does until everything was sent and taken.
fn work(_: u64) {
    let this = cpu::this().index();
    let count = smp::count() as u32;
    let mut random = random::stream(this as u64);
    gic::init_cpu();
    (0..count).for_each(gic::enable);
    TIMERS.iter().for_each(|timer| gic::enable(timer.intid()));
    READY.fetch_add(1, SeqCst);
    while READY.load(SeqCst) < count {
        cpu::relax();
    }
    let mut clocks = [0, 1].map(|index| Clock::new(index, TIMERS[index & 1]));
    clocks.iter_mut().for_each(|clock| clock.set(&mut random));
    let mut finished = false;
    cpu::mask_irq();
    while !BROKEN.load(SeqCst) && clocks.iter().any(|clock| clock.account.is_open()) {
        // A pending interrupt ends the wait, although it is masked: nothing comes between looking and waiting.
        cpu::wfi();
        cpu::unmask_irq();
        cpu::mask_irq();
        for clock in &mut clocks {
            BROKEN.fetch_or(clock.account.is_lost(), SeqCst);
            if clock.account.is_open() {
                continue;
            }
            let settled = send(this);
            if settled && !finished {
                finished = true;
                FINISHED.fetch_add(1, SeqCst);
            }
            // The first CPU, which ends the machine, stays until the others have left.
            let over = FINISHED.load(SeqCst) == count && (this != 0 || LEFT.load(SeqCst) == count - 1);
            if !over {
                clock.set(&mut random);
            }
        }
    }
    TIMERS.iter().for_each(|timer| timer.set_control(0));
    LEFT.fetch_add(1, SeqCst);
}

/// Sends an SGI to each CPU that took the last one; when the time is over, says whether all did.
fn send(this: usize) -> bool {
    let over = timer::now() >= END.load(SeqCst);
    let mut settled = over;
    for receiver in 0..smp::count() {
        let account = sgi(this, receiver);
        if account.is_open() {
            settled = false;
            BROKEN.fetch_or(account.is_lost(), SeqCst);
        } else if !over {
            account.send(timer::now());
            gic::send_sgi(gic::sgi_value(this as u32, smp::affinity(receiver)));
        }
    }
    settled
}

fn report(seconds: u64) {
    let cpus = smp::count();
    let of = |field: fn(&Account) -> &AtomicU32, account: &Account| field(account).load(SeqCst);
    let (mut lost, mut doubled, mut slowest) = (0, STRANGE.load(SeqCst), 0);
    let mut add = |account: &Account, source: &str, from: usize, to: usize| {
        let [sent, taken] = [of(|account| &account.sent, account), of(|account| &account.taken, account)];
        let wrong = [of(|account| &account.lost, account), of(|account| &account.doubled, account)];
        if wrong != [0, 0] {
            println!(
                "@error {source} {from} at CPU {to}: sent {sent}, taken {taken}, lost and doubled {wrong:?}"
            );
        }
        lost += wrong[0];
        doubled += wrong[1];
        slowest = slowest.max(account.slowest.load(SeqCst));
        u64::from(taken)
    };
    let (mut sgis, mut rings) = (0, 0);
    for cpu in 0..cpus {
        sgis += (0..cpus).map(|sender| add(sgi(sender, cpu), "SGI", sender, cpu)).sum::<u64>();
        rings += (0..2).map(|timer| add(ring(cpu, timer), "timer", timer, cpu)).sum::<u64>();
    }
    let slowest = slowest * 1_000_000 / timer::frequency();
    println!(
        "@done seconds={seconds} cpus={cpus} sgis={sgis} rings={rings} lost={lost} doubled={doubled} slowest={slowest}"
    );
}
