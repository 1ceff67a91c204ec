// SPDX-License-Identifier: Apache-2.0 OR MIT
//! FP and SIMD registers. The hypervisor is compiled without them, so they are always the guest's.

/// Clears V0–V31, FPCR and FPSR.
pub fn reset() {
    #[cfg(target_os = "none")]
    // SAFETY: the compiler uses no FP registers for this target; CPTR_EL2.FPEN lets EL2 access them.
    unsafe {
        core::arch::asm!(
            ".arch_extension fp",
            ".arch_extension simd",
            ".irp n, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31",
            "movi v\\n\\().2d, #0",
            ".endr",
            "msr fpcr, xzr",
            "msr fpsr, xzr",
            ".arch_extension nosimd",
            ".arch_extension nofp",
            options(nomem, nostack, preserves_flags)
        );
    }
}
