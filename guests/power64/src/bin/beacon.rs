// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The machine that must not notice what happens beside it: a line at every tick of its decrementer, a
//! memory pattern checked each time, the lateness of every tick.
//!
//! Options: `count=` beacons (default 100), `period=` microseconds (10000), `limit=` microseconds that a tick
//! may be late (none by default; 0 is none).
#![no_std]
#![no_main]

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use turnstile_guests_power64::{cpu, entry, irq, options, println, timer};

entry!(main);

const WORDS: usize = (1 << 20) / 8;

static MEMORY: [AtomicU64; WORDS] = [const { AtomicU64::new(0) }; WORDS];
static PERIOD: AtomicU64 = AtomicU64::new(0);
static DUE: AtomicU64 = AtomicU64::new(0);
static TICKS: AtomicU64 = AtomicU64::new(0);
static LATEST: AtomicU64 = AtomicU64::new(0);
static WORST: AtomicU64 = AtomicU64::new(0);

fn main() {
    let (count, limit) = (options::number("count", 100), options::number("limit", 0));
    PERIOD.store(timer::ticks(options::number("period", 10_000)), Relaxed);
    fill(0);
    irq::set_handler(Some(tick));
    DUE.store(timer::now() + PERIOD.load(Relaxed), Relaxed);
    timer::arm(DUE.load(Relaxed));
    let mut errors = 0;
    for beacon in 1..=count {
        while TICKS.load(Relaxed) < beacon {
            cpu::wait();
        }
        // Ticks come while this goes on.
        cpu::unmask();
        println!("@beacon {beacon} late={}", timer::microseconds(LATEST.load(Relaxed)));
        if let Some((index, found)) = damaged(beacon - 1) {
            errors += 1;
            println!("@error beacon {beacon}: word {index} holds {found:#x}");
        }
        fill(beacon);
        cpu::mask();
    }
    timer::disarm();
    let worst = timer::microseconds(WORST.load(Relaxed));
    if limit != 0 && worst > limit {
        errors += 1;
        println!("@error a tick was {worst} microseconds late, limit {limit}");
    }
    println!("@done beacons={count} worst={worst} errors={errors}");
}

fn tick(event: u8) {
    if event != irq::TIMER {
        println!("@error unexpected event {event}");
        return;
    }
    let due = DUE.load(Relaxed);
    let late = timer::now().saturating_sub(due);
    LATEST.store(late, Relaxed);
    WORST.fetch_max(late, Relaxed);
    DUE.store(due + PERIOD.load(Relaxed), Relaxed);
    timer::arm(DUE.load(Relaxed));
    TICKS.fetch_add(1, Relaxed);
}

/// The word at `index` in round `round`: each round changes each word.
fn pattern(round: u64, index: usize) -> u64 {
    (round << 32 | index as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

fn fill(round: u64) {
    for (index, word) in MEMORY.iter().enumerate() {
        word.store(pattern(round, index), Relaxed);
    }
}

fn damaged(round: u64) -> Option<(usize, u64)> {
    let words = MEMORY.iter().map(|word| word.load(Relaxed)).enumerate();
    words.into_iter().find(|(index, word)| *word != pattern(round, *index))
}
