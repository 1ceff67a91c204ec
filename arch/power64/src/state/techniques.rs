// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which techniques are taken off, to measure what each is worth (`exit/naive`).

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

pub use turnstile_techniques::{Set, Technique};

/// Whether the entries that do without techniques are to be used.
static IN_USE: AtomicBool = AtomicBool::new(false);
/// What is taken off, a bit for each by its number.
static OFF: AtomicU32 = AtomicU32::new(0);

/// Takes techniques off: at boot, before any guest runs. With an empty set these entries are used all the same: that is
/// what the others are to be compared with.
pub fn take_off(off: Set) {
    let bits = off.iter().fold(0, |bits, technique| bits | 1 << technique as u8);
    // Relaxed: other CPUs read this only after they have found the system built.
    OFF.store(bits, Ordering::Relaxed);
    IN_USE.store(true, Ordering::Relaxed);
}

/// Says whether vCPUs use these entries.
pub fn is_in_use() -> bool {
    IN_USE.load(Ordering::Relaxed)
}

/// Says whether a technique is taken off.
#[inline(always)] // One load.
pub(crate) fn is_off(technique: Technique) -> bool {
    OFF.load(Ordering::Relaxed) >> technique as u8 & 1 != 0
}
