// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Time: the timebase, and the decrementer set by it (Power ISA 3.0B Book III, sections 5.2 and 5.4).

use core::arch::asm;
use core::sync::atomic::Ordering::Relaxed;

pub use turnstile_guests_common::clock::{microseconds, ticks, wait};

use turnstile_guests_common::clock::Clock;

use crate::cpu::{self, spr};
use crate::mtspr;
use crate::platform::platform;

/// The farthest that every decrementer reaches: 32 bits with a sign.
const FARTHEST: u64 = 0x7fff_ffff;

/// Returns the timebase.
pub fn now() -> u64 {
    let value;
    // SAFETY: reads only.
    unsafe { asm!("mfspr {}, 268", out(reg) value, options(nomem, nostack)) };
    value
}

/// Returns its ticks per second.
pub fn frequency() -> u64 {
    platform().timebase
}

/// Returns the timebase as a clock.
pub fn clock() -> Clock {
    Clock { now, frequency: frequency(), relax: cpu::relax }
}

/// Lets this CPU take a timer interrupt when the timebase is `due`.
pub fn arm(due: u64) {
    cpu::this().due.store(due, Relaxed);
    mtspr!(spr::DEC, due.saturating_sub(now()).min(FARTHEST));
}

/// Stops what [`arm`] began.
pub fn disarm() {
    arm(u64::MAX);
}

/// Says whether the time of [`arm`] has come; if not, the decrementer goes on.
pub fn is_due() -> bool {
    let due = cpu::this().due.load(Relaxed);
    let come = now() >= due;
    arm(if come { u64::MAX } else { due });
    come
}
