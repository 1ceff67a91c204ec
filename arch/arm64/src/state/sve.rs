// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The Scalable Vector Extension (Arm ARM A1.4.3, B1.2.2): Z0–Z31, of which V0–V31 are the low 128 bits, P0–P15, FFR,
//! and the guest's own limit of the vector length, ZCR_EL1.
//!
//! ZCR_EL2 limits guests, and EL2, to the vector length that all CPUs have.

use alloc::vec;
use alloc::vec::Vec;

use crate::cpu;
use crate::cpu::mode::{Mode, in_mode};
use crate::cpu::regs::{self, guest};

/// ID_AA64PFR0_EL1.SVE.
const PFR0_SVE: u32 = 32;

/// Whether the CPU has SVE.
pub fn exists() -> bool {
    regs::ID_AA64PFR0_EL1.read() >> PFR0_SVE & 0xf != 0
}

/// A vCPU's SVE registers, while they are not in a CPU.
#[derive(Debug)]
pub struct Sve {
    /// The vector length in bytes.
    length: usize,
    /// Z0–Z31, P0–P15, FFR, each as long as the vector length makes it.
    area: Vec<u128>,
    fpcr: u64,
    fpsr: u64,
    zcr: u64,
}

impl Sve {
    /// Makes the reset state for vectors of `length` bytes, a multiple of 16.
    pub fn new(length: usize) -> Self {
        // A predicate has one bit for each byte of a vector.
        let bytes = 32 * length + 17 * (length / 8);
        Self { length, area: vec![0; bytes.div_ceil(16)], fpcr: 0, fpsr: 0, zcr: 0 }
    }

    /// Returns to the reset state.
    pub fn reset(&mut self) {
        self.area.fill(0);
        (self.fpcr, self.fpsr, self.zcr) = (0, 0, 0);
    }

    /// Stores the registers. They must be untrapped at EL2.
    pub fn save(&mut self) {
        self.limit();
        self.zcr = in_mode!(read_zcr());
        self.save_vectors();
        self.fpcr = regs::FPCR.read();
        self.fpsr = regs::FPSR.read();
    }

    /// Loads the registers. They must be untrapped at EL2.
    ///
    /// # Safety
    /// They are those of the vCPU that is to use them.
    pub unsafe fn load(&self) {
        self.limit();
        // SAFETY: the caller's promise; EL2 uses none of these registers.
        unsafe {
            self.load_vectors();
            regs::FPCR.write(self.fpcr);
            regs::FPSR.write(self.fpsr);
            in_mode!(write_zcr(self.zcr));
        }
    }

    /// Makes the vector length that of the area, for EL2 and as the limit of EL1.
    fn limit(&self) {
        // SAFETY: the length is one that this CPU has; EL2 uses no vectors.
        unsafe { regs::ZCR_EL2.write((self.length / 16 - 1) as u64) };
        cpu::isb();
    }

    /// Returns where the predicates begin.
    #[cfg(target_os = "none")]
    fn predicates(&self) -> *mut u8 {
        self.area.as_ptr().cast::<u8>().cast_mut().wrapping_add(32 * self.length)
    }

    #[cfg(target_os = "none")]
    fn save_vectors(&mut self) {
        let vectors = self.area.as_mut_ptr();
        // SAFETY: stores 32 vectors and 17 predicates into the area, which has room for them at the length that
        // `limit` has set. P0 is overwritten last, for FFR: what is in the registers afterwards is nobody's.
        unsafe {
            core::arch::asm!(
                ".arch_extension sve",
                ".irp n, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31",
                "str z\\n\\(), [{z}, #\\n, mul vl]",
                ".endr",
                ".irp n, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15",
                "str p\\n\\(), [{p}, #\\n, mul vl]",
                ".endr",
                "rdffr p0.b",
                "str p0, [{p}, #16, mul vl]",
                ".arch_extension nosve",
                ".arch_extension nosimd",
                ".arch_extension nofp",
                z = in(reg) vectors,
                p = in(reg) self.predicates(),
                options(nostack, preserves_flags)
            );
        }
    }

    #[cfg(target_os = "none")]
    unsafe fn load_vectors(&self) {
        // SAFETY: the caller's promise; reads what `save_vectors` stores, or zeroes.
        unsafe {
            core::arch::asm!(
                ".arch_extension sve",
                "ldr p0, [{p}, #16, mul vl]",
                "wrffr p0.b",
                ".irp n, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15",
                "ldr p\\n\\(), [{p}, #\\n, mul vl]",
                ".endr",
                ".irp n, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31",
                "ldr z\\n\\(), [{z}, #\\n, mul vl]",
                ".endr",
                ".arch_extension nosve",
                ".arch_extension nosimd",
                ".arch_extension nofp",
                z = in(reg) self.area.as_ptr(),
                p = in(reg) self.predicates(),
                options(nostack, preserves_flags, readonly)
            );
        }
    }
}

/// The fakes of the host stand for all registers with the first vector and the first predicate.
#[cfg(not(target_os = "none"))]
impl Sve {
    fn save_vectors(&mut self) {
        self.area[0] = regs::fakes::read("Z0").into();
        self.area[32 * self.length / 16] = regs::fakes::read("P0").into();
    }

    unsafe fn load_vectors(&self) {
        regs::fakes::write("Z0", self.area[0] as u64);
        regs::fakes::write("P0", self.area[32 * self.length / 16] as u64);
    }
}

fn read_zcr<M: Mode>() -> u64 {
    guest::ZCR.read::<M>()
}

unsafe fn write_zcr<M: Mode>(value: u64) {
    // SAFETY: the caller's promise: what the guest had, in the mode of this machine.
    unsafe { guest::ZCR.write::<M>(value) };
}

/// Returns the longest vector of this CPU in bytes. SVE must be untrapped at EL2.
pub fn longest() -> u32 {
    // SAFETY: EL2 uses no vectors; the field holds what is more than any CPU has.
    unsafe { regs::ZCR_EL2.write(0xf) };
    cpu::isb();
    #[cfg(target_os = "none")]
    {
        let length: u64;
        // SAFETY: computes a number from the vector length.
        unsafe {
            core::arch::asm!(
                ".arch_extension sve",
                "rdvl {}, #1",
                ".arch_extension nosve",
                ".arch_extension nosimd",
                ".arch_extension nofp",
                out(reg) length,
                options(nomem, nostack, preserves_flags)
            );
        }
        length as u32
    }
    #[cfg(not(target_os = "none"))]
    {
        regs::fakes::read("VL") as u32
    }
}
