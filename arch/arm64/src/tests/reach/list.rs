// SPDX-License-Identifier: Apache-2.0 OR MIT
//! All registers that software at EL1 and EL0 can name, with what becomes of each in a guest (Arm ARM D24, DDI 0601; GIC: IHI 0069).
//! A `#` stands for a number.

use super::Fate::{
    Absent, Facility as Claimed, Later, Open, Passed, Pstate, ReadOnly, Switched, SwitchedAs, Traps, View,
};
use super::{Fate, Trap};
use crate::state::Facility::{Debug, Pauth, Pmu, Vector};

const HCR: &str = "HCR_EL2";
const MDCR: &str = "MDCR_EL2";

/// SPE: TPMS, and the buffer is not EL1's (E2PB).
const SPE: &[Trap] = &[Trap::Set(MDCR, 14), Trap::Clear(MDCR, 12), Trap::Clear(MDCR, 13)];
/// TRBE: the buffer is not EL1's (E2TB).
const TRBE: &[Trap] = &[Trap::Clear(MDCR, 24), Trap::Clear(MDCR, 25)];
/// The trap of each half of the fine-grained ones: its "n" bits are zero.
const FINE: &[Trap] = &[Trap::Zero("HFGRTR_EL2"), Trap::Zero("HFGWTR_EL2")];
const FINE2: &[Trap] = &[Trap::Zero("HFGRTR2_EL2"), Trap::Zero("HFGWTR2_EL2")];
const FINE_DEBUG: &[Trap] = &[Trap::Zero("HDFGRTR_EL2"), Trap::Zero("HDFGWTR_EL2")];
const FINE_DEBUG2: &[Trap] = &[Trap::Zero("HDFGRTR2_EL2"), Trap::Zero("HDFGWTR2_EL2")];
const EXTENDED: &[Trap] = &[Trap::Zero("HCRX_EL2")];
/// MPAM2_EL2.TRAPMPAM0EL1, TRAPMPAM1EL1; EnMPAMSM is zero.
const MPAM: &[Trap] = &[Trap::Set("MPAM2_EL2", 48), Trap::Set("MPAM2_EL2", 49), Trap::Clear("MPAM2_EL2", 50)];

