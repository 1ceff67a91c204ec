// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Waiting for another CPU.

/// Says that this CPU waits for another one. [`core::hint::spin_loop`] is an ISB on Arm and nothing on POWER; this lets an emulator or a
/// core with several threads go on with somebody else.
#[inline(always)] // One instruction.
pub fn relax() {
    #[cfg(all(target_os = "none", target_arch = "aarch64"))]
    // SAFETY: a hint; memory is not changed.
    unsafe {
        core::arch::asm!("yield", options(nostack, preserves_flags));
    }
    #[cfg(all(target_os = "none", target_arch = "powerpc64"))]
    // SAFETY: hints: low priority, and medium priority again (Power ISA 3.0B Book II, 3.2).
    unsafe {
        core::arch::asm!("or 1, 1, 1", "or 2, 2, 2", options(nostack, preserves_flags));
    }
    #[cfg(not(all(target_os = "none", any(target_arch = "aarch64", target_arch = "powerpc64"))))]
    core::hint::spin_loop();
}
