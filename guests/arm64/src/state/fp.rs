// SPDX-License-Identifier: Apache-2.0 OR MIT
//! FP and SIMD registers: V0–V31, FPCR, FPSR.

use core::arch::asm;

use super::{features, field, word};

/// All of them.
#[derive(Default)]
#[repr(C, align(16))]
pub struct Vectors {
    v: [u128; 32],
    fpcr: u64,
    fpsr: u64,
}

/// Rounding mode in FPCR, from the seed's lowest bits: bits that exist everywhere.
pub(super) fn control(seed: u64) -> u64 {
    (seed & 3) << 22
}

/// Cumulative exception bits in FPSR, likewise.
pub(super) fn status(seed: u64) -> u64 {
    seed & 0xf
}

impl Vectors {
    /// Returns the values of a seed; zero everywhere for zero.
    pub fn pattern(seed: u64) -> Vectors {
        let v = core::array::from_fn(|n| {
            u128::from(word(seed, n as u64)) << 64 | u128::from(word(seed, n as u64 + 32))
        });
        Vectors { v, fpcr: control(seed), fpsr: status(seed) }
    }

    /// Loads the registers.
    pub fn load(&self) {
        // SAFETY: this program is compiled without FP registers; they hold nothing but these patterns.
        unsafe {
            asm!(
                ".arch_extension fp", ".arch_extension simd",
                "ldp q0, q1, [{p}]", "ldp q2, q3, [{p}, #32]", "ldp q4, q5, [{p}, #64]",
                "ldp q6, q7, [{p}, #96]", "ldp q8, q9, [{p}, #128]", "ldp q10, q11, [{p}, #160]",
                "ldp q12, q13, [{p}, #192]", "ldp q14, q15, [{p}, #224]", "ldp q16, q17, [{p}, #256]",
                "ldp q18, q19, [{p}, #288]", "ldp q20, q21, [{p}, #320]", "ldp q22, q23, [{p}, #352]",
                "ldp q24, q25, [{p}, #384]", "ldp q26, q27, [{p}, #416]", "ldp q28, q29, [{p}, #448]",
                "ldp q30, q31, [{p}, #480]",
                "ldr {t}, [{p}, #512]", "msr fpcr, {t}", "ldr {t}, [{p}, #520]", "msr fpsr, {t}",
                ".arch_extension nosimd", ".arch_extension nofp",
                p = in(reg) self, t = out(reg) _, options(nostack),
            );
        }
    }

    /// Stores the registers.
    pub fn store(&mut self) {
        // SAFETY: stores into this structure only.
        unsafe {
            asm!(
                ".arch_extension fp", ".arch_extension simd",
                "stp q0, q1, [{p}]", "stp q2, q3, [{p}, #32]", "stp q4, q5, [{p}, #64]",
                "stp q6, q7, [{p}, #96]", "stp q8, q9, [{p}, #128]", "stp q10, q11, [{p}, #160]",
                "stp q12, q13, [{p}, #192]", "stp q14, q15, [{p}, #224]", "stp q16, q17, [{p}, #256]",
                "stp q18, q19, [{p}, #288]", "stp q20, q21, [{p}, #320]", "stp q22, q23, [{p}, #352]",
                "stp q24, q25, [{p}, #384]", "stp q26, q27, [{p}, #416]", "stp q28, q29, [{p}, #448]",
                "stp q30, q31, [{p}, #480]",
                "mrs {t}, fpcr", "str {t}, [{p}, #512]", "mrs {t}, fpsr", "str {t}, [{p}, #520]",
                ".arch_extension nosimd", ".arch_extension nofp",
                p = in(reg) &raw mut *self, t = out(reg) _, options(nostack),
            );
        }
    }

    /// Returns the number of the first register that differs; 32 and 33 are FPCR and FPSR.
    pub fn difference(&self, other: &Vectors) -> Option<usize> {
        let v = self.v.iter().zip(&other.v).position(|(one, two)| one != two);
        let control = [(self.fpcr, other.fpcr), (self.fpsr, other.fpsr)];
        v.or_else(|| control.iter().position(|(one, two)| one != two).map(|index| index + 32))
    }
}

/// Says whether this machine has FP.
pub fn exists() -> bool {
    field(features(), 16) != 0xf
}

/// Fills the registers.
pub fn fill(seed: u64) {
    Vectors::pattern(seed).load();
}

/// Says whether the registers are as filled.
pub fn holds(seed: u64) -> bool {
    let mut now = Vectors::default();
    now.store();
    now.difference(&Vectors::pattern(seed)).is_none()
}
