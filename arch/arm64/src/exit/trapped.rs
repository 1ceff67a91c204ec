// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What each trapped system register is: one indexed load from encoding to meaning (seed 000's binary search, taken to its end),
//! decided at compile time.

use turnstile_trapmap::{Group, SysReg, TrapMap};
use turnstile_vgic::{SgiRegister, SgiTargets};

use crate::state::Facility;
use crate::state::trapped_pmu::Register;
use crate::vm::Vcpu;

/// What a trapped register is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Trap {
    /// op0=3, op1=0, CRn=0: by table, with the number there. First: what is tested first is a comparison with zero.
    Id(u8),
    /// Not part of this machine: UNDEFINED.
    Undefined,
    /// Reads as zero, ignores writes.
    Ignored,
    /// ICC_SGI1R_EL1, which sends SGIs: by itself, because guests use no other.
    Sgi1,
    /// The other registers that send SGIs.
    Sgi(SgiRegister),
    /// Deactivates an interrupt that may be in no list register.
    Deactivate,
    /// PMSELR_EL0, if the VM has a PMU: by itself, because it is the one that guests trap on most.
    PmuSelect,
    /// Any other PMU register, if the VM has a PMU.
    Pmu(Register),
    /// Part of a facility, which the first access gives to the vCPU.
    Facility(Facility),
    /// OSLAR_EL1.
    OsLock,
    /// OSLSR_EL1.
    OsLockStatus,
}

const fn reg(op0: u8, op1: u8, crn: u8, crm: u8, op2: u8) -> SysReg {
    SysReg::new(op0, op1, crn, crm, op2)
}

const fn group(op0: u8, op1: u8, crn: u8, crm: (u8, u8), op2: (u8, u8)) -> Group {
    Group { op0, op1, crn, crm, op2 }
}

/// How many ID registers there are: CRm 1 to 7, op2 0 to 7.
const ID_REGISTERS: usize = 56;

/// The ID registers one by one, so that the lookup finds the number, too.
const fn identification() -> [(Group, Trap); ID_REGISTERS + OTHERS.len()] {
    let mut groups = [OTHERS[0]; ID_REGISTERS + OTHERS.len()];
    let mut next = 0;
    while next < ID_REGISTERS {
        let n = next as u8 + 8;
        groups[next] = (group(3, 0, 0, (n / 8, n / 8), (n % 8, n % 8)), Trap::Id(n));
        next += 1;
    }
    while next < groups.len() {
        groups[next] = OTHERS[next - ID_REGISTERS];
        next += 1;
    }
    groups
}

/// Blocks of registers that are treated alike.
pub(super) const GROUPS: &[(Group, Trap)] = &identification();

/// Those without the ID registers.
const OTHERS: &[(Group, Trap)] = &[
    // PMEVCNTR<n>_EL0 and PMEVTYPER<n>_EL0: with N = 0 none exists, accesses are ignored.
    (group(3, 3, 14, (8, 15), (0, 7)), Trap::Pmu(Register::Quiet)),
    // DBGBVR<n>_EL1, DBGBCR<n>_EL1, DBGWVR<n>_EL1 and DBGWCR<n>_EL1.
    (group(2, 0, 0, (0, 15), (4, 7)), Trap::Facility(Facility::Debug)),
    // Keys of pointer authentication.
    (group(3, 0, 2, (1, 3), (0, 3)), Trap::Facility(Facility::Pauth)),
];

