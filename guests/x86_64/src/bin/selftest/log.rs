// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which interrupts the boot CPU took, in their order.

use core::sync::atomic::{AtomicU8, AtomicUsize, Ordering::Relaxed};

use turnstile_guests_x86_64::{cpu, irq, timer};

const LENGTH: usize = 64;

static TAKEN: [AtomicU8; LENGTH] = [const { AtomicU8::new(0) }; LENGTH];
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Begins: from here on interrupts are logged.
pub fn begin() {
    COUNT.store(0, Relaxed);
    irq::set_handler(Some(enter));
}

/// Enters a vector.
pub fn enter(vector: u8) {
    let index = COUNT.fetch_add(1, Relaxed);
    if let Some(slot) = TAKEN.get(index) {
        slot.store(vector, Relaxed);
    }
}

/// Says whether just these were taken, in this order.
pub fn is(vectors: &[u8]) -> bool {
    count() == vectors.len()
        && TAKEN.iter().zip(vectors).all(|(taken, vector)| taken.load(Relaxed) == *vector)
}

/// How many were taken.
pub fn count() -> usize {
    COUNT.load(Relaxed)
}

/// The first of them.
pub fn first() -> u8 {
    TAKEN[0].load(Relaxed)
}

/// Lets interrupts in until so many were taken, for 50 milliseconds at most; returns whether they were.
pub fn wait_for(wanted: usize) -> bool {
    cpu::unmask();
    let came = timer::wait(50_000, || count() >= wanted);
    cpu::mask();
    came
}

/// Lets interrupts in for so many microseconds.
pub fn wait(microseconds: u64) {
    cpu::unmask();
    timer::wait(microseconds, || false);
    cpu::mask();
}
