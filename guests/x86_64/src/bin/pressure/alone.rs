// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One CPU that sends to itself.

use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};

use turnstile_guests_x86_64::apic::{self, register};
use turnstile_guests_x86_64::random::{self, Random};
use turnstile_guests_x86_64::test::Outcome;
use turnstile_guests_x86_64::{check, check_eq, cpu, irq, pv_eoi};

use crate::wanted;

/// Vectors that are sent.
const VECTORS: core::ops::Range<u64> = 0x30..0xff;
/// Most that are pending at once.
const BURST: usize = 24;

static ORDER: [AtomicU8; BURST] = [const { AtomicU8::new(0) }; BURST];
static TAKEN: AtomicUsize = AtomicUsize::new(0);

fn enter(vector: u8) {
    let index = TAKEN.fetch_add(1, Relaxed);
    if let Some(slot) = ORDER.get(index) {
        slot.store(vector, Relaxed);
    }
}

/// Sends different vectors while interrupts are masked; lets some in by TPR, then all: they come once, by priority.
pub fn pending() -> Outcome {
    irq::set_handler(Some(enter));
    if pv_eoi::is_wanted() {
        pv_eoi::enable();
    }
    bursts(1)
}

/// The same by the page of memory.
pub fn xapic() -> Outcome {
    apic::init_as(false);
    irq::set_handler(Some(enter));
    if pv_eoi::is_wanted() {
        pv_eoi::enable();
    }
    bursts(2)
}

fn bursts(stream: u64) -> Outcome {
    let mut random = random::stream(stream);
    let mut total = 0;
    while total < wanted() {
        let mut vectors = [0_u8; BURST];
        let count = random.below(BURST as u64) as usize + 1;
        let mut chosen = 0;
        for slot in &mut vectors[..count] {
            let vector = (VECTORS.start + random.below(VECTORS.end - VECTORS.start)) as u8;
            // Twice the same would be one.
            if irq_bit(&mut chosen, vector) {
                *slot = vector;
                apic::send_to_self(vector);
            }
        }
        vectors.sort_unstable_by(|a, b| b.cmp(a));
        let sent = vectors.iter().filter(|vector| **vector != 0).count();
        TAKEN.store(0, Relaxed);
        let level = random.below(16) as u8;
        apic::write(register::TPR, u32::from(level) << 4);
        cpu::take_interrupts();
        let above = vectors.iter().filter(|vector| **vector >> 4 > level).count();
        check_eq!(TAKEN.load(Relaxed), above, "taken of {sent}, above level {level:#x}");
        apic::write(register::TPR, 0);
        cpu::take_interrupts();
        check_eq!(TAKEN.load(Relaxed), sent, "taken of all");
        let right = ORDER.iter().zip(&vectors[..sent]).all(|(taken, vector)| taken.load(Relaxed) == *vector);
        // Those that TPR held back come behind the others, which are above them: the order is one.
        check!(right, "not in the order of their priorities, after {total}");
        total += sent as u64;
    }
    Ok(())
}

/// Enters a vector into a set of 256 bits, kept as hashes of 64: a collision only leaves one out.
fn irq_bit(chosen: &mut u64, vector: u8) -> bool {
    let bit = 1 << (vector % 61);
    let new = *chosen & bit == 0;
    *chosen |= bit;
    new
}

/// Sent and taken of each vector; the vectors that are in service, innermost last.
static SENT: [AtomicU32; 256] = [const { AtomicU32::new(0) }; 256];
static GOT: [AtomicU32; 256] = [const { AtomicU32::new(0) }; 256];
static RUNNING: [AtomicU8; 16] = [const { AtomicU8::new(0) }; 16];
static DEPTH: AtomicUsize = AtomicUsize::new(0);
static DEEPEST: AtomicUsize = AtomicUsize::new(0);
static WRONG: AtomicBool = AtomicBool::new(false);
static STATE: AtomicU64 = AtomicU64::new(0);

/// A number for handlers, from a generator of their own.
fn number() -> u64 {
    let next =
        STATE.load(Relaxed).wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    STATE.store(next, Relaxed);
    next >> 33
}

/// Sends a vector unless it is pending.
fn send(vector: u8) {
    let (sent, got) = (&SENT[usize::from(vector)], &GOT[usize::from(vector)]);
    if sent.load(Relaxed) == got.load(Relaxed) {
        sent.fetch_add(1, Relaxed);
        apic::send_to_self(vector);
    }
}

fn handle(vector: u8) {
    let (sent, got) = (&SENT[usize::from(vector)], &GOT[usize::from(vector)]);
    let depth = DEPTH.fetch_add(1, Relaxed);
    let below = if depth == 0 { 0 } else { RUNNING[(depth - 1) & 15].load(Relaxed) };
    // Sent and not taken, of a class above the one in service.
    if got.fetch_add(1, Relaxed) + 1 != sent.load(Relaxed) || depth != 0 && below >> 4 >= vector >> 4 {
        WRONG.store(true, Relaxed);
    }
    RUNNING[depth & 15].store(vector, Relaxed);
    DEEPEST.fetch_max(depth + 1, Relaxed);
    if depth < 8 {
        let what = number();
        if what & 3 == 0 {
            send(0x30 + (number() % 0xcf) as u8);
        }
        if what & 0x10 != 0 {
            cpu::take_interrupts();
        }
        if what & 0x60 == 0 {
            send(0x30 + (number() % 0xcf) as u8);
        }
    }
    DEPTH.fetch_sub(1, Relaxed);
}

/// Handlers send others, and let them in.
pub fn nested() -> Outcome {
    for counter in SENT.iter().chain(&GOT) {
        counter.store(0, Relaxed);
    }
    STATE.store(Random::new(1, 3).number(), Relaxed);
    irq::set_handler(Some(handle));
    if pv_eoi::is_wanted() {
        pv_eoi::enable();
    }
    let mut random = random::stream(3);
    let mut rounds = 0_u64;
    while !rounds.is_multiple_of(64)
        || GOT.iter().map(|count| u64::from(count.load(Relaxed))).sum::<u64>() < wanted()
    {
        for _ in 0..random.below(4) + 1 {
            send((VECTORS.start + random.below(VECTORS.end - VECTORS.start)) as u8);
        }
        cpu::take_interrupts();
        rounds += 1;
        check!(!WRONG.load(Relaxed), "one came that was not sent, or not by priority");
    }
    cpu::take_interrupts();
    for (vector, (sent, got)) in SENT.iter().zip(&GOT).enumerate() {
        check_eq!(got.load(Relaxed), sent.load(Relaxed), "taken of vector {vector:#x}");
    }
    check!(DEEPEST.load(Relaxed) > 2, "they were nested {} deep only", DEEPEST.load(Relaxed));
    Ok(())
}
