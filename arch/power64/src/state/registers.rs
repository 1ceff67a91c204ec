// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Groups of special-purpose registers. Those of a group are read one after the other, and written one after the other: an
//! `mfspr` behind an `mtspr` waits for it. What the one before has left with the same value is not written: `mtspr` is slow.
//!
//! `isa.rs` has the architecture's list, and what becomes of each register that a guest reaches.

use core::sync::atomic::{AtomicU32, Ordering};

use crate::cpu::regs::*;

/// HFSCR: what every guest has, all the time.
pub(crate) const ALWAYS: u64 =
    hfscr::FP | hfscr::VECTOR | hfscr::DSCR | hfscr::TAR | hfscr::SCV | hfscr::PREFIX;

/// MMCR0: counters are frozen.
pub(crate) const FROZEN: u64 = 1 << 31;

macro_rules! stored {
    ($($name:ident { $($field:ident: $register:ident),* $(,)? })*) => {$(
        impl $name {
            /// Stores what is in the registers.
            #[inline(never)] // Once for all: it is long.
            pub(crate) fn save(&mut self) {
                *self = Self { $($field: $register.read(),)* };
            }

            /// Stores what is in each register and loads its next value, one register after the other.
            ///
            /// # Safety
            /// As for [`Self::load`].
            #[cfg(feature = "ablation")]
            #[inline(never)] // Once for all: it is long.
            #[allow(dead_code, reason = "the technique is one of the group that all guests use")]
            pub(crate) unsafe fn exchange(&mut self, next: &Self) {
                $(
                    self.$field = $register.read();
                    if self.$field != next.$field {
                        // SAFETY: the caller's promise.
                        unsafe { $register.write(next.$field) };
                    }
                )*
            }
        }
    )*};
}

/// Groups of registers that not every CPU has: which it has is found out at boot, and the others are never accessed again. At
/// the beginning of a life they are zero.
macro_rules! sparse {
    ($($(#[$doc:meta])* $vis:vis struct $name:ident of $present:ident {
        $($(#[$field_doc:meta])* $field:ident: $register:ident,)*
    })*) => {$(
        /// A bit for each register that the CPU has, in the order of the fields.
        static $present: AtomicU32 = AtomicU32::new(0);

        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        $vis struct $name { $($(#[$field_doc])* $vis $field: u64,)* }

        impl $name {
            /// Finds out which of the registers this CPU has; all CPUs are alike. At boot, in hypervisor state.
            pub(crate) fn discover() {
                // Relaxed: other CPUs read it only after they have found the system built.
                $present.store(Self::find(), Ordering::Relaxed);
            }

            /// Returns a bit for each register that this CPU has.
            pub(crate) fn find() -> u32 {
                let present = [$($register.exists(),)*];
                present.into_iter().rev().fold(0, |bits, exists| bits << 1 | u32::from(exists))
            }

            /// Stores what is in the registers.
            #[inline(always)] // A comparison on CPUs that have none of them.
            pub(crate) fn save(&mut self) {
                let present = $present.load(Ordering::Relaxed);
                if present != 0 {
                    self.save_some(present);
                }
            }

            #[inline(never)] // Once for all: it is long.
            pub(crate) fn save_some(&mut self, present: u32) {
                let mut bit = 1;
                $(
                    if present & bit != 0 {
                        self.$field = $register.read();
                    }
                    bit <<= 1;
                )*
                let _ = bit;
            }

            /// Loads the registers, but for those that have the value already, as `before` has left them.
            ///
            /// # Safety
            /// Nobody needs what is there, and the guest may have what is loaded.
            #[inline(always)] // As for `save`.
            pub(crate) unsafe fn load(&self, before: Option<&Self>) {
                let present = $present.load(Ordering::Relaxed);
                if present != 0 {
                    // SAFETY: the caller's promise.
                    unsafe { self.load_some(before, present) };
                }
            }

            /// # Safety
            /// As for [`Self::load`].
            #[inline(never)] // Once for all: it is long.
            pub(crate) unsafe fn load_some(&self, before: Option<&Self>, present: u32) {
                let mut bit = 1;
                $(
                    if present & bit != 0 && before.is_none_or(|before| before.$field != self.$field) {
                        // SAFETY: the caller's promise.
                        unsafe { $register.write(self.$field) };
                    }
                    bit <<= 1;
                )*
                let _ = bit;
            }

            /// The registers' numbers and names.
            #[cfg(test)]
            pub(crate) const REGISTERS: &[(u32, &str)] =
                &[$(($register::NUMBER, stringify!($register)),)*];
        }
    )*};
}

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
        usier2: USIER2,
        usier3: USIER3,
        ummcr3: UMMCR3,
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
}

macro_rules! groups {
    ($($(#[$doc:meta])* $vis:vis struct $name:ident { $($(#[$field_doc:meta])* $field:ident: $register:ident = $reset:expr,)* })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        $vis struct $name { $($(#[$field_doc])* $vis $field: u64,)* }

        impl $name {
            /// At the beginning of a life.
            pub const RESET: Self = Self { $($field: $reset,)* };

            /// The registers' numbers and names.
            #[cfg(test)]
            pub(crate) const REGISTERS: &[(u32, &str)] =
                &[$(($register::NUMBER, stringify!($register)),)*];

            /// Loads the registers, but for those that have the value already, as `before` has left them.
            ///
            /// # Safety
            /// Nobody needs what is there, and the guest may have what is loaded.
            #[inline(never)] // Once for all: it is long.
            pub(crate) unsafe fn load(&self, before: Option<&Self>) {
                // SAFETY: the caller's promise, for each of them.
                unsafe {
                    match before {
                        Some(before) => {
                            $(if before.$field != self.$field {
                                $register.write(self.$field);
                            })*
                        }
                        None => {
                            $($register.write(self.$field);)*
                        }
                    }
                }
            }
        }
    )*};
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

groups! {
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

stored! {
    Common { sprg0: SPRG0, sprg1: SPRG1, sprg2: SPRG2, sprg3: SPRG3, srr0: SRR0, srr1: SRR1, dar: DAR, dsisr: DSISR, pidr: PIDR, amr: AMR, iamr: IAMR, uamor: UAMOR, dscr: DSCR, fscr: FSCR, pspb: PSPB, tar: TAR, vrsave: VRSAVE, dpdes: DPDES, ppr: PPR, ctrl: RunLatch }
    Monitor { mmcr1: MMCR1, mmcr2: MMCR2, mmcra: MMCRA, pmc1: PMC1, pmc2: PMC2, pmc3: PMC3, pmc4: PMC4, pmc5: PMC5, pmc6: PMC6, siar: SIAR, sdar: SDAR, sier: SIER, mmcr0: MMCR0 }
    Branches { ebbhr: EBBHR, ebbrr: EBBRR, bescr: BESCR }
    Transactions { tfhar: TFHAR, tfiar: TFIAR, texasr: TEXASR }
}
