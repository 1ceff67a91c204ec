// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a guest with its caches off sees of what the hypervisor has written for it.
//!
//! A CPU with FEAT_S2FWB makes all accesses to a VM's RAM cacheable, whatever the guest says (HCR_EL2.FWB, Arm ARM D8.6.5): its
//! memory needs no cleaning, if instruction fetches see what is in the data caches, too (CTR_EL0.IDC). Otherwise
//! guests read past the caches until they turn them on, so the lines must be in memory by then.

#[cfg(target_os = "none")]
use core::sync::atomic::{AtomicBool, Ordering};

use turnstile_paging::{Memory, Stage2Attributes};

use crate::cpu;
use crate::cpu::regs;

/// HCR_EL2.FWB.
const HCR_FWB: u64 = 1 << 46;
/// CTR_EL0.IDC: what a CPU has written is seen by instruction fetches without cleaning.
const CTR_IDC: u64 = 1 << 28;

/// Whether all RAM of guests is cacheable. Written once, before the first table of a guest.
#[cfg(target_os = "none")]
static FORCED: AtomicBool = AtomicBool::new(false);
#[cfg(not(target_os = "none"))]
std::thread_local!(
    /// Each test has a machine of its own.
    static FORCED: core::cell::Cell<bool> = const { core::cell::Cell::new(false) }
);

/// Whether this CPU can force accesses to be cacheable, ID_AA64MMFR2_EL1.FWB, and has them seen by instruction fetches.
fn can_force() -> bool {
    regs::ID_AA64MMFR2_EL1.read() >> 40 & 0xf != 0 && regs::CTR_EL0.read() & CTR_IDC != 0
}

/// Chooses, on the boot CPU.
pub fn choose() {
    #[cfg(target_os = "none")]
    FORCED.store(can_force(), Ordering::Relaxed);
    #[cfg(not(target_os = "none"))]
    FORCED.set(can_force());
}

/// Whether this CPU can do what was chosen.
pub fn fits() -> bool {
    !is_forced() || can_force()
}

#[inline] // One load.
fn is_forced() -> bool {
    #[cfg(target_os = "none")]
    return FORCED.load(Ordering::Relaxed);
    #[cfg(not(target_os = "none"))]
    FORCED.get()
}

/// What HCR_EL2 says of it.
pub fn hcr() -> u64 {
    if is_forced() { HCR_FWB } else { 0 }
}

/// Attributes of stage 2 for RAM of guests that the hypervisor writes, too.
#[inline] // On the way of a first touch.
pub fn ram(attributes: Stage2Attributes) -> Stage2Attributes {
    let memory = if is_forced() { Memory::Forced } else { Memory::Normal };
    Stage2Attributes { memory, ..attributes }
}

/// Makes what was written to `size` bytes at `start` visible to a guest with its caches off, and to its instruction
/// fetches once it or [`cpu::ic_ialluis`] has invalidated what was fetched before.
pub fn publish(start: u64, size: u64) {
    if is_forced() {
        // The stores before what tells other CPUs of them.
        cpu::dsb_ish();
    } else {
        cpu::clean_to_poc(start, size);
    }
}

/// Chooses that this test's machine forces accesses to be cacheable.
#[cfg(test)]
pub(crate) fn force() {
    regs::fakes::set("ID_AA64MMFR2_EL1", 1 << 40);
    regs::fakes::set("CTR_EL0", CTR_IDC);
    choose();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::regs::fakes;

    #[test]
    fn memory_is_forced_where_the_boot_cpu_can_and_others_must() {
        fakes::set("ID_AA64MMFR2_EL1", 1 << 40);
        choose();
        assert_eq!((hcr(), fits()), (0, true), "fetches do not see the data caches");
        force();
        assert_eq!((hcr(), fits()), (HCR_FWB, true));
        assert_eq!(
            ram(Stage2Attributes::ROM),
            Stage2Attributes { memory: Memory::Forced, ..Stage2Attributes::ROM }
        );
        fakes::set("ID_AA64MMFR2_EL1", 0);
        assert!(!fits());
        choose();
        assert_eq!((hcr(), fits()), (0, true));
        assert_eq!(ram(Stage2Attributes::RAM), Stage2Attributes::RAM);
    }
}
