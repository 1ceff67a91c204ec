// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Names of the system registers that hypervisors access. Those that guests' traps are about are
//! `turnstile_trapmap`'s; here are EL2's own, the aliases for EL1's and EL0's, and the processor's flags.

use std::borrow::Cow;

use turnstile_trapmap::{SysReg, name};

const fn reg(op0: u8, op1: u8, crn: u8, crm: u8, op2: u8) -> SysReg {
    SysReg::new(op0, op1, crn, crm, op2)
}

/// The name of a register, else its encoding.
pub fn register(register: SysReg) -> Cow<'static, str> {
    if let Some(known) = name(register).or_else(|| own(register)) {
        return known.into();
    }
    let alias = alias(register).or_else(|| list_register(register));
    alias.unwrap_or_else(|| register.to_string()).into()
}

fn own(register: SysReg) -> Option<&'static str> {
    NAMES.iter().find(|&&(candidate, _)| candidate == register).map(|&(_, name)| name)
}

/// `X_EL12` and `X_EL02`: with HCR_EL2.E2H, EL1's and EL0's registers under op1 5.
fn alias(register: SysReg) -> Option<String> {
    if (register.op0(), register.op1()) != (3, 5) {
        return None;
    }
    let same = |op1| reg(3, op1, register.crn(), register.crm(), register.op2());
    let named = |op1| name(same(op1)).or_else(|| own(same(op1)));
    match (named(0).and_then(|name| name.strip_suffix("_EL1")), named(3)) {
        (Some(stem), _) => Some(format!("{stem}_EL12")),
        (None, Some(name)) => name.strip_suffix("_EL0").map(|stem| format!("{stem}_EL02")),
        (None, None) => None,
    }
}

/// The numbered registers of the virtual CPU interface.
fn list_register(register: SysReg) -> Option<String> {
    if (register.op0(), register.op1(), register.crn()) != (3, 4, 12) {
        return None;
    }
    let number = register.op2();
    match register.crm() {
        8 if number < 4 => Some(format!("ICH_AP0R{number}_EL2")),
        9 if number < 4 => Some(format!("ICH_AP1R{number}_EL2")),
        12 => Some(format!("ICH_LR{number}_EL2")),
        13 => Some(format!("ICH_LR{}_EL2", number + 8)),
        _ => None,
    }
}

/// Whether software keeps its own things there, or it is a flag of the processor: nothing that costs as an access
/// to hardware may.
pub fn is_scratch(register: &str) -> bool {
    const FLAGS: &[&str] = &[
        "SP_EL0",
        "SPSel",
        "CurrentEL",
        "PAN",
        "UAO",
        "ALLINT",
        "NZCV",
        "DAIF",
        "DIT",
        "SSBS",
        "TCO",
        "FPCR",
        "FPSR",
    ];
    register.starts_with("TPIDR") || FLAGS.contains(&register)
}

/// What `MSR <field>, #imm` writes, by op1 and op2; the fields without a name here are not accessible so.
pub fn immediate(op1: u8, op2: u8) -> Option<&'static str> {
    Some(match (op1, op2) {
        (0, 3) => "UAO",
        (0, 4) => "PAN",
        (0, 5) => "SPSel",
        (1, 0) => "ALLINT",
        (3, 1) => "SSBS",
        (3, 2) => "DIT",
        (3, 3) => "SVCR",
        (3, 4) => "TCO",
        (3, 6 | 7) => "DAIF",
        _ => return None,
    })
}

