// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Interrupts: count, call the guest's handler, end.

use core::sync::atomic::{AtomicU8, AtomicU32, Ordering::Relaxed};

use turnstile_guests_common::handler::Handler;

use crate::platform::MAX_CPUS;
use crate::{apic, cpu, pic, pv_eoi};

static HANDLER: Handler<u8> = Handler::new();
static COUNTS: [[AtomicU32; 256]; MAX_CPUS] = [const { [const { AtomicU32::new(0) }; 256] }; MAX_CPUS];
/// How interrupts are ended; see [`Ending`].
static ENDING: AtomicU8 = AtomicU8::new(0);

/// How an interrupt is ended.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// The local APIC's EOI register is written, unless paravirtual EOI says that this is not necessary.
    Eoi,
    /// The handler does it, or nobody.
    Handler,
}

/// Sets the function that is called for each interrupt with its vector, before its end; `None` for counting only.
pub fn set_handler(handler: Option<fn(u8)>) {
    HANDLER.set(handler);
}

/// Says how interrupts are ended.
pub fn set_ending(ending: Ending) {
    ENDING.store(ending as u8, Relaxed);
}

/// Returns how often this CPU took this vector.
pub fn count(vector: u8) -> u32 {
    count_on(cpu::this().index(), vector)
}

/// Returns how often the CPU with this number took this vector.
pub fn count_on(cpu: usize, vector: u8) -> u32 {
    COUNTS.get(cpu).map_or(0, |counts| counts[usize::from(vector)].load(Relaxed))
}

/// Returns how often this CPU took vectors, all together.
pub fn total() -> u32 {
    COUNTS.get(cpu::this().index()).map_or(0, |counts| counts.iter().map(|count| count.load(Relaxed)).sum())
}

/// Sets all counters to zero.
pub fn reset_counts() {
    COUNTS.iter().flatten().for_each(|count| count.store(0, Relaxed));
}

/// Handles an interrupt; the stubs call it.
pub fn on_interrupt(vector: u8) {
    if let Some(counts) = COUNTS.get(cpu::this().index()) {
        counts[usize::from(vector)].fetch_add(1, Relaxed);
    }
    HANDLER.call(vector);
    match vector {
        // Nothing is in service after a spurious one; something is when somebody sent an interrupt with its vector.
        apic::SPURIOUS if !apic::bit(apic::register::ISR, vector) => {}
        pic::BASE..pic::END => pic::end(vector),
        _ if ENDING.load(Relaxed) == Ending::Handler as u8 => {}
        _ => pv_eoi::end(),
    }
}
