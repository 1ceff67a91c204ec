// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Registers that are the guest's while its vCPU is resident. Those of EL1 that have another name at EL2 with VHE are here by
//! both; `guest.rs` has them by the mode's.

use turnstile_arch_common::registers;

registers! {
    mrs, msr:
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
    /// Guest: SVE vector length.
    ZCR_EL12 = "S3_5_C1_C2_0";
    /// Guest, without VHE: SVE vector length.
    ZCR_EL1 = "S3_0_C1_C2_0";

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