/// Arm ARM, System register encoding indexes; GIC: IHI 0069.
#[rustfmt::skip]
const NAMES: &[(SysReg, &str)] = &[
    (reg(3, 0, 4, 0, 0), "SPSR_EL1"), (reg(3, 0, 4, 0, 1), "ELR_EL1"), (reg(3, 0, 4, 1, 0), "SP_EL0"),
    (reg(3, 0, 4, 2, 0), "SPSel"), (reg(3, 0, 4, 2, 2), "CurrentEL"), (reg(3, 0, 4, 2, 3), "PAN"),
    (reg(3, 0, 4, 2, 4), "UAO"), (reg(3, 0, 4, 3, 0), "ALLINT"), (reg(3, 0, 4, 6, 0), "ICC_PMR_EL1"),
    (reg(3, 0, 1, 2, 0), "ZCR_EL1"), (reg(3, 0, 1, 0, 3), "SCTLR2_EL1"), (reg(3, 0, 2, 0, 3), "TCR2_EL1"),
    (reg(3, 0, 10, 2, 2), "PIRE0_EL1"), (reg(3, 0, 10, 2, 3), "PIR_EL1"), (reg(3, 0, 10, 2, 4), "POR_EL1"),
    (reg(3, 3, 4, 2, 0), "NZCV"), (reg(3, 3, 4, 2, 1), "DAIF"), (reg(3, 3, 4, 2, 2), "SVCR"),
    (reg(3, 3, 4, 2, 5), "DIT"), (reg(3, 3, 4, 2, 6), "SSBS"), (reg(3, 3, 4, 2, 7), "TCO"),
    (reg(3, 3, 4, 4, 0), "FPCR"), (reg(3, 3, 4, 4, 1), "FPSR"),
    (reg(3, 4, 0, 0, 0), "VPIDR_EL2"), (reg(3, 4, 0, 0, 5), "VMPIDR_EL2"), (reg(3, 4, 1, 0, 0), "SCTLR_EL2"),
    (reg(3, 4, 1, 0, 1), "ACTLR_EL2"), (reg(3, 4, 1, 0, 3), "SCTLR2_EL2"), (reg(3, 4, 1, 1, 0), "HCR_EL2"),
    (reg(3, 4, 1, 1, 1), "MDCR_EL2"), (reg(3, 4, 1, 1, 2), "CPTR_EL2"), (reg(3, 4, 1, 1, 3), "HSTR_EL2"),
    (reg(3, 4, 1, 1, 4), "HFGRTR_EL2"), (reg(3, 4, 1, 1, 5), "HFGWTR_EL2"), (reg(3, 4, 1, 1, 6), "HFGITR_EL2"),
    (reg(3, 4, 1, 1, 7), "HACR_EL2"), (reg(3, 4, 1, 2, 0), "ZCR_EL2"), (reg(3, 4, 1, 2, 1), "TRFCR_EL2"),
    (reg(3, 4, 1, 2, 2), "HCRX_EL2"), (reg(3, 4, 1, 2, 6), "SMCR_EL2"), (reg(3, 4, 2, 0, 0), "TTBR0_EL2"),
    (reg(3, 4, 2, 0, 1), "TTBR1_EL2"), (reg(3, 4, 2, 0, 2), "TCR_EL2"), (reg(3, 4, 2, 0, 3), "TCR2_EL2"),
    (reg(3, 4, 2, 1, 0), "VTTBR_EL2"), (reg(3, 4, 2, 1, 2), "VTCR_EL2"), (reg(3, 4, 2, 2, 0), "VNCR_EL2"),
    (reg(3, 4, 3, 1, 0), "HDFGRTR2_EL2"), (reg(3, 4, 3, 1, 1), "HDFGWTR2_EL2"), (reg(3, 4, 3, 1, 2), "HFGRTR2_EL2"),
    (reg(3, 4, 3, 1, 3), "HFGWTR2_EL2"), (reg(3, 4, 3, 1, 4), "HDFGRTR_EL2"), (reg(3, 4, 3, 1, 5), "HDFGWTR_EL2"),
    (reg(3, 4, 3, 1, 6), "HAFGRTR_EL2"), (reg(3, 4, 3, 1, 7), "HFGITR2_EL2"), (reg(3, 4, 4, 0, 0), "SPSR_EL2"),
    (reg(3, 4, 4, 0, 1), "ELR_EL2"), (reg(3, 4, 4, 1, 0), "SP_EL1"), (reg(3, 4, 4, 3, 0), "SPSR_irq"),
    (reg(3, 4, 4, 3, 1), "SPSR_abt"), (reg(3, 4, 4, 3, 2), "SPSR_und"), (reg(3, 4, 4, 3, 3), "SPSR_fiq"),
    (reg(3, 4, 5, 1, 0), "AFSR0_EL2"), (reg(3, 4, 5, 1, 1), "AFSR1_EL2"), (reg(3, 4, 5, 2, 0), "ESR_EL2"),
    (reg(3, 4, 5, 2, 3), "VSESR_EL2"), (reg(3, 4, 5, 6, 0), "TFSR_EL2"), (reg(3, 4, 6, 0, 0), "FAR_EL2"),
    (reg(3, 4, 6, 0, 4), "HPFAR_EL2"), (reg(3, 4, 9, 9, 0), "PMSCR_EL2"), (reg(3, 4, 10, 2, 0), "MAIR_EL2"),
    (reg(3, 4, 10, 3, 0), "AMAIR_EL2"), (reg(3, 4, 10, 4, 0), "MPAMHCR_EL2"), (reg(3, 4, 10, 4, 1), "MPAMVPMV_EL2"),
    (reg(3, 4, 10, 5, 0), "MPAM2_EL2"), (reg(3, 4, 12, 0, 0), "VBAR_EL2"), (reg(3, 4, 12, 0, 1), "RVBAR_EL2"),
    (reg(3, 4, 12, 0, 2), "RMR_EL2"), (reg(3, 4, 12, 1, 1), "VDISR_EL2"), (reg(3, 4, 12, 9, 5), "ICC_SRE_EL2"),
    (reg(3, 4, 12, 11, 0), "ICH_HCR_EL2"), (reg(3, 4, 12, 11, 1), "ICH_VTR_EL2"), (reg(3, 4, 12, 11, 2), "ICH_MISR_EL2"),
    (reg(3, 4, 12, 11, 3), "ICH_EISR_EL2"), (reg(3, 4, 12, 11, 5), "ICH_ELRSR_EL2"), (reg(3, 4, 12, 11, 7), "ICH_VMCR_EL2"),
    (reg(3, 4, 13, 0, 1), "CONTEXTIDR_EL2"), (reg(3, 4, 13, 0, 2), "TPIDR_EL2"), (reg(3, 4, 13, 0, 7), "SCXTNUM_EL2"),
    (reg(3, 4, 14, 0, 3), "CNTVOFF_EL2"), (reg(3, 4, 14, 0, 6), "CNTPOFF_EL2"), (reg(3, 4, 14, 1, 0), "CNTHCTL_EL2"),
    (reg(3, 4, 14, 2, 0), "CNTHP_TVAL_EL2"), (reg(3, 4, 14, 2, 1), "CNTHP_CTL_EL2"), (reg(3, 4, 14, 2, 2), "CNTHP_CVAL_EL2"),
    (reg(3, 4, 14, 3, 0), "CNTHV_TVAL_EL2"), (reg(3, 4, 14, 3, 1), "CNTHV_CTL_EL2"), (reg(3, 4, 14, 3, 2), "CNTHV_CVAL_EL2"),
    (reg(3, 6, 1, 1, 0), "SCR_EL3"), (reg(3, 6, 4, 0, 0), "SPSR_EL3"), (reg(3, 6, 4, 0, 1), "ELR_EL3"),
    (reg(3, 6, 5, 2, 0), "ESR_EL3"), (reg(3, 6, 6, 0, 0), "FAR_EL3"), (reg(3, 6, 13, 0, 2), "TPIDR_EL3"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_from_both_tables_and_from_rules() {
        for (encoding, expected) in [
            (reg(3, 4, 5, 2, 0), "ESR_EL2"),
            (reg(3, 0, 5, 2, 0), "ESR_EL1"),
            (reg(3, 5, 1, 0, 0), "SCTLR_EL12"),
            (reg(3, 5, 4, 0, 1), "ELR_EL12"),
            (reg(3, 5, 14, 3, 1), "CNTV_CTL_EL02"),
            (reg(3, 5, 14, 1, 0), "CNTKCTL_EL12"),
            (reg(3, 4, 12, 12, 3), "ICH_LR3_EL2"),
            (reg(3, 4, 12, 13, 7), "ICH_LR15_EL2"),
            (reg(3, 4, 12, 9, 0), "ICH_AP1R0_EL2"),
            (reg(3, 7, 15, 15, 7), "S3_7_C15_C15_7"),
        ] {
            assert_eq!(register(encoding), expected);
        }
    }

    #[test]
    fn no_name_and_no_encoding_is_there_twice() {
        for (at, (encoding, one)) in NAMES.iter().enumerate() {
            assert!(NAMES[at + 1..].iter().all(|(other, name)| one != name && encoding != other), "{one}");
            assert!(name(*encoding).is_none_or(|known| known == *one), "{one} has another name");
        }
    }

    #[test]
    fn scratch_is_scratch() {
        for name in ["SP_EL0", "TPIDR_EL2", "TPIDRRO_EL0", "DAIF", "FPCR"] {
            assert!(is_scratch(name), "{name}");
        }
        assert!(!is_scratch("HCR_EL2") && !is_scratch("SP_EL1"));
    }
}
