// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Registers of a GICv3 (IHI 0069): the physical CPU interface, and the virtual one as EL2 has it.

use turnstile_arch_common::registers;

registers! {
    mrs, msr:
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
}
