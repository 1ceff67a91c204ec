// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which special-purpose registers are in which group. How they move is in `groups.rs`.
//!
//! `isa.rs` has the architecture's list, and what becomes of each register that a guest reaches.

use core::sync::atomic::{AtomicU32, Ordering};

use super::groups::{groups, seldom, sparse, stored};
use crate::cpu::regs::*;

/// HFSCR: what every guest has, all the time.
pub(crate) const ALWAYS: u64 =
    hfscr::FP | hfscr::VECTOR | hfscr::DSCR | hfscr::TAR | hfscr::SCV | hfscr::PREFIX;

/// MMCR0: counters are frozen.
pub(crate) const FROZEN: u64 = 1 << 31;

sparse! {
    /// What guests write by themselves, of CPUs that have it.
    pub(crate) struct Newer of NEWER {
        tidr: TIDR,
        psscr: PSSCRPR,
        dexcr: DEXCR,
        hashkeyr: HASHKEYR,
        /// The hypervisor's: a number that the VM has drawn for this life.
        hashpkeyr: HASHPKEYR,
    }

    /// What [`Monitor`] has in addition.
    pub(crate) struct NewerMonitor of NEWER_MONITOR {
        mmcr3: MMCR3,
        sier2: SIER2,
        sier3: SIER3,
    }

    /// What an emulator lets guests write besides.
    pub(crate) struct Emulated of EMULATED {
        ear: EAR,
        usier: USIER,
        bescrs: BESCRS,
        bescrr: BESCRR,
        rwmr: RWMR,
        tacr: TACR,
        tcscr: TCSCR,
        csigr: CSIGR,
        spmc1: SPMC1,
        spmc2: SPMC2,
        mmcrs: MMCRS,
        wort: WORT,
    }

    /// The same of CPUs of Power ISA 3.1.
    pub(crate) struct NewerEmulated of NEWER_EMULATED {
        usier2: USIER2,
        usier3: USIER3,
        ummcr3: UMMCR3,
    }
}

/// CTRL, of which a guest has the run latch: it is read by one number and written by another.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RunLatch;

impl RunLatch {
    /// The number that it is written by.
    #[cfg(test)]
    pub(crate) const NUMBER: u32 = CTRLW::NUMBER;
    /// It is set: the thread does useful work.
    const ON: u64 = 1;

    fn read(self) -> u64 {
        CTRL.read() & Self::ON
    }

    /// # Safety
    /// As for the register.
    unsafe fn write(self, value: u64) {
        // SAFETY: the caller's promise.
        unsafe { CTRLW.write(value) }
    }
}

stored! {
    /// What guests write by themselves.
    pub(crate) struct Common {
        sprg0: SPRG0 = 0,
        sprg1: SPRG1 = 0,
        sprg2: SPRG2 = 0,
        sprg3: SPRG3 = 0,
        srr0: SRR0 = 0,
        srr1: SRR1 = 0,
        dar: DAR = 0,
        dsisr: DSISR = 0,
        pidr: PIDR = 0,
        amr: AMR = 0,
        iamr: IAMR = 0,
        uamor: UAMOR = 0,
        dscr: DSCR = 0,
        fscr: FSCR = 0,
        pspb: PSPB = 0,
        tar: TAR = 0,
        vrsave: VRSAVE = 0,
        dpdes: DPDES = 0,
        ppr: PPR = 4 << 50,
        ctrl: RunLatch = RunLatch::ON,
    }

}

seldom! {
    /// The performance monitor.
    pub(crate) struct Monitor {
        mmcr1: MMCR1 = 0,
        mmcr2: MMCR2 = 0,
        mmcra: MMCRA = 0,
        pmc1: PMC1 = 0,
        pmc2: PMC2 = 0,
        pmc3: PMC3 = 0,
        pmc4: PMC4 = 0,
        pmc5: PMC5 = 0,
        pmc6: PMC6 = 0,
        siar: SIAR = 0,
        sdar: SDAR = 0,
        sier: SIER = 0,
        /// The last one: when it lets counters count, they are the guest's.
        mmcr0: MMCR0 = FROZEN,
    }

    /// Event-based branches.
    pub(crate) struct Branches {
        ebbhr: EBBHR = 0,
        ebbrr: EBBRR = 0,
        bescr: BESCR = 0,
    }

    /// Transactions.
    pub(crate) struct Transactions {
        tfhar: TFHAR = 0,
        tfiar: TFIAR = 0,
        texasr: TEXASR = 0,
    }
}

groups! {
    /// What the hypervisor writes for a guest, and so knows.
    pub struct Modes {
        /// Which partition.
        lpidr: LPIDR = 0,
        /// How the partition runs.
        lpcr: LPCR = 0,
        /// Which facilities the guest has.
        hfscr: HFSCR = ALWAYS,
        /// Where it has an instruction breakpoint.
        ciabr: CIABR = 0,
        /// Where it has a watchpoint.
        dawr: DAWR0 = 0,
        /// What that watches.
        dawrx: DAWRX0 = 0,
    }
}
