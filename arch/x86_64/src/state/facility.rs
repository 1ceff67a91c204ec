// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What of a vCPU is in registers that neither an exit nor VMRUN touches, but for what VMLOAD and VMSAVE move: extended state, the debug
//! address registers, TSC_AUX.

use super::extended::{self, Extended};
use crate::cpu;
use crate::cpu::regs::{DR0, DR1, DR2, DR3, PRED_CMD, TSC_AUX};

/// What a switch moves or does besides, on the CPUs that have or need it.
mod besides {
    /// TSC_AUX: with RDTSCP, or with RDPID.
    pub const TSC_AUX: u8 = 1;
    /// IBPB: what one vCPU has taught the predictors of branches is not for the next.
    pub const BARRIER: u8 = 2;

    #[cfg(target_os = "none")]
    mod place {
        use core::sync::atomic::{AtomicU8, Ordering};

        static BITS: AtomicU8 = AtomicU8::new(0);

        // Relaxed: the same on all CPUs, and written before a vCPU runs.
        #[inline(always)] // One load.
        pub fn get() -> u8 {
            BITS.load(Ordering::Relaxed)
        }

        pub fn set(bits: u8) {
            BITS.store(bits, Ordering::Relaxed);
        }
    }

    /// Each test has CPUs of its own.
    #[cfg(not(target_os = "none"))]
    mod place {
        use core::cell::Cell;

        std::thread_local!(static BITS: Cell<u8> = const { Cell::new(0) });

        pub fn get() -> u8 {
            BITS.get()
        }

        pub fn set(bits: u8) {
            BITS.set(bits);
        }
    }

    pub use place::get;

    pub fn change(bit: u8, on: bool) {
        place::set(if on { get() | bit } else { get() & !bit });
    }
}

/// What a vCPU has that is not in registers.
pub struct State {
    extended: Extended,
    debug: [u64; 4],
    tsc_aux: u64,
}

impl State {
    /// Makes that of a vCPU that has never run.
    pub fn new() -> Self {
        Self { extended: Extended::new(), debug: [0; 4], tsc_aux: 0 }
    }

    /// Makes it what it is after a reset.
    pub(crate) fn reset(&mut self) {
        self.extended.reset();
        self.debug = [0; 4];
        self.tsc_aux = 0;
    }

    /// Stores what is in registers, but what VMSAVE does.
    pub(crate) fn save(&mut self) {
        self.extended.save();
        self.debug = [DR0.read(), DR1.read(), DR2.read(), DR3.read()];
        if besides::get() & besides::TSC_AUX != 0 {
            self.tsc_aux = TSC_AUX.read();
        }
    }

    /// Loads it.
    ///
    /// # Safety
    /// Nobody needs what is there.
    pub(crate) unsafe fn load(&self) {
        let [dr0, dr1, dr2, dr3] = self.debug;
        // SAFETY: the caller's promise. #VMEXIT switches breakpoints off (APM vol. 2, 15.6), so they watch the guest alone.
        unsafe {
            self.extended.load();
            DR0.write(dr0);
            DR1.write(dr1);
            DR2.write(dr2);
            DR3.write(dr3);
            // One comparison for all of it: a CPU that needs no barrier pays nothing for those that do.
            match besides::get() {
                besides::TSC_AUX => TSC_AUX.write(self.tsc_aux),
                bits => self.load_besides(bits),
            }
        }
    }

    /// The rest of a switch where there is no TSC_AUX, or more.
    ///
    /// # Safety
    /// As for [`State::load`]; `bits` are what this CPU has.
    #[cold]
    #[inline(never)]
    unsafe fn load_besides(&self, bits: u8) {
        // SAFETY: the caller's promise. The command slows what comes next, and changes nothing else.
        unsafe {
            if bits & besides::TSC_AUX != 0 {
                TSC_AUX.write(self.tsc_aux);
            }
            if bits & besides::BARRIER != 0 {
                PRED_CMD.write(1);
            }
        }
    }
}

/// Says whether IBPB comes between vCPUs; before any of them runs.
pub fn set_barrier(on: bool) {
    besides::change(besides::BARRIER, on);
}

impl Default for State {
    fn default() -> Self {
        Self::new()
    }
}

/// Sets up this CPU. All are taken to be alike.
pub fn start_cpu() {
    /// CPUID Fn8000_0001_EDX.
    const RDTSCP: u32 = 1 << 27;
    /// CPUID Fn0000_0007_ECX.
    const RDPID: u32 = 1 << 22;
    extended::start_cpu();
    let has = cpu::cpuid(0x8000_0001, 0)[3] & RDTSCP != 0
        || cpu::cpuid(0, 0)[0] >= 7 && cpu::cpuid(7, 0)[2] & RDPID != 0;
    besides::change(besides::TSC_AUX, has);
}
