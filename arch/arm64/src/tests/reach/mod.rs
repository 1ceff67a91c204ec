// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Every register that software at EL1 and EL0 can name has its fate in a guest, in one list ([`list`]); and the fate is what
//! really happens: what is switched is stored, loaded and reset, and what traps has its control set.
//!
//! The toolchain's disassembler says which registers there are. When a newer one knows more, a test here names them, and
//! somebody has to decide.

mod list;
mod names;

use std::collections::{BTreeMap, BTreeSet};
use std::string::ToString;
use std::vec::Vec;

use turnstile_trapmap::name;
use turnstile_vgic::Model;

use crate::cpu::mode::{Mode, Nvhe, Vhe};
use crate::cpu::regs::fakes::{self, Access};
use crate::exit::tests::{cpu_area, vm_of};
use crate::irq::{CpuInterface, Gic, Gicv3, InterfaceState, Switched as _};
use crate::state::pmu::Kind;
use crate::state::{Deferred, Facility, SystemState, Timers};
use crate::vcpu::{facility, switch};
use crate::vm::Vcpu;

/// What becomes of a register that a guest names.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fate {
    /// The guest has it; it is stored, loaded and reset by its name.
    Switched,
    /// As [`Fate::Switched`], by the name that it has at EL2.
    SwitchedAs(&'static str),
    /// It is part of PSTATE, and so of SPSR_EL2.
    Pstate,
    /// It traps until its facility is claimed, and is loaded then, in a new life with nothing of the old one.
    Facility(Facility),
    /// It traps.
    Traps(&'static [Trap]),
    /// It cannot be changed.
    ReadOnly,
    /// EL2 says what it is.
    Passed(&'static str),
    /// It shows or changes what is in another register.
    View(&'static str),
    /// It is not there.
    Absent(&'static str),
    /// It is the guest's, and stays in the CPU.
    Open(&'static str),
    /// It came with Armv9.7. Its features are not offered; what traps it has not been decided (CAVEATS.md).
    Later,
}

/// A control that makes registers trap.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Trap {
    /// A bit that is one.
    Set(&'static str, u32),
    /// A bit that is zero.
    Clear(&'static str, u32),
    /// A register that is zero.
    Zero(&'static str),
    /// A bit of CPTR_EL2 that is one.
    Cptr {
        /// With VHE.
        vhe: u32,
        /// Without.
        nvhe: u32,
    },
    /// CPTR_EL2 has SME trap.
    Sme,
}

/// What traps a facility that nobody has claimed.
const fn closed(facility: Facility, vhe: bool) -> &'static [Trap] {
    match (facility, vhe) {
        (Facility::Debug, _) => &[Trap::Set("MDCR_EL2", 9)],
        (Facility::Pmu, _) => &[Trap::Set("MDCR_EL2", 5), Trap::Set("MDCR_EL2", 6)],
        (Facility::Pauth, _) => &[Trap::Clear("HCR_EL2", 40), Trap::Clear("HCR_EL2", 41)],
        (Facility::Vector, true) => &[Trap::Clear("CPTR_EL2", 20), Trap::Clear("CPTR_EL2", 16)],
        (Facility::Vector, false) => &[Trap::Set("CPTR_EL2", 10), Trap::Set("CPTR_EL2", 8)],
    }
}

/// Says whether a pattern of the list names a register.
fn matches(pattern: &str, name: &str) -> bool {
    let Some((head, tail)) = pattern.split_once(['#', '*']) else {
        return pattern.eq_ignore_ascii_case(name);
    };
    let (head, tail, name) = (head.to_uppercase(), tail.to_uppercase(), name.to_uppercase());
    let middle = name.strip_prefix(&*head).and_then(|rest| rest.strip_suffix(&*tail));
    middle.is_some_and(|middle| {
        pattern.contains('*') || !middle.is_empty() && middle.bytes().all(|byte| byte.is_ascii_digit())
    })
}

/// Returns the fate of a register, with the pattern that names it: its own name before a group's.
fn fate(name: &str) -> Option<(&'static str, Fate)> {
    let rows = || {
        let each = list::LIST.iter();
        each.flat_map(|(patterns, fate)| patterns.split(' ').map(move |pattern| (pattern, *fate)))
    };
    let named: Vec<_> = rows().filter(|(pattern, _)| matches(pattern, name)).collect();
    let exact = named.iter().find(|(pattern, _)| !pattern.contains(['#', '*'])).copied();
    assert!(exact.is_some() || named.len() < 2, "{name} has more than one fate");
    exact.or_else(|| named.first().copied())
}

/// A CPU that has everything, as it has just started.
fn start<M: Mode>() {
    fakes::reset();
    fakes::set("TPIDR_EL2", core::ptr::from_ref(cpu_area(0)) as u64);
    for register in [
        "ID_AA64PFR0_EL1",
        "ID_AA64PFR1_EL1",
        "ID_AA64DFR0_EL1",
        "ID_AA64ISAR1_EL1",
        "ID_AA64MMFR0_EL1",
        "ID_AA64MMFR1_EL1",
    ] {
        fakes::set(register, 0x2222_2222_2222_2222);
    }
    fakes::set("PMCR_EL0", 31 << 11);
    fakes::set("VL", 32);
    fakes::set("ICH_VTR_EL2", 6 << 26);
    switch::start_cpu_in::<M>();
}

fn writes() -> Vec<(&'static str, u64)> {
    let log = fakes::take_log().into_iter();
    log.filter_map(|access| match access {
        Access::Write(name, value) => Some((name, value)),
        Access::Read(_) => None,
    })
    .collect()
}

/// Says whether a trap is armed; what no one has written is not, because firmware may have left anything there.
fn is_armed<M: Mode>(trap: Trap, written: &BTreeMap<&str, u64>) -> bool {
    let bit = |register, bit: u32| written.get(register).map(|value| value >> bit & 1);
    match trap {
        Trap::Set(register, at) => bit(register, at) == Some(1),
        Trap::Clear(register, at) => bit(register, at) == Some(0),
        Trap::Zero(register) => written.get(register) == Some(&0),
        Trap::Cptr { vhe, nvhe } => bit("CPTR_EL2", if M::VHE { vhe } else { nvhe }) == Some(1),
        Trap::Sme if M::VHE => bit("CPTR_EL2", 24) == Some(0) && bit("CPTR_EL2", 25) == Some(0),
        Trap::Sme => bit("CPTR_EL2", 12) == Some(1),
    }
}

fn all_traps_are_armed<M: Mode>(written: &BTreeMap<&str, u64>, nobody_has_claimed: bool) {
    for (patterns, fate) in list::LIST {
        let traps = match *fate {
            Fate::Traps(traps) => traps,
            Fate::Facility(facility) if nobody_has_claimed => closed(facility, M::VHE),
            _ => &[],
        };
        for trap in traps {
            assert!(is_armed::<M>(*trap, written), "{patterns} do not trap: {trap:?}");
        }
    }
    // TIDCP: what is implementation-defined.
    assert!(is_armed::<M>(Trap::Set("HCR_EL2", 20), written));
}

/// A vCPU that has everything.
fn vcpu() -> &'static Vcpu {
    let vcpu = vm_of(Model::Gicv3, 1, Kind::Owned, true, false).vcpus()[0];
    assert!(vcpu.vm.offer.sve && vcpu.vm.offer.pauth);
    vcpu
}

const FACILITIES: [Facility; 4] = [Facility::Vector, Facility::Pmu, Facility::Debug, Facility::Pauth];

#[test]
fn what_traps_has_its_control_set_whatever_the_guest_has_claimed() {
    fn in_mode<M: Mode>() {
        start::<M>();
        all_traps_are_armed::<M>(&writes().into_iter().collect(), true);
    }
    in_mode::<Nvhe>();
    in_mode::<Vhe>();
    start::<Vhe>();
    let vcpu = vcpu();
    switch::share_cpu();
    facility::load(vcpu);
    assert!(FACILITIES.into_iter().all(|facility| facility::claim(vcpu, facility)));
    let names: BTreeSet<_> = writes().into_iter().map(|(name, _)| name).collect();
    all_traps_are_armed::<Vhe>(&names.into_iter().map(|name| (name, fakes::get(name))).collect(), false);
}

#[test]
fn what_is_claimed_is_loaded_and_begins_a_life_with_nothing() {
    const LEFT: u64 = 0xdead_dead;
    start::<Vhe>();
    let vcpu = vcpu();
    for facility in FACILITIES {
        facility::load(vcpu);
        fakes::take_log();
        assert!(facility::claim(vcpu, facility));
        let first = writes();
        first.iter().filter(|(name, _)| fate(name).is_some()).for_each(|(name, _)| fakes::set(name, LEFT));
        facility::reset(vcpu);
        facility::load(vcpu);
        fakes::take_log();
        assert!(facility::claim(vcpu, facility));
        let second: BTreeMap<_, _> = writes().into_iter().collect();
        for pattern in patterns_of(|fate| fate == Fate::Facility(facility)) {
            let is_meant = |name: &&str| matches(pattern, &name.replace("_EL12", "_EL1"));
            let loaded: Vec<_> = second.keys().filter(|name| is_meant(name)).collect();
            assert!(!loaded.is_empty(), "{pattern} is not loaded");
            for name in loaded {
                assert_ne!(second[*name] & LEFT, LEFT, "{name} survives a new life");
            }
        }
    }
}

fn patterns_of(wanted: impl Fn(Fate) -> bool) -> impl Iterator<Item = &'static str> {
    let rows = list::LIST.iter().filter(move |(_, fate)| wanted(*fate));
    rows.flat_map(|(patterns, _)| patterns.split(' '))
}

#[test]
fn what_is_switched_is_stored_loaded_and_reset() {
    fakes::reset();
    fakes::set("ID_AA64PFR0_EL1", 1 << 28);
    fakes::set("ID_AA64DFR0_EL1", 0xf << 36);
    fakes::set("ICH_VTR_EL2", 6 << 26);
    let (mut system, mut timers, mut deferred) =
        (SystemState::default(), Timers::default(), Deferred::default());
    let mut interface = InterfaceState::default();
    system.save::<Nvhe>();
    deferred.save();
    timers.put::<Nvhe>();
    Gicv3::save_interface(&mut interface);
    let log = fakes::take_log().into_iter();
    let stored: BTreeSet<_> = log
        .filter_map(|access| match access {
            Access::Read(name) => Some(name),
            Access::Write(..) => None,
        })
        .collect();
    // SAFETY: registers of the test.
    unsafe {
        system.load::<Nvhe>();
        deferred.load();
        timers.load::<Nvhe>();
        Gicv3::load_interface(&interface);
    }
    let loaded: BTreeSet<_> = writes().into_iter().map(|(name, _)| name).collect();
    switch::reset_vcpu_in::<Nvhe>(0);
    <Gicv3 as Gic>::Interface::reset();
    let reset: BTreeSet<_> = writes().into_iter().map(|(name, _)| name).collect();

    // Where it goes on is the vCPU's, too, and SP_EL1, which EL1 itself names SP.
    let mut switched = BTreeSet::from(["ELR_EL2", "SPSR_EL2", "SP_EL1"]);
    switched.extend(patterns_of(|fate| fate == Fate::Switched));
    switched.extend(list::LIST.iter().filter_map(|(_, fate)| match fate {
        Fate::SwitchedAs(name) => Some(*name),
        _ => None,
    }));
    assert_eq!(loaded, switched, "loaded, and what the list says");
    assert!(switched.is_subset(&stored), "not stored: {:?}", switched.difference(&stored));
    assert!(switched.is_subset(&reset), "not reset: {:?}", switched.difference(&reset));
}
