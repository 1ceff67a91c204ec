// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Interrupts as events, whatever controller they come from: counters, and the guest's handler.

use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

use turnstile_guests_common::handler::Handler;

use crate::cpu::{self, MAX_CPUS};

/// The timer has come to its time.
pub const TIMER: u8 = 0;
/// A CPU has sent an interrupt.
pub const IPI: u8 = 1;
/// A directed privileged doorbell.
pub const DOORBELL: u8 = 2;
/// An interrupt of a source that is none of the above.
pub const DEVICE: u8 = 3;
/// An external interrupt without a source.
pub const SPURIOUS: u8 = 4;
const EVENTS: usize = 5;

static HANDLER: Handler<u8> = Handler::new();
static COUNTS: [[AtomicU32; EVENTS]; MAX_CPUS] = [const { [const { AtomicU32::new(0) }; EVENTS] }; MAX_CPUS];

/// Sets the function that is called for each event, before its end; `None` for counting only.
pub fn set_handler(handler: Option<fn(u8)>) {
    HANDLER.set(handler);
}

/// Returns how often this CPU took this event.
pub fn count(event: u8) -> u32 {
    count_on(cpu::this().index(), event)
}

/// Returns how often the CPU with this number took this event.
pub fn count_on(cpu: usize, event: u8) -> u32 {
    COUNTS[cpu % MAX_CPUS][usize::from(event) % EVENTS].load(Relaxed)
}

/// Sets all counters to zero.
pub fn reset_counts() {
    COUNTS.iter().flatten().for_each(|count| count.store(0, Relaxed));
}

/// Enters an event.
pub fn on_event(event: u8) {
    COUNTS[cpu::this().index()][usize::from(event) % EVENTS].fetch_add(1, Relaxed);
    HANDLER.call(event);
}
