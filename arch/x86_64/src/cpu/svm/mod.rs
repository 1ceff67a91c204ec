// SPDX-License-Identifier: Apache-2.0 OR MIT
//! AMD SVM (APM vol. 2, chapter 15): the control block of a vCPU, what is intercepted, and what this CPU can do.
//!
//! | file | what |
//! |---|---|
//! | [`vmcb`] | the control block's layout, and its fields behind functions that keep the clean bits true; what they hold |
//! | [`intercept`] | what leaves the guest, with the reason for each |
//! | `code` | exit codes |
//! | [`event`] | exceptions to the guest, events cut short |
//! | [`permission`] | which MSRs and ports a guest reaches without an exit |
//! | [`features`](mod@features) | what CPUID 8000_000A says |

pub(crate) mod code;
pub mod event;
pub mod features;
pub mod intercept;
pub mod permission;
pub mod vmcb;

pub use features::Features;
pub use vmcb::Vmcb;

use core::sync::atomic::{AtomicU32, Ordering};

/// What all CPUs have.
static FEATURES: AtomicU32 = AtomicU32::new(0);

/// What is subtracted from a vector before its class is compared with the task priority: not zero on QEMU's TCG alone.
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

/// Says whether a guest must not write CR8 itself: QEMU's TCG (10.0) ends with a failed assertion when a guest does that while
/// a virtual interrupt is pending that the new priority lets through, whatever RFLAGS.IF says.
pub fn carries_out_cr8() -> bool {
    // Relaxed: set before other CPUs start.
    BIAS.load(Ordering::Relaxed) != 0
}

/// See [`interrupt_priority`].
const TCG_BIAS: u32 = 0x10;

/// How many bits physical addresses have (APM vol. 3, E.4.7).
static PHYSICAL_BITS: AtomicU32 = AtomicU32::new(0);

/// Finds out what this machine's SVM can do; once, by the boot CPU.
pub fn discover() {
    FEATURES.store(Features::of_this_cpu().bits(), Ordering::Relaxed);
    BIAS.store(if is_tcg() { TCG_BIAS } else { 0 }, Ordering::Relaxed);
    let [sizes, ..] = crate::cpu::cpuid(0x8000_0008, 0);
    PHYSICAL_BITS.store(sizes & 0xff, Ordering::Relaxed);
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
