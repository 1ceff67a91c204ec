// SPDX-License-Identifier: Apache-2.0 OR MIT
//! FP, vector and VSX registers. The hypervisor is compiled without them, so they are the guest's until another one needs
//! them.

/// VSR0 to VSR63, which contain the FP and the vector registers, then FPSCR and VSCR.
#[repr(C, align(16))]
#[derive(Clone, Debug)]
pub(crate) struct Vectors {
    registers: [[u64; 2]; 64],
    fpscr: u64,
    reserved: u64,
    vscr: [u64; 2],
}

#[cfg(target_os = "none")]
unsafe extern "C" {
    /// Stores and loads: `fp.S`.
    fn turnstile_save_vectors(to: *mut Vectors);
    fn turnstile_load_vectors(from: *const Vectors);
}

impl Vectors {
    /// Makes those of a vCPU that has never run: zero, rounding to nearest, no exception enabled. Java mode is off, as
    /// operating systems have it.
    pub(crate) const fn new() -> Self {
        Self { registers: [[0; 2]; 64], fpscr: 0, reserved: 0, vscr: [0; 2] }
    }

    /// Stores what is in registers.
    pub(crate) fn save(&mut self) {
        #[cfg(target_os = "none")]
        // SAFETY: there is room for all.
        unsafe {
            turnstile_save_vectors(self);
        }
        #[cfg(not(target_os = "none"))]
        {
            self.registers[0][0] = crate::cpu::regs::fakes::read("VSR");
        }
    }

    /// Loads the registers.
    ///
    /// # Safety
    /// Nobody needs what is there.
    pub(crate) unsafe fn load(&self) {
        #[cfg(target_os = "none")]
        // SAFETY: all are here, and the caller's promise.
        unsafe {
            turnstile_load_vectors(self);
        }
        #[cfg(not(target_os = "none"))]
        {
            let _ = (self.fpscr, self.reserved, self.vscr);
            crate::cpu::regs::fakes::write("VSR", self.registers[0][0]);
        }
    }
}