#[rustfmt::skip]
pub(super) const LIST: &[(&str, Fate)] = &[
    // What a vCPU has and changes without a trap.
    ("SCTLR_EL1 CPACR_EL1 TTBR0_EL1 TTBR1_EL1 TCR_EL1 SPSR_EL1 ELR_EL1 SP_EL0 AFSR0_EL1 AFSR1_EL1 ESR_EL1 FAR_EL1 PAR_EL1", Switched),
    ("MAIR_EL1 AMAIR_EL1 VBAR_EL1 CONTEXTIDR_EL1 TPIDR_EL0 TPIDRRO_EL0 TPIDR_EL1 CSSELR_EL1 CNTKCTL_EL1 MDCCINT_EL1", Switched),
    ("CNTP_CTL_EL0 CNTP_CVAL_EL0 CNTV_CTL_EL0 CNTV_CVAL_EL0 ICC_SRE_EL1", Switched),
    ("DISR_EL1", SwitchedAs("VDISR_EL2")),
    ("ICC_PMR_EL1 ICC_BPR0_EL1 ICC_BPR1_EL1 ICC_CTLR_EL1 ICC_IGRPEN0_EL1 ICC_IGRPEN1_EL1", SwitchedAs("ICH_VMCR_EL2")),
    ("ICC_AP0R0_EL1", SwitchedAs("ICH_AP0R0_EL2")), ("ICC_AP1R0_EL1", SwitchedAs("ICH_AP1R0_EL2")),
    ("ICC_AP0R1_EL1", SwitchedAs("ICH_AP0R1_EL2")), ("ICC_AP1R1_EL1", SwitchedAs("ICH_AP1R1_EL2")),
    ("ICC_AP0R2_EL1", SwitchedAs("ICH_AP0R2_EL2")), ("ICC_AP1R2_EL1", SwitchedAs("ICH_AP1R2_EL2")),
    ("ICC_AP0R3_EL1", SwitchedAs("ICH_AP0R3_EL2")), ("ICC_AP1R3_EL1", SwitchedAs("ICH_AP1R3_EL2")),
    ("SPSel CurrentEL PAN UAO ALLINT PM NZCV DAIF DIT SSBS TCO", Pstate),

    // What it gets with its first use.
    ("DBGBVR#_EL1 DBGBCR#_EL1 DBGWVR#_EL1 DBGWCR#_EL1 MDSCR_EL1 DBGCLAIMSET_EL1 DBGCLAIMCLR_EL1 OSDTRRX_EL1 OSDTRTX_EL1", Claimed(Debug)),
    ("DBGDTR_EL0 DBGDTRRX_EL0 DBGDTRTX_EL0", View("OSDTRRX_EL1 and OSDTRTX_EL1, the two directions of the channel")),
    ("MDCCSR_EL0 DBGAUTHSTATUS_EL1", ReadOnly),
    ("OSECCR_EL1", Open("it means something to an external debugger only; CAVEATS.md")),
    ("APIAKeyLo_EL1 APIAKeyHi_EL1 APIBKeyLo_EL1 APIBKeyHi_EL1 APDAKeyLo_EL1 APDAKeyHi_EL1 APDBKeyLo_EL1 APDBKeyHi_EL1 APGAKeyLo_EL1 APGAKeyHi_EL1", Claimed(Pauth)),
    ("FPCR FPSR ZCR_EL1", Claimed(Vector)),
    ("PMCR_EL0 PMCNTENSET_EL0 PMOVSSET_EL0 PMSELR_EL0 PMCCNTR_EL0 PMUSERENR_EL0 PMINTENSET_EL1 PMEVCNTR#_EL0 PMEVTYPER#_EL0 PMCCFILTR_EL0", Claimed(Pmu)),
    ("PMCNTENCLR_EL0", View("PMCNTENSET_EL0")), ("PMOVSCLR_EL0", View("PMOVSSET_EL0")), ("PMINTENCLR_EL1", View("PMINTENSET_EL1")),
    ("PMXEVTYPER_EL0 PMXEVCNTR_EL0", View("what PMSELR_EL0 selects")), ("PMSWINC_EL0 PMZR_EL0", View("the counters")),
    ("PMCEID0_EL0 PMCEID1_EL0 PMMIR_EL1", ReadOnly),

    // What is the same for all, or says what the CPU is.
    ("MIDR_EL1", Passed("VPIDR_EL2")), ("MPIDR_EL1", Passed("VMPIDR_EL2")),
    ("REVIDR_EL1 CCSIDR_EL1 CLIDR_EL1 CCSIDR2_EL1 SMIDR_EL1 AIDR_EL1 CTR_EL0 DCZID_EL0 RNDR RNDRRS CNTFRQ_EL0 CNTPCT_EL0 CNTPCTSS_EL0 ISR_EL1", ReadOnly),
    ("CNTVCT_EL0 CNTVCTSS_EL0", View("the physical counter less CNTVOFF_EL2")),
    ("CNTP_TVAL_EL0", View("CNTP_CVAL_EL0")), ("CNTV_TVAL_EL0", View("CNTV_CVAL_EL0")),
    ("ICC_IAR0_EL1 ICC_IAR1_EL1 ICC_NMIAR1_EL1 ICC_EOIR0_EL1 ICC_EOIR1_EL1 ICC_HPPIR0_EL1 ICC_HPPIR1_EL1 ICC_RPR_EL1 ICC_DIR_EL1", View("list registers and active priorities")),

    // What traps whatever the CPU has.
    ("ID_*", Traps(&[Trap::Set(HCR, 18)])), ("MVFR#_EL1", Traps(&[Trap::Set(HCR, 18)])),
    ("ACTLR_EL1", Traps(&[Trap::Set(HCR, 21)])),
    ("ICC_SGI0R_EL1 ICC_SGI1R_EL1 ICC_ASGI1R_EL1", Traps(&[Trap::Set(HCR, 3), Trap::Set(HCR, 4)])),
    ("OSLAR_EL1 OSLSR_EL1 OSDLR_EL1 DBGPRCR_EL1", Traps(&[Trap::Set(MDCR, 10)])),
    ("MDRAR_EL1", Traps(&[Trap::Set(MDCR, 11)])),
    ("TRC*", Traps(&[Trap::Cptr { vhe: 28, nvhe: 20 }])),
    ("AMCR_EL0 AMCFGR_EL0 AMCGCR_EL0 AMCG1IDR_EL0 AMUSERENR_EL0 AMCNTENCLR#_EL0 AMCNTENSET#_EL0 AMEVCNTR#_EL0 AMEVTYPER#_EL0", Traps(&[Trap::Cptr { vhe: 30, nvhe: 30 }])),

    // What optional features bring that no guest is offered; the control exists where the feature does.
    ("GMID_EL1", Traps(&[Trap::Set(HCR, 58)])),
    ("RGSR_EL1 GCR_EL1 TFSR_EL1 TFSRE0_EL1", Traps(&[Trap::Clear(HCR, 56)])),
    ("SCXTNUM_EL0 SCXTNUM_EL1", Traps(&[Trap::Clear(HCR, 53)])),
    ("LORSA_EL1 LOREA_EL1 LORN_EL1 LORC_EL1 LORID_EL1", Traps(&[Trap::Set(HCR, 35)])),
    ("ERRIDR_EL1 ERRSELR_EL1 ERXFR_EL1 ERXCTLR_EL1 ERXSTATUS_EL1 ERXADDR_EL1 ERXMISC#_EL1", Traps(&[Trap::Set(HCR, 36)])),
    ("ERXPFGF_EL1 ERXPFGCTL_EL1 ERXPFGCDN_EL1", Traps(&[Trap::Clear(HCR, 47)])),
    ("PMSCR_EL1 PMSICR_EL1 PMSIRR_EL1 PMSFCR_EL1 PMSEVFR_EL1 PMSLATFR_EL1 PMSIDR_EL1 PMSNEVFR_EL1 PMSDSFR_EL1", Traps(SPE)),
    ("PMBLIMITR_EL1 PMBPTR_EL1 PMBSR_EL1 PMBIDR_EL1 PMBMAR_EL1", Traps(SPE)),
    ("TRBLIMITR_EL1 TRBPTR_EL1 TRBBASER_EL1 TRBSR_EL1 TRBMAR_EL1 TRBTRG_EL1 TRBIDR_EL1 TRBMPAM_EL1", Traps(TRBE)),
    ("TRFCR_EL1", Traps(&[Trap::Set(MDCR, 19)])),
    ("BRBINF#_EL1 BRBSRC#_EL1 BRBTGT#_EL1 BRBCR_EL1 BRBFCR_EL1 BRBTS_EL1 BRBINFINJ_EL1 BRBSRCINJ_EL1 BRBTGTINJ_EL1 BRBIDR0_EL1", Traps(FINE_DEBUG)),
    ("MPAM0_EL1 MPAM1_EL1 MPAMSM_EL1", Traps(MPAM)), ("MPAMIDR_EL1", ReadOnly),
    ("SMCR_EL1 SVCR", Traps(&[Trap::Sme])), ("SMPRI_EL1 TPIDR2_EL0", Traps(FINE)),
    ("FPMR", Traps(EXTENDED)), ("SCTLR2_EL1 TCR2_EL1", Traps(EXTENDED)),
    ("PIR_EL1 PIRE0_EL1 POR_EL0 POR_EL1 S2POR_EL1 MAIR2_EL1 AMAIR2_EL1 RCWMASK_EL1 ACCDATA_EL1", Traps(FINE)),
    ("GCSCR_EL1 GCSPR_EL1 GCSCRE0_EL1 GCSPR_EL0", Traps(FINE)),
    ("RCWSMASK_EL1 ERXGSR_EL1 PFAR_EL1", Traps(FINE2)),
    ("SCTLRMASK_EL1 ACTLRMASK_EL1 CPACRMASK_EL1 SCTLR2MASK_EL1 TCRMASK_EL1 TCR2MASK_EL1", Traps(FINE2)),
    ("CPACRALIAS_EL1 ACTLRALIAS_EL1 SCTLRALIAS_EL1 SCTLR2ALIAS_EL1 TCRALIAS_EL1 TCR2ALIAS_EL1", Traps(FINE2)),
    ("MDSELR_EL1 MDSTEPOP_EL1 TRCITECR_EL1", Traps(FINE_DEBUG2)),
    ("PMUACR_EL1 PMECR_EL1 PMIAR_EL1 PMSSCR_EL1 PMICNTR_EL0 PMICFILTR_EL0 PMEVCNTSVR#_EL1 PMCCNTSVR_EL1 PMICNTSVR_EL1", Traps(FINE_DEBUG2)),
    ("SPM*", Traps(&[Trap::Clear(MDCR, 15), Trap::Zero("HDFGRTR2_EL2"), Trap::Zero("HDFGWTR2_EL2")])),

    // What a guest's EL1 does not have.
    ("RVBAR_EL1 RMR_EL1", Absent("only where EL1 is the highest Exception level")),
    ("DSPSR_EL0 DLR_EL0", Absent("in Debug state only")),
    ("TEECR32_EL1 TEEHBR32_EL1", Absent("T32EE: Armv7")),
    ("MPUIR_EL1 PRENR_EL1 PRSELR_EL1 PRBAR_EL1 PRLAR_EL1 PRBAR#_EL1 PRLAR#_EL1", Absent("Armv8-R")),
    ("ICC_PPI_* ICC_IDR0_EL1 ICC_HPPIR_EL1 ICC_ICSR_EL1 ICC_IAFFIDR_EL1 ICC_APR_EL1 ICC_CR0_EL1 ICC_PCR_EL1 ICC_HAPR_EL1 ICV_HPPIR_EL1 ICV_HAPR_EL1", Absent("GICv5: no such machine is used")),

    // What is too new.
    ("TLBIDIDR_EL1 MPAMBWIDR_EL1", ReadOnly),
    ("TPIDR3_EL0 TPIDR3_EL1 TPMIN#_EL0 TPMAX#_EL0 TPMIN#_EL1 TPMAX#_EL1 TINDEX_EL0 TINDEX_EL1 STINDEX_EL1 FGDTP#_EL1 FGDTU#_EL1 AFGDTP#_EL1 AFGDTU#_EL1", Later),
    ("IRTBRU_EL1 IRTBRP_EL1 TTTBRU_EL1 TTTBRP_EL1 DPOTBR#_EL1 DPOCR_EL0 LDSTT_EL1", Later),
    ("MPAMCTL_EL1 MPAMBW0_EL1 MPAMBW1_EL1 MPAMBWSM_EL1", Later),
];
