// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The hypervisor's own registers: what it sets for guests, what exceptions leave, and what the CPU says of itself.

use turnstile_arch_common::registers;

registers! {
    mrs, msr:
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
    /// Translation control of the hypervisor's regime.
    TCR_EL2 = "tcr_el2";
    /// Tables of the upper address range, which services have, and the ASID (VHE).
    TTBR1_EL2 = "S3_4_C2_C0_1";
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
    /// Physical interrupts that are pending, masked or not, while EL2 has them (HCR_EL2.IMO, FMO, AMO).
    ISR_EL1 = "isr_el1";
    /// Affinity of this CPU.
    MPIDR_EL1 = "mpidr_el1";
    /// Main ID of this CPU.
    MIDR_EL1 = "midr_el1";
    /// Cache type.
    CTR_EL0 = "ctr_el0";
    /// Block size of DC ZVA.
    DCZID_EL0 = "dczid_el0";
    /// Traps of memory partitioning (FEAT_MPAM).
    MPAM2_EL2 = "S3_4_C10_C5_0";
    /// SVE vector length of EL2, and the limit of EL1's and EL0's.
    ZCR_EL2 = "S3_4_C1_C2_0";

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
    /// SVE features.
    ID_AA64ZFR0_EL1 = "S3_0_C0_C4_4";
}