/// Registers by themselves.
pub(super) const SINGLE: &[(SysReg, Trap)] = &[
    (reg(3, 0, 1, 0, 1), Trap::Ignored), // ACTLR_EL1
    (reg(3, 0, 12, 11, 5), Trap::Sgi1),
    (reg(3, 0, 12, 11, 6), Trap::Sgi(SgiRegister::Asgi1r)),
    (reg(3, 0, 12, 11, 7), Trap::Sgi(SgiRegister::Sgi0r)),
    (reg(3, 0, 12, 11, 1), Trap::Deactivate), // ICC_DIR_EL1
    // The debug communications channel: present, and nobody at the other end.
    (reg(2, 3, 0, 1, 0), Trap::Ignored),                    // MDCCSR_EL0
    (reg(2, 0, 0, 2, 0), Trap::Ignored),                    // MDCCINT_EL1
    (reg(2, 3, 0, 4, 0), Trap::Ignored),                    // DBGDTR_EL0
    (reg(2, 3, 0, 5, 0), Trap::Ignored),                    // DBGDTRTX_EL0, DBGDTRRX_EL0
    (reg(2, 0, 0, 0, 2), Trap::Ignored),                    // OSDTRRX_EL1
    (reg(2, 0, 0, 3, 2), Trap::Ignored),                    // OSDTRTX_EL1
    (reg(2, 0, 0, 2, 2), Trap::Facility(Facility::Debug)),  // MDSCR_EL1
    (reg(2, 0, 7, 8, 6), Trap::Facility(Facility::Debug)),  // DBGCLAIMSET_EL1
    (reg(2, 0, 7, 9, 6), Trap::Facility(Facility::Debug)),  // DBGCLAIMCLR_EL1
    (reg(2, 0, 7, 14, 6), Trap::Facility(Facility::Debug)), // DBGAUTHSTATUS_EL1
    (reg(2, 0, 1, 0, 4), Trap::OsLock),
    (reg(2, 0, 1, 1, 4), Trap::OsLockStatus),
    // No debug ROM, no OS double lock, nobody who asks that the CPU be kept powered.
    (reg(2, 0, 1, 0, 0), Trap::Ignored), // MDRAR_EL1
    (reg(2, 0, 1, 3, 4), Trap::Ignored), // OSDLR_EL1
    (reg(2, 0, 1, 4, 4), Trap::Ignored), // DBGPRCR_EL1
    (reg(3, 3, 9, 12, 0), Trap::Pmu(Register::Control)),
    (reg(3, 3, 9, 12, 1), Trap::Pmu(Register::EnableSet)),
    (reg(3, 3, 9, 12, 2), Trap::Pmu(Register::EnableClear)),
    (reg(3, 3, 9, 12, 3), Trap::Pmu(Register::Quiet)), // PMOVSCLR_EL0
    (reg(3, 3, 9, 12, 4), Trap::Pmu(Register::Quiet)), // PMSWINC_EL0
    (reg(3, 3, 9, 12, 5), Trap::PmuSelect),
    (reg(3, 3, 9, 12, 6), Trap::Pmu(Register::Quiet)), // PMCEID0_EL0
    (reg(3, 3, 9, 12, 7), Trap::Pmu(Register::Quiet)), // PMCEID1_EL0
    (reg(3, 3, 9, 13, 0), Trap::Pmu(Register::Cycles)),
    (reg(3, 3, 9, 13, 1), Trap::Pmu(Register::SelectedType)),
    (reg(3, 3, 9, 13, 2), Trap::Pmu(Register::Quiet)), // PMXEVCNTR_EL0
    (reg(3, 3, 9, 14, 0), Trap::Pmu(Register::UserEnable)),
    (reg(3, 3, 9, 14, 3), Trap::Pmu(Register::Quiet)), // PMOVSSET_EL0
    (reg(3, 0, 9, 14, 1), Trap::Pmu(Register::Quiet)), // PMINTENSET_EL1
    (reg(3, 0, 9, 14, 2), Trap::Pmu(Register::Quiet)), // PMINTENCLR_EL1
    (reg(3, 0, 9, 14, 6), Trap::Pmu(Register::Quiet)), // PMMIR_EL1
    (reg(3, 3, 14, 15, 7), Trap::Pmu(Register::CycleFilter)),
];

pub(super) static TRAPS: TrapMap<Trap> = TrapMap::with_groups(Trap::Undefined, GROUPS, SINGLE);

/// How a trapped register finds its meaning, and an SGI its targets.
pub(super) trait Lookup {
    /// Looks up the meaning of the register that a syndrome names.
    fn trap(iss: u32) -> Trap;
    /// Decodes what a vCPU writes to an SGI register: the vCPUs it reaches, if that is no broadcast.
    fn targets(vcpu: &Vcpu, register: SgiRegister, value: u64) -> impl Iterator<Item = usize>;
}

/// Finds the targets of an SGI: among the vCPU's neighbors, or by the table of all groups.
#[inline(always)] // Hot: part of the SGI path, once in each handler.
pub(super) fn by_table(vcpu: &Vcpu, register: SgiRegister, value: u64) -> SgiTargets<'static> {
    match SgiRegister::names_neighbors(value, vcpu.own_sgi) {
        true => vcpu.neighbors.sgi_targets(register, value),
        false => vcpu.vm.vgic.sgi_targets(register, value),
    }
}

/// One indexed load each.
pub(super) struct Indexed;

impl Lookup for Indexed {
    #[inline(always)] // One load.
    fn trap(iss: u32) -> Trap {
        TRAPS.lookup(iss)
    }

    #[inline(always)] // Hands on.
    fn targets(vcpu: &Vcpu, register: SgiRegister, value: u64) -> impl Iterator<Item = usize> {
        by_table(vcpu, register, value)
    }
}
