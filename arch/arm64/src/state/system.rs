// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The system registers of a vCPU that is in no CPU: all that a guest can change at EL1 and EL0 without a trap, and
//! where it goes on. What is shown to it only when it uses it is in `facility`; its interrupts are in `irq`.

use crate::cpu::mode::Mode;
use crate::cpu::regs::{self, guest};

/// Defines the state: registers that have other names with VHE than without, and those that have one name. In pairs: two are
/// stored, and loaded, with one instruction.
macro_rules! system_state {
    ($($first:ident $second:ident)*; $($same_first:ident $same_second:ident)*) => {
        /// The system registers of a vCPU. The default is what a vCPU has before its first reset: nothing.
        #[derive(Debug, Default)]
        #[allow(non_snake_case, reason = "the architecture's names")]
        #[repr(C)]
        pub struct SystemState { $($first: u64, $second: u64,)* $($same_first: u64, $same_second: u64,)* }

        impl SystemState {
            /// Stores the registers.
            #[inline(always)] // Straight code, once for each mode.
            pub fn save<M: Mode>(&mut self) {
                $((self.$first, self.$second) = (guest::$first.read::<M>(), guest::$second.read::<M>());)*
                $((self.$same_first, self.$same_second) = (regs::$same_first.read(), regs::$same_second.read());)*
            }

            /// Loads the registers.
            ///
            /// # Safety
            /// They are those of the vCPU that becomes resident.
            #[inline(always)] // As above.
            pub unsafe fn load<M: Mode>(&self) {
                // SAFETY: the caller's promise: the guest gets back what it had.
                unsafe {
                    $(
                        let (first, second) = (self.$first, self.$second);
                        guest::$first.write::<M>(first);
                        guest::$second.write::<M>(second);
                    )*
                    $(
                        let (first, second) = (self.$same_first, self.$same_second);
                        regs::$same_first.write(first);
                        regs::$same_second.write(second);
                    )*
                }
            }
        }
    };
}

system_state! {
    SCTLR CPACR TTBR0 TTBR1 TCR SPSR ELR AFSR0 AFSR1 ESR FAR MAIR AMAIR VBAR CONTEXTIDR CNTKCTL;
    PAR_EL1 SP_EL1 SP_EL0 TPIDR_EL0 TPIDRRO_EL0 TPIDR_EL1 CSSELR_EL1 MDCCINT_EL1 ELR_EL2 SPSR_EL2
}

/// What a guest has only where the CPU has FEAT_RAS: DISR_EL1, which is VDISR_EL2 for it.
#[derive(Debug, Default)]
pub struct Deferred {
    vdisr: u64,
}

/// Whether the CPU has FEAT_RAS (ID_AA64PFR0_EL1.RAS).
fn has_ras() -> bool {
    regs::ID_AA64PFR0_EL1.read() >> 28 & 0xf != 0
}

impl Deferred {
    /// Stores the register.
    #[inline(always)] // A few instructions of each switch.
    pub fn save(&mut self) {
        if has_ras() {
            self.vdisr = regs::VDISR_EL2.read();
        }
    }

    /// Loads the register.
    ///
    /// # Safety
    /// It is that of the vCPU that becomes resident.
    #[inline(always)] // As above.
    pub unsafe fn load(&self) {
        if has_ras() {
            // SAFETY: the caller's promise: the guest gets back what it had.
            unsafe { regs::VDISR_EL2.write(self.vdisr) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::mode::{Nvhe, Vhe};
    use crate::cpu::regs::fakes::{self, Access};
    use crate::state::timers::Timers;
    use std::collections::BTreeMap;
    use std::vec::Vec;

    fn names(written: bool) -> Vec<&'static str> {
        let log = fakes::take_log().into_iter();
        log.filter_map(|access| match access {
            Access::Write(name, _) if written => Some(name),
            Access::Read(name) if !written => Some(name),
            _ => None,
        })
        .collect()
    }

    fn comes_back<M: Mode>() {
        fakes::reset();
        fakes::set("ID_AA64PFR0_EL1", 1 << 28);
        let (mut state, mut timers) = (SystemState::default(), Timers::default());
        let mut deferred = Deferred::default();
        state.save::<M>();
        timers.put::<M>();
        deferred.vdisr = regs::VDISR_EL2.read();
        let values: BTreeMap<_, _> = names(false).into_iter().zip(1..).collect();
        values.iter().for_each(|(name, value)| fakes::set(name, *value));
        state.save::<M>();
        timers.put::<M>();
        deferred.save();
        values.keys().for_each(|name| fakes::set(name, 0xdead));
        fakes::take_log();
        // SAFETY: registers of the test.
        unsafe {
            state.load::<M>();
            timers.load::<M>();
            deferred.load();
        }
        let written = names(true);
        assert_eq!(written.len(), values.len(), "what is loaded is what was saved");
        for (name, value) in &values {
            assert_eq!(fakes::get(name), *value, "{name}");
        }
        assert!(values.len() == 31, "{values:?}");
    }

    #[test]
    fn what_goes_out_comes_back_in_both_modes() {
        comes_back::<Vhe>();
        comes_back::<Nvhe>();
    }
}
