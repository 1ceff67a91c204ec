// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Q0–Q31, FPCR and FPSR, stored and loaded.

/// The FP and SIMD registers. On the host, which needs its own, nothing is stored.
#[derive(Debug, Default)]
#[repr(C, align(16))]
pub(super) struct Fp {
    q: [u128; 32],
    control: [u64; 2],
}

impl Fp {
    /// Stores the registers.
    #[inline(always)] // Into one hook.
    pub(super) fn save(&mut self) {
        #[cfg(target_os = "none")]
        // SAFETY: stores 512 bytes and two words into `self`, which is laid out so. The compiler uses no FP
        // registers for this target.
        unsafe {
            core::arch::asm!(
                ".arch_extension fp",
                ".arch_extension simd",
                "stp q0, q1, [{fp}]",
                "stp q2, q3, [{fp}, #32]",
                "stp q4, q5, [{fp}, #64]",
                "stp q6, q7, [{fp}, #96]",
                "stp q8, q9, [{fp}, #128]",
                "stp q10, q11, [{fp}, #160]",
                "stp q12, q13, [{fp}, #192]",
                "stp q14, q15, [{fp}, #224]",
                "stp q16, q17, [{fp}, #256]",
                "stp q18, q19, [{fp}, #288]",
                "stp q20, q21, [{fp}, #320]",
                "stp q22, q23, [{fp}, #352]",
                "stp q24, q25, [{fp}, #384]",
                "stp q26, q27, [{fp}, #416]",
                "stp q28, q29, [{fp}, #448]",
                "stp q30, q31, [{fp}, #480]",
                "mrs {control}, fpcr",
                "mrs {status}, fpsr",
                ".arch_extension nosimd",
                ".arch_extension nofp",
                fp = in(reg) self.q.as_mut_ptr(),
                control = out(reg) self.control[0],
                status = out(reg) self.control[1],
                options(nostack, preserves_flags)
            );
        }
    }

    /// Loads the registers.
    ///
    /// # Safety
    /// They were saved from the vCPU that is resident here.
    #[inline(always)] // Into one hook.
    pub(super) unsafe fn load(&self) {
        #[cfg(target_os = "none")]
        // SAFETY: the caller's promise, and as above.
        unsafe {
            core::arch::asm!(
                ".arch_extension fp",
                ".arch_extension simd",
                "ldp q0, q1, [{fp}]",
                "ldp q2, q3, [{fp}, #32]",
                "ldp q4, q5, [{fp}, #64]",
                "ldp q6, q7, [{fp}, #96]",
                "ldp q8, q9, [{fp}, #128]",
                "ldp q10, q11, [{fp}, #160]",
                "ldp q12, q13, [{fp}, #192]",
                "ldp q14, q15, [{fp}, #224]",
                "ldp q16, q17, [{fp}, #256]",
                "ldp q18, q19, [{fp}, #288]",
                "ldp q20, q21, [{fp}, #320]",
                "ldp q22, q23, [{fp}, #352]",
                "ldp q24, q25, [{fp}, #384]",
                "ldp q26, q27, [{fp}, #416]",
                "ldp q28, q29, [{fp}, #448]",
                "ldp q30, q31, [{fp}, #480]",
                "msr fpcr, {control}",
                "msr fpsr, {status}",
                ".arch_extension nosimd",
                ".arch_extension nofp",
                fp = in(reg) self.q.as_ptr(),
                control = in(reg) self.control[0],
                status = in(reg) self.control[1],
                options(nostack, preserves_flags, readonly)
            );
        }
    }
}
