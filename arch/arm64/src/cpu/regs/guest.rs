// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The guest's registers that EL2 reaches by other names with VHE than without, as the mode has them.

use crate::cpu::mode::Mode;

macro_rules! guest_registers {
    ($($(#[$doc:meta])* $name:ident = $vhe:ident, $nvhe:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        #[allow(non_camel_case_types, reason = "the architecture's name")]
        pub struct $name;

        impl $name {
            /// Reads the register.
            #[inline(always)] // One instruction: the mode is known when this is compiled.
            pub fn read<M: Mode>(self) -> u64 {
                if M::VHE { super::$vhe.read() } else { super::$nvhe.read() }
            }

            /// Writes the register.
            ///
            /// # Safety
            /// While a guest is resident the value must be one that the architecture, or the guest, gives it.
            /// `M` must be the mode of this machine: the other name is another register, or none.
            #[inline(always)] // One instruction: the mode is known when this is compiled.
            pub unsafe fn write<M: Mode>(self, value: u64) {
                // SAFETY: a register of the guest, which EL2 does not use; the caller answers for the value.
                unsafe { if M::VHE { super::$vhe.write(value) } else { super::$nvhe.write(value) } }
            }
        }
    )*};
}

guest_registers! {
    /// System control.
    SCTLR = SCTLR_EL12, SCTLR_EL1;
    /// FP and SVE access control.
    CPACR = CPACR_EL12, CPACR_EL1;
    /// SVE vector length.
    ZCR = ZCR_EL12, ZCR_EL1;
    /// Tables 0.
    TTBR0 = TTBR0_EL12, TTBR0_EL1;
    /// Tables 1.
    TTBR1 = TTBR1_EL12, TTBR1_EL1;
    /// Translation control.
    TCR = TCR_EL12, TCR_EL1;
    /// Saved PSTATE.
    SPSR = SPSR_EL12, SPSR_EL1;
    /// Exception return address.
    ELR = ELR_EL12, ELR_EL1;
    /// Auxiliary fault status 0.
    AFSR0 = AFSR0_EL12, AFSR0_EL1;
    /// Auxiliary fault status 1.
    AFSR1 = AFSR1_EL12, AFSR1_EL1;
    /// Syndrome.
    ESR = ESR_EL12, ESR_EL1;
    /// Fault address.
    FAR = FAR_EL12, FAR_EL1;
    /// Memory attributes.
    MAIR = MAIR_EL12, MAIR_EL1;
    /// Auxiliary memory attributes.
    AMAIR = AMAIR_EL12, AMAIR_EL1;
    /// Vector base.
    VBAR = VBAR_EL12, VBAR_EL1;
    /// Context ID.
    CONTEXTIDR = CONTEXTIDR_EL12, CONTEXTIDR_EL1;
    /// Timer control for its EL0.
    CNTKCTL = CNTKCTL_EL12, CNTKCTL_EL1;
    /// EL1 physical timer control.
    CNTP_CTL = CNTP_CTL_EL02, CNTP_CTL_EL0;
    /// EL1 physical timer compare value.
    CNTP_CVAL = CNTP_CVAL_EL02, CNTP_CVAL_EL0;
    /// Virtual timer control.
    CNTV_CTL = CNTV_CTL_EL02, CNTV_CTL_EL0;
    /// Virtual timer compare value.
    CNTV_CVAL = CNTV_CVAL_EL02, CNTV_CVAL_EL0;
}
