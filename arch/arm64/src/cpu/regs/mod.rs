// SPDX-License-Identifier: Apache-2.0 OR MIT
//! System registers, one zero-sized value each, with `read` and `write`.
//!
//! On the bare machine an access is one `mrs` or `msr`. Everywhere else it goes to a [`fakes`] recorder,
//! so that host tests run the exit handlers unchanged and assert exactly which registers they touched.
//! Registers whose names the assembler does not know are written in their `S3_…` form.
//!
//! Writing a system register at EL2 can break memory safety, so `write` is `unsafe` everywhere.

macro_rules! registers {
    ($($(#[$doc:meta])* $name:ident = $asm:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        #[allow(non_camel_case_types, non_upper_case_globals, reason = "the architecture's name")]
        pub struct $name;

        impl $name {
            /// Reads the register.
            #[inline(always)] // One instruction.
            pub fn read(self) -> u64 {
                #[cfg(target_os = "none")]
                {
                    let value: u64;
                    // SAFETY: reading a system register at EL2 changes no memory. The asm is not `pure`:
                    // hardware changes these registers, so each read must happen where it is written.
                    unsafe { core::arch::asm!(concat!("mrs {}, ", $asm), out(reg) value, options(nomem, nostack, preserves_flags)) };
                    value
                }
                #[cfg(not(target_os = "none"))]
                fakes::read(stringify!($name))
            }

            /// Writes the register.
            ///
            /// # Safety
            /// The value must keep the hypervisor's own execution and the isolation of guests intact; for
            /// most registers it takes effect only after a context synchronization event.
            #[inline(always)] // One instruction.
            pub unsafe fn write(self, value: u64) {
                #[cfg(target_os = "none")]
                // SAFETY: the caller answers for the value. The asm may order with memory accesses, so it
                // is not `nomem`.
                unsafe { core::arch::asm!(concat!("msr ", $asm, ", {}"), in(reg) value, options(nostack, preserves_flags)) };
                #[cfg(not(target_os = "none"))]
                fakes::write(stringify!($name), value);
            }
        }
    )*};
}

registers! {
    /// Hypervisor configuration (Arm ARM D24.2.53).
    HCR_EL2 = "hcr_el2";
    /// Extended hypervisor configuration; zero disables every feature the guest is not offered.
    HCRX_EL2 = "S3_4_C1_C2_2";
    /// Syndrome of an exception taken to EL2.
    ESR_EL2 = "esr_el2";
    /// Return address of an exception taken to EL2.
    ELR_EL2 = "elr_el2";
    /// Saved PSTATE of an exception taken to EL2.
    SPSR_EL2 = "spsr_el2";
    /// Faulting virtual address.
    FAR_EL2 = "far_el2";
    /// Faulting intermediate physical address, bits 47:12 in bits 39:4.
    HPFAR_EL2 = "hpfar_el2";
    /// Per-CPU pointer of the hypervisor.
    TPIDR_EL2 = "tpidr_el2";
    /// Traps of FP, SVE, SME, trace and AMU.
    CPTR_EL2 = "cptr_el2";
    /// Traps of debug, PMU, SPE and trace.
    MDCR_EL2 = "mdcr_el2";
    /// Traps of AArch32 CP15, none wanted.
    HSTR_EL2 = "hstr_el2";
    /// Syndrome that a virtual SError leaves, which a guest sees and writes as DISR_EL1 (FEAT_RAS).
    VDISR_EL2 = "S3_4_C12_C1_1";
    /// Stage 2 translation control.
    VTCR_EL2 = "vtcr_el2";
    /// Stage 2 tables and VMID.
    VTTBR_EL2 = "vttbr_el2";
    /// MIDR seen by the guest.
    VPIDR_EL2 = "vpidr_el2";
    /// MPIDR seen by the guest.
    VMPIDR_EL2 = "vmpidr_el2";
    /// Fine-grained read traps.
    HFGRTR_EL2 = "S3_4_C1_C1_4";
    /// Fine-grained write traps.
    HFGWTR_EL2 = "S3_4_C1_C1_5";
    /// Fine-grained instruction traps.
    HFGITR_EL2 = "S3_4_C1_C1_6";
    /// Fine-grained debug read traps.
    HDFGRTR_EL2 = "S3_4_C3_C1_4";
    /// Fine-grained debug write traps.
    HDFGWTR_EL2 = "S3_4_C3_C1_5";
    /// Fine-grained activity monitor traps.
    HAFGRTR_EL2 = "S3_4_C3_C1_6";
    /// Fine-grained read traps, second set (FEAT_FGT2).
    HFGRTR2_EL2 = "S3_4_C3_C1_2";
    /// Fine-grained write traps, second set (FEAT_FGT2).
    HFGWTR2_EL2 = "S3_4_C3_C1_3";
    /// Fine-grained debug read traps, second set (FEAT_FGT2).
    HDFGRTR2_EL2 = "S3_4_C3_C1_0";
    /// Fine-grained debug write traps, second set (FEAT_FGT2).
    HDFGWTR2_EL2 = "S3_4_C3_C1_1";
    /// Fine-grained instruction traps, second set (FEAT_FGT2).
    HFGITR2_EL2 = "S3_4_C3_C1_7";
    /// Hypervisor control of the timers.
    CNTHCTL_EL2 = "cnthctl_el2";
    /// Offset of the virtual counter.
    CNTVOFF_EL2 = "cntvoff_el2";
    /// Vector table of EL2.
    VBAR_EL2 = "vbar_el2";
    /// Physical counter.
    CNTPCT_EL0 = "cntpct_el0";
    /// Counter frequency in Hz.
    CNTFRQ_EL0 = "cntfrq_el0";
    /// EL2 physical timer control.
    CNTHP_CTL_EL2 = "cnthp_ctl_el2";
    /// EL2 physical timer compare value.
    CNTHP_CVAL_EL2 = "cnthp_cval_el2";
    /// EL2 virtual timer control (VHE); unused and kept disabled.
    CNTHV_CTL_EL2 = "S3_4_C14_C3_1";
    /// Affinity of this CPU.
    MPIDR_EL1 = "mpidr_el1";
    /// Main ID of this CPU.
    MIDR_EL1 = "midr_el1";
    /// Cache type.
    CTR_EL0 = "ctr_el0";
    /// Block size of DC ZVA.
    DCZID_EL0 = "dczid_el0";

    /// Processor features 0.
    ID_AA64PFR0_EL1 = "id_aa64pfr0_el1";
    /// Processor features 1.
    ID_AA64PFR1_EL1 = "id_aa64pfr1_el1";
    /// Debug features 0.
    ID_AA64DFR0_EL1 = "id_aa64dfr0_el1";
    /// Instruction set attributes 0.
    ID_AA64ISAR0_EL1 = "id_aa64isar0_el1";
    /// Instruction set attributes 1.
    ID_AA64ISAR1_EL1 = "id_aa64isar1_el1";
    /// Instruction set attributes 2.
    ID_AA64ISAR2_EL1 = "S3_0_C0_C6_2";
    /// Memory model features 0.
    ID_AA64MMFR0_EL1 = "id_aa64mmfr0_el1";
    /// Memory model features 1.
    ID_AA64MMFR1_EL1 = "id_aa64mmfr1_el1";
    /// Memory model features 2.
    ID_AA64MMFR2_EL1 = "S3_0_C0_C7_2";
    /// Memory model features 4.
    ID_AA64MMFR4_EL1 = "S3_0_C0_C7_4";

    /// System register interface of the GIC, EL2 view.
    ICC_SRE_EL2 = "S3_4_C12_C9_5";
    /// Acknowledge, Group 1.
    ICC_IAR1_EL1 = "S3_0_C12_C12_0";
    /// End of interrupt, Group 1 (priority drop only: EOImode 1).
    ICC_EOIR1_EL1 = "S3_0_C12_C12_1";
    /// Deactivate.
    ICC_DIR_EL1 = "S3_0_C12_C11_1";
    /// Priority mask of the physical interface.
    ICC_PMR_EL1 = "S3_0_C4_C6_0";
    /// Control of the physical interface.
    ICC_CTLR_EL1 = "S3_0_C12_C12_4";
    /// Binary point, Group 1.
    ICC_BPR1_EL1 = "S3_0_C12_C12_3";
    /// Group 1 enable.
    ICC_IGRPEN1_EL1 = "S3_0_C12_C12_7";
    /// SGI generation, Group 1.
    ICC_SGI1R_EL1 = "S3_0_C12_C11_5";

    /// System register interface of the GIC, EL1 view.
    ICC_SRE_EL1 = "S3_0_C12_C12_5";
    /// Traps of memory partitioning (FEAT_MPAM).
    MPAM2_EL2 = "S3_4_C10_C5_0";

    /// Virtual interface control.
    ICH_HCR_EL2 = "S3_4_C12_C11_0";
    /// Virtual interface type.
    ICH_VTR_EL2 = "S3_4_C12_C11_1";
    /// Maintenance interrupt status.
    ICH_MISR_EL2 = "S3_4_C12_C11_2";
    /// End of interrupt status of the list registers.
    ICH_EISR_EL2 = "S3_4_C12_C11_3";
    /// Empty list registers.
    ICH_ELRSR_EL2 = "S3_4_C12_C11_5";
    /// Virtual machine control.
    ICH_VMCR_EL2 = "S3_4_C12_C11_7";
    /// Active priorities, Group 0.
    ICH_AP0R0_EL2 = "S3_4_C12_C8_0";
    /// Active priorities, Group 0, word 1.
    ICH_AP0R1_EL2 = "S3_4_C12_C8_1";
    /// Active priorities, Group 0, word 2.
    ICH_AP0R2_EL2 = "S3_4_C12_C8_2";
    /// Active priorities, Group 0, word 3.
    ICH_AP0R3_EL2 = "S3_4_C12_C8_3";
    /// Active priorities, Group 1.
    ICH_AP1R0_EL2 = "S3_4_C12_C9_0";
    /// Active priorities, Group 1, word 1.
    ICH_AP1R1_EL2 = "S3_4_C12_C9_1";
    /// Active priorities, Group 1, word 2.
    ICH_AP1R2_EL2 = "S3_4_C12_C9_2";
    /// Active priorities, Group 1, word 3.
    ICH_AP1R3_EL2 = "S3_4_C12_C9_3";
    /// List register 0.
    ICH_LR0_EL2 = "S3_4_C12_C12_0";
    /// List register 1.
    ICH_LR1_EL2 = "S3_4_C12_C12_1";
    /// List register 2.
    ICH_LR2_EL2 = "S3_4_C12_C12_2";
    /// List register 3.
    ICH_LR3_EL2 = "S3_4_C12_C12_3";
    /// List register 4.
    ICH_LR4_EL2 = "S3_4_C12_C12_4";
    /// List register 5.
    ICH_LR5_EL2 = "S3_4_C12_C12_5";
    /// List register 6.
    ICH_LR6_EL2 = "S3_4_C12_C12_6";
    /// List register 7.
    ICH_LR7_EL2 = "S3_4_C12_C12_7";
    /// List register 8.
    ICH_LR8_EL2 = "S3_4_C12_C13_0";
    /// List register 9.
    ICH_LR9_EL2 = "S3_4_C12_C13_1";
    /// List register 10.
    ICH_LR10_EL2 = "S3_4_C12_C13_2";
    /// List register 11.
    ICH_LR11_EL2 = "S3_4_C12_C13_3";
    /// List register 12.
    ICH_LR12_EL2 = "S3_4_C12_C13_4";
    /// List register 13.
    ICH_LR13_EL2 = "S3_4_C12_C13_5";
    /// List register 14.
    ICH_LR14_EL2 = "S3_4_C12_C13_6";
    /// List register 15.
    ICH_LR15_EL2 = "S3_4_C12_C13_7";

    /// Guest: system control.
    SCTLR_EL12 = "S3_5_C1_C0_0";
    /// Guest: FP and SVE access control.
    CPACR_EL12 = "S3_5_C1_C0_2";
    /// Guest: tables 0.
    TTBR0_EL12 = "S3_5_C2_C0_0";
    /// Guest: tables 1.
    TTBR1_EL12 = "S3_5_C2_C0_1";
    /// Guest: translation control.
    TCR_EL12 = "S3_5_C2_C0_2";
    /// Guest: saved PSTATE.
    SPSR_EL12 = "S3_5_C4_C0_0";
    /// Guest: exception return address.
    ELR_EL12 = "S3_5_C4_C0_1";
    /// Guest: auxiliary fault status 0.
    AFSR0_EL12 = "S3_5_C5_C1_0";
    /// Guest: auxiliary fault status 1.
    AFSR1_EL12 = "S3_5_C5_C1_1";
    /// Guest: syndrome.
    ESR_EL12 = "S3_5_C5_C2_0";
    /// Guest: fault address.
    FAR_EL12 = "S3_5_C6_C0_0";
    /// Guest: memory attributes.
    MAIR_EL12 = "S3_5_C10_C2_0";
    /// Guest: auxiliary memory attributes.
    AMAIR_EL12 = "S3_5_C10_C3_0";
    /// Guest: vector base.
    VBAR_EL12 = "S3_5_C12_C0_0";
    /// Guest: context ID.
    CONTEXTIDR_EL12 = "S3_5_C13_C0_1";
    /// Guest: timer control for its EL0.
    CNTKCTL_EL12 = "S3_5_C14_C1_0";
    /// Guest: EL1 physical timer control.
    CNTP_CTL_EL02 = "S3_5_C14_C2_1";
    /// Guest: EL1 physical timer compare value.
    CNTP_CVAL_EL02 = "S3_5_C14_C2_2";
    /// Guest: virtual timer control.
    CNTV_CTL_EL02 = "S3_5_C14_C3_1";
    /// Guest: virtual timer compare value.
    CNTV_CVAL_EL02 = "S3_5_C14_C3_2";

    /// Guest, without VHE: system control.
    SCTLR_EL1 = "sctlr_el1";
    /// Guest, without VHE: FP and SVE access control.
    CPACR_EL1 = "cpacr_el1";
    /// Guest, without VHE: tables 0.
    TTBR0_EL1 = "ttbr0_el1";
    /// Guest, without VHE: tables 1.
    TTBR1_EL1 = "ttbr1_el1";
    /// Guest, without VHE: translation control.
    TCR_EL1 = "tcr_el1";
    /// Guest, without VHE: saved PSTATE.
    SPSR_EL1 = "spsr_el1";
    /// Guest, without VHE: exception return address.
    ELR_EL1 = "elr_el1";
    /// Guest, without VHE: auxiliary fault status 0.
    AFSR0_EL1 = "afsr0_el1";
    /// Guest, without VHE: auxiliary fault status 1.
    AFSR1_EL1 = "afsr1_el1";
    /// Guest, without VHE: syndrome.
    ESR_EL1 = "esr_el1";
    /// Guest, without VHE: fault address.
    FAR_EL1 = "far_el1";
    /// Guest, without VHE: memory attributes.
    MAIR_EL1 = "mair_el1";
    /// Guest, without VHE: auxiliary memory attributes.
    AMAIR_EL1 = "amair_el1";
    /// Guest, without VHE: vector base.
    VBAR_EL1 = "vbar_el1";
    /// Guest, without VHE: context ID.
    CONTEXTIDR_EL1 = "contextidr_el1";
    /// Guest, without VHE: timer control for its EL0.
    CNTKCTL_EL1 = "cntkctl_el1";
    /// Guest, without VHE: EL1 physical timer control.
    CNTP_CTL_EL0 = "cntp_ctl_el0";
    /// Guest, without VHE: EL1 physical timer compare value.
    CNTP_CVAL_EL0 = "cntp_cval_el0";
    /// Guest, without VHE: virtual timer control.
    CNTV_CTL_EL0 = "cntv_ctl_el0";
    /// Guest, without VHE: virtual timer compare value.
    CNTV_CVAL_EL0 = "cntv_cval_el0";

    /// Physical address of an AT instruction.
    PAR_EL1 = "par_el1";
    /// Guest: stack pointer of EL1.
    SP_EL1 = "sp_el1";
    /// Guest: stack pointer of EL0.
    SP_EL0 = "sp_el0";
    /// Guest: thread pointer of EL0.
    TPIDR_EL0 = "tpidr_el0";
    /// Guest: read-only thread pointer of EL0.
    TPIDRRO_EL0 = "tpidrro_el0";
    /// Guest: thread pointer of EL1.
    TPIDR_EL1 = "tpidr_el1";
    /// Guest: cache size selection.
    CSSELR_EL1 = "csselr_el1";
    /// Guest: monitor debug system control.
    MDSCR_EL1 = "mdscr_el1";
    /// Guest: debug communications interrupt enable.
    MDCCINT_EL1 = "mdccint_el1";
    /// Guest: OS double lock.
    OSDLR_EL1 = "osdlr_el1";
    /// Guest: OS lock.
    OSLAR_EL1 = "oslar_el1";

    /// PMU control.
    PMCR_EL0 = "pmcr_el0";
    /// PMU cycle counter.
    PMCCNTR_EL0 = "pmccntr_el0";
    /// PMU access from EL0.
    PMUSERENR_EL0 = "pmuserenr_el0";
    /// PMU cycle counter filter.
    PMCCFILTR_EL0 = "pmccfiltr_el0";
    /// PMU counters enabled; writing ones enables.
    PMCNTENSET_EL0 = "pmcntenset_el0";
    /// PMU counters enabled; writing ones disables.
    PMCNTENCLR_EL0 = "pmcntenclr_el0";
    /// PMU counters that interrupt when they overflow; writing ones enables.
    PMINTENSET_EL1 = "pmintenset_el1";
    /// PMU counters that interrupt when they overflow; writing ones disables.
    PMINTENCLR_EL1 = "pmintenclr_el1";
    /// PMU counters that have overflowed; writing ones sets.
    PMOVSSET_EL0 = "pmovsset_el0";
    /// PMU counters that have overflowed; writing ones clears.
    PMOVSCLR_EL0 = "pmovsclr_el0";
    /// PMU counter selection.
    PMSELR_EL0 = "pmselr_el0";

    /// FP control. By its encoding: the assembler knows the name only where it knows FP.
    FPCR = "S3_3_C4_C4_0";
    /// FP status.
    FPSR = "S3_3_C4_C4_1";
    /// SVE vector length of EL2, and the limit of EL1's and EL0's.
    ZCR_EL2 = "S3_4_C1_C2_0";
    /// Guest: SVE vector length.
    ZCR_EL12 = "S3_5_C1_C2_0";
    /// Guest, without VHE: SVE vector length.
    ZCR_EL1 = "S3_0_C1_C2_0";
    /// SVE features.
    ID_AA64ZFR0_EL1 = "S3_0_C0_C4_4";

    /// Guest: key A of instruction addresses, low half.
    APIAKeyLo_EL1 = "S3_0_C2_C1_0";
    /// Guest: key A of instruction addresses, high half.
    APIAKeyHi_EL1 = "S3_0_C2_C1_1";
    /// Guest: key B of instruction addresses, low half.
    APIBKeyLo_EL1 = "S3_0_C2_C1_2";
    /// Guest: key B of instruction addresses, high half.
    APIBKeyHi_EL1 = "S3_0_C2_C1_3";
    /// Guest: key A of data addresses, low half.
    APDAKeyLo_EL1 = "S3_0_C2_C2_0";
    /// Guest: key A of data addresses, high half.
    APDAKeyHi_EL1 = "S3_0_C2_C2_1";
    /// Guest: key B of data addresses, low half.
    APDBKeyLo_EL1 = "S3_0_C2_C2_2";
    /// Guest: key B of data addresses, high half.
    APDBKeyHi_EL1 = "S3_0_C2_C2_3";
    /// Guest: generic key, low half.
    APGAKeyLo_EL1 = "S3_0_C2_C3_0";
    /// Guest: generic key, high half.
    APGAKeyHi_EL1 = "S3_0_C2_C3_1";

    /// Guest: debug claim tags, set by writing ones.
    DBGCLAIMSET_EL1 = "dbgclaimset_el1";
    /// Guest: debug claim tags, read as they are, cleared by writing ones.
    DBGCLAIMCLR_EL1 = "dbgclaimclr_el1";
    /// Guest: received word of the debug communications channel.
    OSDTRRX_EL1 = "osdtrrx_el1";
    /// Guest: transmitted word of the debug communications channel.
    OSDTRTX_EL1 = "osdtrtx_el1";
}

/// Reads one of the numbered registers; its name comes in pieces, the number among them.
macro_rules! read_numbered {
    ($($piece:literal),+) => {{
        #[cfg(target_os = "none")]
        {
            let value: u64;
            // SAFETY: reading a system register at EL2 changes no memory; the caller knows that it exists.
            unsafe { core::arch::asm!(concat!("mrs {}, ", $($piece),+), out(reg) value, options(nomem, nostack, preserves_flags)) };
            value
        }
        #[cfg(not(target_os = "none"))]
        $crate::cpu::regs::fakes::read(concat!($($piece),+))
    }};
}
pub(crate) use read_numbered;

/// Writes one of the numbered registers; its name comes in pieces, the number among them. Unsafe as `write` is.
macro_rules! write_numbered {
    ($value:expr, $($piece:literal),+) => {{
        let value: u64 = $value;
        #[cfg(target_os = "none")]
        core::arch::asm!(concat!("msr ", $($piece),+, ", {}"), in(reg) value, options(nostack, preserves_flags));
        #[cfg(not(target_os = "none"))]
        $crate::cpu::regs::write_fake(concat!($($piece),+), value);
    }};
}
pub(crate) use write_numbered;

/// What [`write_numbered`] does on the host.
///
/// # Safety
/// None is needed; it is unsafe because the other one is.
#[cfg(not(target_os = "none"))]
pub(crate) unsafe fn write_fake(name: &'static str, value: u64) {
    fakes::write(name, value);
}

pub mod gicv2;
pub mod guest;

#[cfg(not(target_os = "none"))]
pub use turnstile_arch_common::fakes;
