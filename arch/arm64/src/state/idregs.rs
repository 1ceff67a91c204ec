// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The ID registers a guest sees: of the CPU's features, those that are virtualized.
//!
//! Each register is an allow-list of fields. A field in it is copied from the CPU (or limited to a value);
//! everything else reads as "not implemented", and the matching trap makes its use UNDEFINED in the guest.
//! Field positions: Arm ARM D24.2.

use super::{common, pmu};
use crate::cpu::regs;

/// Registers op0=3, op1=0, CRn=0, CRm=0..7: index is `CRm * 8 + op2`.
pub type IdRegisters = [u64; 64];

/// How a field is offered.
#[derive(Clone, Copy)]
enum Field {
    /// As the CPU has it, at this bit position.
    Same(u32),
    /// At most this (unsigned) value.
    Limit(u32, u64),
    /// Exactly this value.
    Fixed(u32, u64),
}

use Field::{Fixed, Limit, Same};

/// ISAR0: AES, SHA1, SHA2, CRC32, Atomic, RDM, SHA3, SM3, SM4, DP, FHM, TS, TLB, RNDR. Not TME.
const ISAR0: &[Field] = &[
    Same(4),
    Same(8),
    Same(12),
    Same(16),
    Same(20),
    Same(28),
    Same(32),
    Same(36),
    Same(40),
    Same(44),
    Same(48),
    Same(52),
    Same(56),
    Same(60),
];
/// ISAR1: DPB, JSCVT, FCMA, LRCPC, FRINTTS, SB, BF16, DGH, I8MM. APA, API, GPA and GPI (pointer authentication) if all
/// CPUs have the same. Not SPECRES, XS, LS64.
const ISAR1: &[Field] =
    &[Same(0), Same(12), Same(16), Same(20), Same(32), Same(36), Same(44), Same(48), Same(52)];
/// ISAR2: RPRES; APA3 and GPA3 as in ISAR1. Not WFxT, MOPS, BC and later.
const ISAR2: &[Field] = &[Same(4)];
/// PFR0: EL0 and EL1 AArch64 only, FP, AdvSIMD, DIT, CSV2, CSV3; GIC and SVE are decided by the VM. No EL2, EL3, RAS,
/// SEL2, MPAM, AMU, RME.
const PFR0: &[Field] = &[Fixed(0, 1), Fixed(4, 1), Same(16), Same(20), Same(48), Limit(56, 1), Same(60)];
/// The rest of PFR0 for a VM with a GICv3.
const PFR0_GICV3: &[Field] = &[Limit(24, 1)];
/// PFR1: SSBS. Not BTI's dependence: BT is a property of the guest's own tables, so it is copied. Not MTE,
/// SME, RAS_frac, MPAM_frac, CSV2_frac, NMI, GCS, THE.
const PFR1: &[Field] = &[Same(0), Same(4)];
/// DFR0: Debugv8, BRPs, WRPs, CTX_CMPs; PMUVer is decided by the VM. No trace, SPE, TRBE, BRBE.
const DFR0: &[Field] = &[Limit(0, 6), Same(12), Same(20), Same(28)];
/// MMFR0: PARange (limited to the IPA size), ASIDBits, TGran16, TGran64, TGran4, ExS. Not BigEnd and BigEndEL0 (device
/// accesses are not swapped), SNSMem, the stage 2 granules, FGT, ECV.
const MMFR0: &[Field] = &[Limit(0, 2), Same(4), Same(20), Same(24), Same(28), Same(44)];
/// MMFR1: HAFDBS, VMIDBits hidden, HPDS, PAN, ETS. Not VH, LO, SpecSEI, XNX, TWED, HCX, AFP, TIDCP1, CMOW.
const MMFR1: &[Field] = &[Limit(0, 2), Same(12), Same(20), Same(36)];
/// MMFR2: CnP, UAO, LSM, IESB hidden, VARange, CCIDX, ST, AT, TTL, BBM, E0PD. Not NV, IDS, FWB, EVT.
const MMFR2: &[Field] =
    &[Same(0), Same(4), Same(8), Same(16), Same(20), Same(28), Same(32), Same(48), Same(52), Same(60)];

/// ZFR0, if the VM has SVE: SVEver, AES, BitPerm, BF16, SHA3, SM4, I8MM, F32MM, F64MM.
const ZFR0: &[Field] =
    &[Same(0), Same(4), Same(16), Same(20), Same(32), Same(40), Same(44), Same(52), Same(56)];
/// PFR0.SVE.
const PFR0_SVE: &[Field] = &[Same(32)];
/// DFR0.PMUVer of a VM that owns the PMU: up to PMUv3p8, whose registers [`pmu`] knows.
const DFR0_PMU: &[Field] = &[Limit(pmu::DFR0_PMUVER, 8)];

/// Composes a register. Signed fields (0xf = not implemented) are only ever copied.
fn compose(cpu: u64, fields: &[Field]) -> u64 {
    fields.iter().fold(0, |value, field| {
        let get = |shift: u32| cpu >> shift & 0xf;
        value
            | match *field {
                Same(shift) => get(shift) << shift,
                Limit(shift, most) => get(shift).min(most) << shift,
                Fixed(shift, exactly) => exactly << shift,
            }
    })
}

