// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Counts every interrupt for a long time: none may be lost, none may come twice. All CPUs wake at about the same
//! moments, by their APIC's timer, send an interrupt to every CPU, themselves too, and sleep again. One goes out only when
//! the one before it, from the same CPU to the same one, was taken: so no two can become one.
//!
//! Options: `seconds=` of sending (10), `period=` of the timer in microseconds (250000), `pv-eoi=off`.
#![no_std]
#![no_main]

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::SeqCst};

use turnstile_guests_x86_64::random::{self, Random};
use turnstile_guests_x86_64::{apic, cpu, entry, irq, options, pic, println, pv_eoi, smp, timer};

entry!(main);

/// Most CPUs: each sends a vector of its own, that tells whose it is.
const MAX_CPUS: usize = 16;
const TIMER: u8 = 0x51;
const FIRST: u8 = 0x60;
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
    /// The time-stamp counter when the last one was sent, and how long the slowest was under way.
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

    /// Enters one that is due at this time.
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
static IPIS: [[Account; MAX_CPUS]; MAX_CPUS] = [const { [const { Account::new() }; MAX_CPUS] }; MAX_CPUS];
/// By CPU.
static RINGS: [Account; MAX_CPUS] = [const { Account::new() }; MAX_CPUS];
/// Interrupts of vectors that nobody sends.
static STRANGE: AtomicU32 = AtomicU32::new(0);
/// The time at which sending ends.
static END: AtomicU64 = AtomicU64::new(0);
/// How many CPUs can take interrupts, whose interrupts have all been taken, and that have left.
static READY: AtomicU32 = AtomicU32::new(0);
static FINISHED: AtomicU32 = AtomicU32::new(0);
static LEFT: AtomicU32 = AtomicU32::new(0);
/// Something was lost: nobody goes on.
static BROKEN: AtomicBool = AtomicBool::new(false);

fn main() {
    pic::init();
    apic::init();
    if smp::count() > MAX_CPUS {
        println!("@error {} CPUs are more than {MAX_CPUS}", smp::count());
        return;
    }
    timer::apic_ticks();
    let seconds = options::number("seconds", 10);
    END.store(timer::now() + timer::ticks(seconds * 1_000_000), SeqCst);
    irq::set_handler(Some(handle));
    for index in smp::others() {
        if !smp::start(index, work, 0) {
            println!("@error CPU {index} does not start");
            return;
        }
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
        TIMER => ring(this).take(),
        FIRST.. if usize::from(vector - FIRST) < smp::count() => {
            ipi(usize::from(vector - FIRST), this).take()
        }
        _ => _ = STRANGE.fetch_add(1, SeqCst),
    }
}

/// This CPU's timer, which rings at the moments of a grid that all CPUs have in common.
struct Clock {
    account: &'static Account,
    period: u64,
    /// The last moment.
    grid: u64,
}

impl Clock {
    fn new() -> Self {
        let period = timer::ticks(options::number("period", 250_000)).max(1);
        Clock { account: ring(cpu::this().index()), period, grid: timer::now() / period * period }
    }

    fn set(&mut self, random: &mut Random) {
        while self.grid <= timer::now() {
            self.grid += self.period;
        }
        let due = self.grid + random.below(timer::ticks(SPREAD));
        self.account.send(due);
        timer::arm(TIMER, due);
    }
}

/// What each CPU does until everything was sent and taken.
fn work(_: u64) {
    let this = cpu::this().index();
    let count = smp::count() as u32;
    let mut random = random::stream(this as u64);
    if pv_eoi::is_wanted() {
        pv_eoi::enable();
    }
    READY.fetch_add(1, SeqCst);
    while READY.load(SeqCst) < count {
        cpu::relax();
    }
    let mut clock = Clock::new();
    clock.set(&mut random);
    let mut finished = false;
    while !BROKEN.load(SeqCst) && clock.account.is_open() {
        cpu::wait();
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
    timer::disarm();
    LEFT.fetch_add(1, SeqCst);
}

/// Sends an interrupt to each CPU that took the last one; when the time is over, says whether all did.
fn send(this: usize) -> bool {
    let over = timer::now() >= END.load(SeqCst);
    let mut settled = over;
    for receiver in 0..smp::count() {
        let account = ipi(this, receiver);
        if account.is_open() {
            settled = false;
            BROKEN.fetch_or(account.is_lost(), SeqCst);
        } else if !over {
            account.send(timer::now());
            apic::send_to(smp::apic_id(receiver), FIRST + this as u8);
        }
    }
    settled
}

fn report(seconds: u64) {
    let cpus = smp::count();
    let (mut lost, mut doubled, mut slowest) = (0, STRANGE.load(SeqCst), 0);
    let mut add = |account: &Account, source: &str, from: usize, to: usize| {
        let of = |field: &AtomicU32| field.load(SeqCst);
        let wrong = [of(&account.lost), of(&account.doubled)];
        if wrong != [0, 0] {
            let [sent, taken] = [of(&account.sent), of(&account.taken)];
            println!(
                "@error {source} {from} at CPU {to}: sent {sent}, taken {taken}, lost and doubled {wrong:?}"
            );
        }
        lost += wrong[0];
        doubled += wrong[1];
        slowest = slowest.max(account.slowest.load(SeqCst));
        u64::from(of(&account.taken))
    };
    let (mut ipis, mut rings) = (0, 0);
    for cpu in 0..cpus {
        ipis += (0..cpus).map(|sender| add(ipi(sender, cpu), "IPI", sender, cpu)).sum::<u64>();
        rings += add(ring(cpu), "timer", 0, cpu);
    }
    let slowest = timer::microseconds(slowest);
    println!(
        "@done seconds={seconds} cpus={cpus} ipis={ipis} rings={rings} lost={lost} doubled={doubled} slowest={slowest}"
    );
}
