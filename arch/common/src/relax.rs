// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Waiting for another CPU.

/// Says that this CPU waits for another one. [`core::hint::spin_loop`] is an ISB on Arm; this lets an emulator or a
/// core with several threads go on with somebody else.
#[inline(always)] // One instruction.
pub fn relax() {
    #[cfg(all(target_os = "none", target_arch = "aarch64"))]
    // SAFETY: a hint; memory is not changed.
    unsafe {
        core::arch::asm!("yield", options(nostack, preserves_flags));
    }
    #[cfg(not(all(target_os = "none", target_arch = "aarch64")))]
    core::hint::spin_loop();
}
