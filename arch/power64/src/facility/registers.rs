// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Groups of special-purpose registers. Those of a group are read one after the other, and written one after the other: an
//! `mfspr` behind an `mtspr` waits for it. What the one before has left with the same value is not written: `mtspr` is slow.

use crate::regs::*;

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

macro_rules! groups {
    ($($(#[$doc:meta])* $vis:vis struct $name:ident { $($(#[$field_doc:meta])* $field:ident: $register:ident = $reset:expr,)* })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        $vis struct $name { $($(#[$field_doc])* $vis $field: u64,)* }

        impl $name {
            /// At the beginning of a life.
            pub const RESET: Self = Self { $($field: $reset,)* };

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
    }

    /// What the hypervisor writes for a guest, and so knows.
    pub struct Modes {
        /// Which partition.
        lpidr: LPIDR = 0,
        /// How the partition runs.
        lpcr: LPCR = 0,
        /// Which facilities the guest has.
        hfscr: HFSCR = super::demand::ALWAYS,
        /// Where it has an instruction breakpoint.
        ciabr: CIABR = 0,
        /// Where it has a watchpoint.
        dawr: DAWR0 = 0,
        /// What that watches.
        dawrx: DAWRX0 = 0,
    }

    /// The performance monitor.
    pub(crate) struct Monitor {
        mmcr0: MMCR0 = super::demand::FROZEN,
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
    Common { sprg0: SPRG0, sprg1: SPRG1, sprg2: SPRG2, sprg3: SPRG3, srr0: SRR0, srr1: SRR1, dar: DAR, dsisr: DSISR, pidr: PIDR, amr: AMR, iamr: IAMR, uamor: UAMOR, dscr: DSCR, fscr: FSCR, pspb: PSPB, tar: TAR, vrsave: VRSAVE, dpdes: DPDES, ppr: PPR }
    Monitor { mmcr0: MMCR0, mmcr1: MMCR1, mmcr2: MMCR2, mmcra: MMCRA, pmc1: PMC1, pmc2: PMC2, pmc3: PMC3, pmc4: PMC4, pmc5: PMC5, pmc6: PMC6, siar: SIAR, sdar: SDAR, sier: SIER }
    Branches { ebbhr: EBBHR, ebbrr: EBBRR, bescr: BESCR }
    Transactions { tfhar: TFHAR, tfiar: TFIAR, texasr: TEXASR }
}
