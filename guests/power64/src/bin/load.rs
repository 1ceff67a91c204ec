// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A mixed load of interrupts as on the other machines: about 22,000 in a second, of decrementers and of CPUs, with hypervisor
//! calls between. Whoever is below counts what exits that takes.
//!
//! Each CPU takes its own decrementer's interrupts and IPIs, of itself if it is alone, else of the CPU before it.
//!
//! Options: `milliseconds=` (1000), `stay` (it waits at its end, so that what was counted can be read), `marks`
//! (see [`turnstile_guests_power64::bench`]), and rates, in a second of each CPU: `timer=` (8000), `ipi=` (13000), `calls=`
//! H_CONFER (2000).
#![no_std]
#![no_main]

use core::sync::atomic::{AtomicU64, Ordering::SeqCst};

use turnstile_guests_power64::{cpu, entry, hcall, irq, options, platform, power, println, smp, timer};

entry!(main);

static SENT: AtomicU64 = AtomicU64::new(0);
static READY: AtomicU64 = AtomicU64::new(0);
static ENDED: AtomicU64 = AtomicU64::new(0);
/// The timebase at which the load begins; zero before it is known.
static BEGIN: AtomicU64 = AtomicU64::new(0);
static END: AtomicU64 = AtomicU64::new(0);

/// Something that is done at a steady rate.
struct Rhythm {
    period: u64,
    due: u64,
}

impl Rhythm {
    fn new(option: &str, rate: u64) -> Self {
        let rate = options::number(option, rate);
        // Never, if the rate is zero.
        let period = timer::frequency().checked_div(rate).unwrap_or(u64::MAX / 2);
        Rhythm { period, due: BEGIN.load(SeqCst).saturating_add(period) }
    }

    fn is_due(&mut self, now: u64) -> bool {
        let due = now >= self.due;
        if due {
            self.due += self.period;
        }
        due
    }
}

fn main() {
    println!("@boot load");
    platform::report();
    irq::init();
    irq::set_handler(Some(handle));
    if !smp::start_others(work) {
        return;
    }
    while READY.load(SeqCst) != smp::count() as u64 - 1 {
        cpu::relax();
    }
    if options::get("marks").is_some() {
        println!("@begin");
    }
    let milliseconds = options::number("milliseconds", 1000);
    let begin = timer::now() + timer::ticks(1000);
    END.store(begin + timer::ticks(1000 * milliseconds), SeqCst);
    BEGIN.store(begin, SeqCst);
    work(0);
    while ENDED.load(SeqCst) != smp::count() as u64 {
        cpu::relax();
    }
    if options::get("marks").is_some() {
        println!("@end");
    }
    report(milliseconds);
    if options::get("stay").is_some() {
        power::halt();
    }
}

/// What each CPU does.
fn work(_: u64) {
    let this = cpu::this().index();
    READY.fetch_add(u64::from(this != 0), SeqCst);
    while BEGIN.load(SeqCst) == 0 {
        cpu::relax();
    }
    let end = END.load(SeqCst);
    let target = (this + 1) % smp::count();
    let mut ipi = Rhythm::new("ipi", 13_000);
    let mut calls = Rhythm::new("calls", 2000);
    rearm();
    cpu::unmask();
    loop {
        let now = timer::now();
        if now >= end {
            break;
        }
        if ipi.is_due(now) {
            SENT.fetch_add(1, SeqCst);
            irq::send(target);
        }
        if calls.is_due(now) {
            hcall::call(hcall::CONFER, [u64::MAX, 0, 0, 0]);
        }
    }
    // Before the decrementer falls silent: what others have sent is to be taken.
    timer::wait(1000, || false);
    cpu::mask();
    timer::disarm();
    ENDED.fetch_add(1, SeqCst);
}

fn rearm() {
    if let Some(period) = timer::frequency().checked_div(options::number("timer", 8000)) {
        timer::arm(timer::now() + period);
    }
}

fn handle(event: u8) {
    if event == irq::TIMER && timer::now() < END.load(SeqCst) {
        rearm();
    }
}

fn report(milliseconds: u64) {
    let of = |event| (0..smp::count()).map(|cpu| u64::from(irq::count_on(cpu, event))).sum::<u64>();
    let [timers, ipis] = [irq::TIMER, irq::IPI].map(of);
    let total = timers + ipis;
    println!(
        "@load milliseconds={milliseconds} cpus={} interrupts={total} timer={timers} ipi={ipis}",
        smp::count()
    );
    let sent = SENT.load(SeqCst);
    // Two to the same CPU become one if the first has not been taken; with one CPU it always has.
    if ipis > sent || smp::count() == 1 && ipis != sent {
        println!("@error {sent} IPIs were sent, and {ipis} taken");
    }
    println!("@done load");
}
