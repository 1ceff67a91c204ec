// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What all physical CPUs in use have alike: only that is offered to guests, which may run on any of them.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::cpu::regs;

/// No CPU has started.
const UNKNOWN: u64 = !0;
/// ID_AA64ISAR1_EL1: APA, API, GPA, GPI.
const ISAR1_PAUTH: u64 = 0xf << 4 | 0xf << 8 | 0xf << 24 | 0xf << 28;
/// ID_AA64ISAR2_EL1: GPA3, APA3.
const ISAR2_PAUTH: u64 = 0xf << 8 | 0xf << 12;

struct Common {
    /// The longest vector in bytes; zero if a CPU has no SVE.
    vector_length: AtomicU32,
    /// The event counters of the PMU.
    event_counters: AtomicU32,
    /// The fields of pointer authentication, those of ISAR2 in the upper half; zero if CPUs differ.
    pauth: AtomicU64,
}

impl Common {
    const fn new() -> Self {
        Self {
            vector_length: AtomicU32::new(u32::MAX),
            event_counters: AtomicU32::new(31),
            pauth: AtomicU64::new(UNKNOWN),
        }
    }
}

/// Returns what is known.
// Relaxed, wherever it is used: CPUs start one after the other, each says so with a release, and the boot CPU waits for
// it.
#[cfg(target_os = "none")]
fn common() -> &'static Common {
    static COMMON: Common = Common::new();
    &COMMON
}

/// On the host each test has a machine of its own.
#[cfg(not(target_os = "none"))]
fn common() -> &'static Common {
    std::thread_local!(static COMMON: &'static Common = std::boxed::Box::leak(std::boxed::Box::new(Common::new())));
    COMMON.with(|common| *common)
}

/// Takes note of what this CPU has, before any VM is made: vectors of so many bytes, zero without SVE, and so many event
/// counters.
pub fn note(vector_length: u32, event_counters: u32) {
    let common = common();
    common.vector_length.fetch_min(vector_length, Ordering::Relaxed);
    common.event_counters.fetch_min(event_counters, Ordering::Relaxed);
    let mine =
        regs::ID_AA64ISAR1_EL1.read() & ISAR1_PAUTH | (regs::ID_AA64ISAR2_EL1.read() & ISAR2_PAUTH) << 32;
    let before = common.pauth.load(Ordering::Relaxed);
    let alike = before == UNKNOWN || before == mine;
    common.pauth.store(if alike { mine } else { 0 }, Ordering::Relaxed);
}

/// Returns the longest vector in bytes that a guest may have, zero without SVE.
pub fn vector_length() -> usize {
    match common().vector_length.load(Ordering::Relaxed) {
        u32::MAX => 0,
        length => length as usize,
    }
}

/// Returns how many event counters guests have: MDCR_EL2.HPMN.
pub fn event_counters() -> u64 {
    common().event_counters.load(Ordering::Relaxed).into()
}

/// Returns what guests see of pointer authentication in ID_AA64ISAR1_EL1 and ID_AA64ISAR2_EL1.
pub fn pauth_fields() -> [u64; 2] {
    match common().pauth.load(Ordering::Relaxed) {
        UNKNOWN => [0, 0],
        fields => [fields & ISAR1_PAUTH, fields >> 32],
    }
}

/// Says whether guests have pointer authentication.
pub fn has_pauth() -> bool {
    pauth_fields() != [0, 0]
}
