// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Interrupts: acknowledge, count, call the guest's handler, end. Uses the atomic instructions, so the
//! guest has its MMU on (see [`crate::mmu`]).

use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

use turnstile_guests_common::handler::Handler;

use crate::{cpu, gic};

const PRIVATE: usize = 32;
const SHARED: usize = 1020;

static HANDLER: Handler<u32> = Handler::new();
static FINISHER: Handler<u32> = Handler::new();
static PRIVATE_COUNTS: [AtomicU32; PRIVATE * crate::platform::MAX_CPUS] =
    [const { AtomicU32::new(0) }; PRIVATE * crate::platform::MAX_CPUS];
static SHARED_COUNTS: [AtomicU32; SHARED] = [const { AtomicU32::new(0) }; SHARED];
static SPURIOUS: AtomicU32 = AtomicU32::new(0);

/// Sets the function called for each interrupt, with its INTID, between acknowledge and end; `None` for
/// counting only.
pub fn set_handler(handler: Option<fn(u32)>) {
    HANDLER.set(handler);
}

/// Sets the function called for each IRQ, with its INTID, after its end: where EOImode 1 lets deactivations begin.
pub fn set_finisher(finisher: Option<fn(u32)>) {
    FINISHER.set(finisher);
}

fn counter(cpu: usize, intid: u32) -> Option<&'static AtomicU32> {
    match intid as usize {
        private @ 0..PRIVATE => PRIVATE_COUNTS.get(cpu * PRIVATE + private),
        shared => SHARED_COUNTS.get(shared),
    }
}

/// Returns how often this CPU took the private interrupt `intid`, or all CPUs together the shared one.
pub fn count(intid: u32) -> u32 {
    count_on(cpu::this().index(), intid)
}

/// Returns how often the CPU with this index took the private interrupt `intid`.
pub fn count_on(cpu: usize, intid: u32) -> u32 {
    counter(cpu, intid).map_or(0, |count| count.load(Relaxed))
}

/// Returns how many acknowledgements found no interrupt.
pub fn spurious() -> u32 {
    SPURIOUS.load(Relaxed)
}

/// Sets all counters to zero.
pub fn reset_counts() {
    for count in PRIVATE_COUNTS.iter().chain(&SHARED_COUNTS) {
        count.store(0, Relaxed);
    }
    SPURIOUS.store(0, Relaxed);
}

fn taken(intid: u32) {
    if let Some(count) = counter(cpu::this().index(), intid) {
        count.fetch_add(1, Relaxed);
    }
    HANDLER.call(intid);
}

/// Handles an IRQ; the vectors call it.
pub fn on_irq() {
    let intid = gic::acknowledge();
    if intid >= gic::SPECIAL {
        SPURIOUS.fetch_add(1, Relaxed);
        return;
    }
    taken(intid);
    gic::end(intid);
    FINISHER.call(intid);
}

/// Handles an FIQ, which is how a Group 0 interrupt comes; the vectors call it.
pub fn on_fiq() {
    let intid = gic::acknowledge_group0();
    if intid >= gic::SPECIAL {
        SPURIOUS.fetch_add(1, Relaxed);
        return;
    }
    taken(intid);
    gic::end_group0(intid);
}
