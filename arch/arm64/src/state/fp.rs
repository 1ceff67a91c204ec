// SPDX-License-Identifier: Apache-2.0 OR MIT
//! FP and SIMD registers (Arm ARM A1.4, B1.2). The hypervisor is compiled without them, so they are always a guest's.

use crate::cpu::regs;

/// V0–V31, FPCR and FPSR, while they are not in a CPU. The default is their reset state.
#[derive(Debug, Default)]
#[repr(C, align(16))]
pub struct Fp {
    v: [u128; 32],
    control: u64,
    status: u64,
}

impl Fp {
    /// Stores the registers. They must be untrapped at EL2.
    #[inline(always)] // One caller each: the facility, and the hook of images for ablation.
    pub fn save(&mut self) {
        self.save_vectors();
        self.control = regs::FPCR.read();
        self.status = regs::FPSR.read();
    }

    /// Loads the registers. They must be untrapped at EL2.
    ///
    /// # Safety
    /// They are those of the vCPU that is to use them.
    #[inline(always)] // As above.
    pub unsafe fn load(&self) {
        // SAFETY: the caller's promise; EL2 uses none of these registers.
        unsafe {
            self.load_vectors();
            regs::FPCR.write(self.control);
            regs::FPSR.write(self.status);
        }
    }

    #[cfg(target_os = "none")]
    #[inline(always)] // Into `save`.
    fn save_vectors(&mut self) {
        // SAFETY: stores 512 bytes into `self`, which is laid out so. The compiler uses no FP registers for this target.
        unsafe {
            core::arch::asm!(
                ".arch_extension fp",
                ".arch_extension simd",
                "stp q0, q1, [{v}]",
                "stp q2, q3, [{v}, #32]",
                "stp q4, q5, [{v}, #64]",
                "stp q6, q7, [{v}, #96]",
                "stp q8, q9, [{v}, #128]",
                "stp q10, q11, [{v}, #160]",
                "stp q12, q13, [{v}, #192]",
                "stp q14, q15, [{v}, #224]",
                "stp q16, q17, [{v}, #256]",
                "stp q18, q19, [{v}, #288]",
                "stp q20, q21, [{v}, #320]",
                "stp q22, q23, [{v}, #352]",
                "stp q24, q25, [{v}, #384]",
                "stp q26, q27, [{v}, #416]",
                "stp q28, q29, [{v}, #448]",
                "stp q30, q31, [{v}, #480]",
                ".arch_extension nosimd",
                ".arch_extension nofp",
                v = in(reg) self.v.as_mut_ptr(),
                options(nostack, preserves_flags)
            );
        }
    }

    #[cfg(target_os = "none")]
    #[inline(always)] // Into `load`.
    unsafe fn load_vectors(&self) {
        // SAFETY: the caller's promise, and as above.
        unsafe {
            core::arch::asm!(
                ".arch_extension fp",
                ".arch_extension simd",
                "ldp q0, q1, [{v}]",
                "ldp q2, q3, [{v}, #32]",
                "ldp q4, q5, [{v}, #64]",
                "ldp q6, q7, [{v}, #96]",
                "ldp q8, q9, [{v}, #128]",
                "ldp q10, q11, [{v}, #160]",
                "ldp q12, q13, [{v}, #192]",
                "ldp q14, q15, [{v}, #224]",
                "ldp q16, q17, [{v}, #256]",
                "ldp q18, q19, [{v}, #288]",
                "ldp q20, q21, [{v}, #320]",
                "ldp q22, q23, [{v}, #352]",
                "ldp q24, q25, [{v}, #384]",
                "ldp q26, q27, [{v}, #416]",
                "ldp q28, q29, [{v}, #448]",
                "ldp q30, q31, [{v}, #480]",
                ".arch_extension nosimd",
                ".arch_extension nofp",
                v = in(reg) self.v.as_ptr(),
                options(nostack, preserves_flags, readonly)
            );
        }
    }
}

/// The fakes of the host stand for all vectors with the low half of the first one.
#[cfg(not(target_os = "none"))]
impl Fp {
    fn save_vectors(&mut self) {
        self.v[0] = regs::fakes::read("V0").into();
    }

    unsafe fn load_vectors(&self) {
        regs::fakes::write("V0", self.v[0] as u64);
    }
}
