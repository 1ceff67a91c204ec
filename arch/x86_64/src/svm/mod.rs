// SPDX-License-Identifier: Apache-2.0 OR MIT
//! AMD SVM (APM vol. 2, chapter 15): the control block of a vCPU, what is intercepted, and what this CPU can do.
//!
//! | file | what |
//! |---|---|
//! | [`vmcb`] | the control block's layout, and its fields behind functions that keep the clean bits true |
//! | [`intercept`] | what leaves the guest, with the reason for each |
//! | [`asid`] | by which a TLB tells vCPUs apart |
//! | [`permission`] | which MSRs and ports a guest reaches without an exit |
//! | [`features`] | what CPUID 8000_000A says |

pub mod asid;
pub mod features;
pub mod intercept;
pub mod permission;
pub mod vmcb;

pub use features::Features;
pub use vmcb::Vmcb;

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// What all CPUs have.
static FEATURES: AtomicU32 = AtomicU32::new(0);

/// What is subtracted from a vector before its class is compared with the task priority.
static BIAS: AtomicU32 = AtomicU32::new(0);

/// Says whether this machine is QEMU's TCG, by its hypervisor leaf.
fn is_tcg() -> bool {
    const HYPERVISOR: u32 = 1 << 31;
    let [_, signature @ ..] = crate::cpu::cpuid(0x4000_0000, 0);
    crate::cpu::cpuid(1, 0)[2] & HYPERVISOR != 0
        && signature == [*b"TCGT", *b"CGTC", *b"GTCG"].map(u32::from_le_bytes)
}

/// Returns the priority of a virtual interrupt as this machine compares it: the vector's class. QEMU's TCG takes a virtual
/// interrupt whose priority *equals* V_TPR, where the manual (APM vol. 2, 15.21.4) demands a higher one: one less is right there.
#[inline(always)] // One load and two instructions.
pub fn interrupt_priority(vector: u8) -> u32 {
    // Relaxed: set before other CPUs start.
    u32::from(vector).wrapping_sub(BIAS.load(Ordering::Relaxed)) >> 4 & 0xf
}

/// How many bits physical addresses have (APM vol. 3, E.4.7).
static PHYSICAL_BITS: AtomicU32 = AtomicU32::new(0);

/// Whether the CPUs have a barrier for predictions of indirect branches (IBPB, APM vol. 3, E.4.7: bit 12 of EBX).
static PREDICTION_BARRIER: AtomicBool = AtomicBool::new(false);

/// Finds out what this machine's SVM can do; once, by the boot CPU.
pub fn discover() {
    FEATURES.store(Features::of_this_cpu().bits(), Ordering::Relaxed);
    BIAS.store(if is_tcg() { 0x10 } else { 0 }, Ordering::Relaxed);
    let [sizes, extended, ..] = crate::cpu::cpuid(0x8000_0008, 0);
    PHYSICAL_BITS.store(sizes & 0xff, Ordering::Relaxed);
    PREDICTION_BARRIER.store(extended & 1 << 12 != 0, Ordering::Relaxed);
}

/// Says whether the CPUs have PRED_CMD.
pub fn has_prediction_barrier() -> bool {
    // Relaxed: set before other CPUs start.
    PREDICTION_BARRIER.load(Ordering::Relaxed)
}

/// The CPU of the tests gets PRED_CMD.
#[cfg(test)]
pub fn pretend_prediction_barrier() {
    PREDICTION_BARRIER.store(true, Ordering::Relaxed);
}

/// How many bits physical addresses have.
#[inline(always)] // One load.
pub fn physical_bits() -> u32 {
    PHYSICAL_BITS.load(Ordering::Relaxed)
}

/// What this machine's SVM can do.
#[inline] // One load.
pub fn features() -> Features {
    // Relaxed: set before other CPUs start.
    Features::from_bits_truncate(FEATURES.load(Ordering::Relaxed))
}

/// Says whether exits come with the address of the next instruction.
pub fn names_next() -> bool {
    features().contains(Features::NEXT_RIP)
}