/// What a vCPU has besides the CPU's common features.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offer {
    /// The system registers of a GICv3.
    pub gicv3: bool,
    /// A PMUv3.
    pub pmu: pmu::Kind,
    /// SVE.
    pub sve: bool,
    /// Pointer authentication.
    pub pauth: bool,
}

/// Composes the registers for a VM from this CPU's.
pub fn compose_all(offer: Offer) -> IdRegisters {
    let mut out = [0; 64];
    let mut set = |crm: usize, op2: usize, value: u64| out[crm * 8 + op2] = value;
    let pfr0 = regs::ID_AA64PFR0_EL1.read();
    let offered = |offer, fields| if offer { compose(pfr0, fields) } else { 0 };
    let optional = offered(offer.gicv3, PFR0_GICV3) | offered(offer.sve, PFR0_SVE);
    set(4, 0, crate::board::mitigation::common_pfr0(compose(pfr0, PFR0) | optional));
    set(4, 1, compose(regs::ID_AA64PFR1_EL1.read(), PFR1));
    if offer.sve {
        set(4, 4, compose(regs::ID_AA64ZFR0_EL1.read(), ZFR0));
    }
    let dfr0 = regs::ID_AA64DFR0_EL1.read();
    let pmu_ver = match offer.pmu {
        pmu::Kind::Off => 0,
        pmu::Kind::Trapped => 1 << pmu::DFR0_PMUVER,
        pmu::Kind::Owned => compose(dfr0, DFR0_PMU),
    };
    // DoubleLock (bits 39:36) 0xf: not offered.
    set(5, 0, compose(dfr0, DFR0) | pmu_ver | 0xf << 36);
    set(6, 0, compose(regs::ID_AA64ISAR0_EL1.read(), ISAR0));
    let pauth = if offer.pauth { common::pauth_fields() } else { [0, 0] };
    set(6, 1, compose(regs::ID_AA64ISAR1_EL1.read(), ISAR1) | pauth[0]);
    set(6, 2, compose(regs::ID_AA64ISAR2_EL1.read(), ISAR2) | pauth[1]);
    set(7, 0, compose(regs::ID_AA64MMFR0_EL1.read(), MMFR0));
    set(7, 1, compose(regs::ID_AA64MMFR1_EL1.read(), MMFR1));
    set(7, 2, compose(regs::ID_AA64MMFR2_EL1.read(), MMFR2));
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::regs::fakes;

    fn everything() -> IdRegisters {
        fakes::reset();
        for name in [
            "ID_AA64PFR0_EL1",
            "ID_AA64PFR1_EL1",
            "ID_AA64DFR0_EL1",
            "ID_AA64ISAR0_EL1",
            "ID_AA64ISAR1_EL1",
            "ID_AA64ISAR2_EL1",
            "ID_AA64MMFR0_EL1",
            "ID_AA64MMFR1_EL1",
            "ID_AA64MMFR2_EL1",
        ] {
            fakes::set(name, 0x7777_7777_7777_7777);
        }
        compose_all(Offer::default())
    }

    fn field(registers: &IdRegisters, crm: usize, op2: usize, shift: u32) -> u64 {
        registers[crm * 8 + op2] >> shift & 0xf
    }

    #[test]
    fn hides_what_is_not_virtualized() {
        let r = everything();
        for (name, crm, op2, shift) in [
            ("EL2", 4, 0, 8),
            ("EL3", 4, 0, 12),
            ("RAS", 4, 0, 28),
            ("SVE", 4, 0, 32),
            ("MPAM", 4, 0, 40),
            ("AMU", 4, 0, 44),
            ("MTE", 4, 1, 8),
            ("SME", 4, 1, 24),
            ("PMU", 5, 0, 8),
            ("SPE", 5, 0, 32),
            ("APA", 6, 1, 4),
            ("API", 6, 1, 8),
            ("VH", 7, 1, 8),
            ("FGT", 7, 0, 56),
            ("NV", 7, 2, 24),
        ] {
            assert_eq!(field(&r, crm, op2, shift), 0, "{name}");
        }
        assert_eq!(field(&r, 4, 0, 0), 1, "EL0 is AArch64 only");
        assert_eq!(field(&r, 4, 0, 24), 0, "GIC system registers");
        assert_eq!(field(&r, 6, 0, 20), 7, "atomics as the CPU has them");
    }

    #[test]
    fn offers_a_pmu_and_a_gicv3_on_request() {
        everything();
        let version = |kind| field(&compose_all(Offer { pmu: kind, ..Offer::default() }), 5, 0, 8);
        assert_eq!([pmu::Kind::Off, pmu::Kind::Trapped, pmu::Kind::Owned].map(version), [0, 1, 7]);
        let gic = |gicv3| field(&compose_all(Offer { gicv3, ..Offer::default() }), 4, 0, 24);
        assert_eq!((gic(false), gic(true)), (0, 1));
    }

    #[test]
    fn offers_sve_on_request() {
        everything();
        fakes::set("ID_AA64ZFR0_EL1", !0);
        let with = compose_all(Offer { sve: true, ..Offer::default() });
        assert_eq!((field(&with, 4, 0, 32), field(&with, 4, 4, 0), field(&with, 4, 4, 8)), (7, 0xf, 0));
        assert_eq!(compose_all(Offer::default())[4 * 8 + 4], 0);
    }
}
