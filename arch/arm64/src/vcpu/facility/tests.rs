// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Who stores and loads what when; and that no guest ever meets a value of another, in whatever order they come.

mod history;

use std::vec::Vec;

use turnstile_vgic::Model;

use super::pmu::Kind;
use super::*;
use crate::cpu::mode::Vhe;
use crate::cpu::regs::fakes::{self, Access};
use crate::exit::tests::{cpu_area, vm_of};
use crate::state::facilities::Wanted;

const CPTR_FP: u64 = 1 << 20;
const CPTR_SVE: u64 = 3 << 16;
const MDCR_TPM: u64 = 1 << 6;
const MDCR_TDA: u64 = 1 << 9;
const HCR_PAUTH: u64 = 3 << 40;
const PMCR_E: u64 = 1;
const MDSCR_MDE: u64 = 1 << 15;

/// Starts the CPU that this thread is to be: SVE with vectors of 32 bytes, pointer authentication, two event counters.
fn start(index: usize) {
    fakes::set("TPIDR_EL2", std::ptr::from_ref(cpu_area(index)) as u64);
    fakes::set("ID_AA64PFR0_EL1", 1 << 32);
    fakes::set("VL", 32);
    fakes::set("ID_AA64DFR0_EL1", 1 << 20 | 1 << 12 | 6 << 8);
    fakes::set("PMCR_EL0", 2 << 11);
    fakes::set("ID_AA64ISAR1_EL1", 1 << 4);
    start_cpu::<Vhe>();
    fakes::take_log();
}

/// One vCPU of each of several VMs.
fn vcpus<const N: usize>(kinds: [(Kind, bool); N]) -> [&'static Vcpu; N] {
    fakes::reset();
    start(0);
    let vcpus = kinds.map(|(pmu, sve)| vm_of(Model::Gicv3, 1, pmu, sve, false).vcpus()[0]);
    fakes::take_log();
    vcpus
}

fn log(action: impl FnOnce()) -> Vec<Access> {
    fakes::take_log();
    action();
    fakes::take_log().into_iter().filter(|access| *access != Access::Read("TPIDR_EL2")).collect()
}

fn closed(register: &'static str, bits: u64) -> bool {
    fakes::get(register) & bits == 0
}

#[test]
fn a_vcpu_that_uses_nothing_costs_nothing() {
    let [one, two] = vcpus([(Kind::Off, false), (Kind::Owned, true)]);
    let accesses = log(|| {
        for vcpu in [one, two, two, one] {
            load(vcpu);
            put(vcpu);
        }
    });
    assert_eq!(accesses, []);
}

#[test]
fn the_first_use_of_fp_loads_it_and_coming_back_does_not() {
    let [one] = vcpus([(Kind::Off, false)]);
    let open = fakes::get("CPTR_EL2") | CPTR_FP;
    load(one);
    let expected = [
        Access::Write("CPTR_EL2", open),
        Access::Write("V0", 0),
        Access::Write("FPCR", 0),
        Access::Write("FPSR", 0),
        Access::Write("CPTR_EL2", open & !CPTR_FP),
        Access::Write("CPTR_EL2", open),
    ];
    assert_eq!(log(|| assert!(trap(one, class::FP))), expected);
    assert_eq!(log(|| assert!(!trap(one, class::FP), "it has them")), []);
    assert_eq!(log(|| put(one)), []);
    assert_eq!(log(|| load(one)), []);
}

#[test]
fn fp_is_taken_from_another_only_when_it_is_used() {
    let [one, two] = vcpus([(Kind::Off, false); 2]);
    load(one);
    trap(one, class::FP);
    fakes::set("V0", 111);
    put(one);
    let open = fakes::get("CPTR_EL2");
    assert_eq!(log(|| load(two)), [Access::Write("CPTR_EL2", open & !CPTR_FP)]);
    let accesses = log(|| assert!(trap(two, class::FP)));
    let registers: Vec<_> =
        accesses.into_iter().filter(|access| !matches!(access, Access::Write("CPTR_EL2", _))).collect();
    let expected = [
        Access::Read("V0"),
        Access::Read("FPCR"),
        Access::Read("FPSR"),
        Access::Write("V0", 0),
        Access::Write("FPCR", 0),
        Access::Write("FPSR", 0),
    ];
    assert_eq!(registers, expected);
    put(two);
    load(one);
    trap(one, class::FP);
    assert_eq!(fakes::get("V0"), 111);
}

#[test]
fn sve_is_opened_to_those_who_have_it() {
    let [with, without] = vcpus([(Kind::Off, true), (Kind::Off, false)]);
    load(with);
    assert!(trap(with, class::SVE));
    assert!(!closed("CPTR_EL2", CPTR_FP) && !closed("CPTR_EL2", CPTR_SVE));
    assert_eq!(fakes::get("ZCR_EL2"), 1, "vectors of 32 bytes");
    [("Z0", 5), ("P0", 6), ("ZCR_EL12", 1)].into_iter().for_each(|(name, value)| fakes::set(name, value));
    put(with);
    load(without);
    assert!(closed("CPTR_EL2", CPTR_FP | CPTR_SVE));
    assert!(!trap(without, class::SVE), "it has none");
    assert!(trap(without, class::FP));
    assert!(closed("CPTR_EL2", CPTR_SVE));
    ["Z0", "P0"].into_iter().for_each(|name| fakes::set(name, 0));
    put(without);
    load(with);
    assert!(
        !closed("CPTR_EL2", CPTR_FP) && !closed("CPTR_EL2", CPTR_SVE),
        "it has used them: they come with it"
    );
    assert_eq!(["Z0", "P0", "ZCR_EL12"].map(fakes::get), [5, 6, 1]);
    assert!(!trap(with, class::FP), "FP and SVE are one facility");
}

#[test]
fn what_a_vcpu_has_used_comes_with_it_until_it_has_not_been_asked_for_long() {
    let [one, two] = vcpus([(Kind::Off, false); 2]);
    fakes::set("HCR_EL2", fakes::get("HCR_EL2") & !HCR_PAUTH);
    for (vcpu, value) in [(one, 1), (two, 2)] {
        load(vcpu);
        assert!(trap(vcpu, class::FP) && trap(vcpu, class::PAUTH));
        ["V0", "APIAKeyLo_EL1"].into_iter().for_each(|name| fakes::set(name, value));
        put(vcpu);
    }
    for turn in 0..Wanted::LOADS {
        for (vcpu, value) in [(one, 1), (two, 2)] {
            load(vcpu);
            assert!(!closed("CPTR_EL2", CPTR_FP) && !closed("HCR_EL2", HCR_PAUTH), "turn {turn}");
            assert_eq!(["V0", "APIAKeyLo_EL1"].map(fakes::get), [value; 2], "turn {turn}");
            put(vcpu);
        }
    }
    load(one);
    assert!(closed("CPTR_EL2", CPTR_FP) && closed("HCR_EL2", HCR_PAUTH), "whether it uses them still");
    assert!(trap(one, class::FP));
    assert_eq!(fakes::get("V0"), 1);
    put(one);
    load(two);
    assert!(closed("CPTR_EL2", CPTR_FP));
    put(two);
    // The next life has used nothing.
    load(one);
    reset(one);
    load(one);
    assert!(closed("CPTR_EL2", CPTR_FP) && closed("HCR_EL2", HCR_PAUTH));
}

#[test]
fn nobody_gets_with_a_switch_what_it_has_not_used() {
    let [one, two] = vcpus([(Kind::Off, false); 2]);
    load(one);
    assert!(trap(one, class::FP));
    fakes::set("V0", 77);
    put(one);
    let accesses = log(|| {
        load(two);
        put(two);
        load(one);
    });
    assert!(accesses.iter().all(|access| matches!(access, Access::Write("CPTR_EL2", _))), "{accesses:?}");
}

#[test]
fn counters_stand_still_while_their_vcpu_does_not_run() {
    let [one, two] = vcpus([(Kind::Owned, false), (Kind::Off, false)]);
    load(one);
    assert!(claim(one, Facility::Pmu));
    assert!(closed("MDCR_EL2", MDCR_TPM));
    fakes::set("PMCR_EL0", PMCR_E | 1 << 6);
    put(one);
    assert_eq!(fakes::get("PMCR_EL0"), 1 << 6);
    load(two);
    assert!(!closed("MDCR_EL2", MDCR_TPM));
    assert!(!counts(two));
    put(two);
    let accesses = log(|| load(one));
    assert_eq!(accesses.len(), 2, "PMCR_EL0 and MDCR_EL2: {accesses:?}");
    assert_eq!(fakes::get("PMCR_EL0"), PMCR_E | 1 << 6);
    assert!(counts(one));
}

#[test]
fn counters_of_one_never_show_in_another() {
    let [one, two] = vcpus([(Kind::Owned, false); 2]);
    load(one);
    claim(one, Facility::Pmu);
    let registers = ["PMCCNTR_EL0", "PMEVCNTR0_EL0", "PMEVTYPER1_EL0", "PMSELR_EL0", "PMUSERENR_EL0"];
    registers.iter().for_each(|register| fakes::set(register, 77));
    fakes::set("PMCR_EL0", PMCR_E);
    put(one);
    load(two);
    claim(two, Facility::Pmu);
    assert_eq!(registers.map(fakes::get), [0; 5]);
    assert_eq!(fakes::get("PMCR_EL0"), 0);
    put(two);
    // It counts: no access of its own brings the counters back.
    load(one);
    assert_eq!(registers.map(fakes::get), [77; 5]);
    assert_eq!(fakes::get("PMCR_EL0"), PMCR_E);
}

#[test]
fn a_trapped_pmu_counts_while_its_vcpu_runs() {
    use crate::state::trapped_pmu::Register;
    let [owner, trapped] = vcpus([(Kind::Owned, false), (Kind::Trapped, false)]);
    load(owner);
    claim(owner, Facility::Pmu);
    fakes::set("PMCR_EL0", 0);
    put(owner);
    load(trapped);
    assert_eq!(fakes::get("PMCR_EL0") & PMCR_E, PMCR_E, "the counter runs freely again");
    let cycles = || state(trapped).trapped_pmu.read(Register::Cycles);
    fakes::set("PMCCNTR_EL0", 1000);
    state(trapped).trapped_pmu.write(Register::EnableSet, 1 << 31);
    state(trapped).trapped_pmu.write(Register::Control, PMCR_E);
    fakes::set("PMCCNTR_EL0", 1200);
    assert_eq!(cycles(), 200);
    put(trapped);
    fakes::set("PMCCNTR_EL0", 9000);
    load(trapped);
    fakes::set("PMCCNTR_EL0", 9001);
    assert_eq!(cycles(), 201);
}

#[test]
fn breakpoints_act_on_their_own_vcpu_only() {
    let [one, two] = vcpus([(Kind::Off, false); 2]);
    load(one);
    assert!(claim(one, Facility::Debug));
    assert!(closed("MDCR_EL2", MDCR_TDA));
    let set = [("DBGBVR0_EL1", 0x1000), ("DBGBCR0_EL1", 1), ("MDSCR_EL1", MDSCR_MDE)];
    set.into_iter().for_each(|(name, value)| fakes::set(name, value));
    put(one);
    load(two);
    assert_eq!(fakes::get("MDSCR_EL1"), 0);
    assert!(!closed("MDCR_EL2", MDCR_TDA));
    assert!(claim(two, Facility::Debug));
    assert_eq!(["DBGBVR0_EL1", "DBGBCR0_EL1"].map(fakes::get), [0, 0]);
    put(two);
    // Switched on: it must be there before it is accessed.
    load(one);
    assert_eq!(["DBGBVR0_EL1", "DBGBCR0_EL1", "MDSCR_EL1"].map(fakes::get), [0x1000, 1, MDSCR_MDE]);
}

#[test]
fn the_os_lock_is_a_vcpus_own() {
    let [one, two] = vcpus([(Kind::Off, false); 2]);
    load(one);
    set_os_lock(one, 1);
    assert_eq!((os_lock_status(one), os_lock_status(two)), (0b1010, 0b1000));
    put(one);
    load(two);
    claim(two, Facility::Debug);
    assert_eq!(fakes::get("OSLAR_EL1"), 0);
}

#[test]
fn keys_are_switched_when_the_other_one_signs() {
    let [one, two] = vcpus([(Kind::Off, false); 2]);
    load(one);
    assert!(trap(one, class::PAUTH));
    assert_eq!(fakes::get("HCR_EL2") & HCR_PAUTH, HCR_PAUTH);
    fakes::set("APIAKeyLo_EL1", 42);
    put(one);
    load(two);
    assert!(closed("HCR_EL2", HCR_PAUTH));
    assert!(trap(two, class::PAUTH));
    assert_eq!(fakes::get("APIAKeyLo_EL1"), 0);
    put(two);
    load(one);
    trap(one, class::PAUTH);
    assert_eq!(fakes::get("APIAKeyLo_EL1"), 42);
}

#[test]
fn a_new_life_begins_with_nothing() {
    let [one] = vcpus([(Kind::Owned, true)]);
    load(one);
    let registers = ["Z0", "FPSR", "PMCCNTR_EL0", "DBGWVR1_EL1", "MDSCR_EL1", "APGAKeyHi_EL1"];
    let use_all = || Facility::ALL.into_iter().all(|facility| claim(one, facility));
    assert!(use_all());
    registers.iter().for_each(|register| fakes::set(register, 1));
    reset(one);
    load(one);
    assert_eq!(fakes::get("MDSCR_EL1"), 0);
    assert!(use_all(), "everything is to be claimed again");
    assert_eq!(registers.map(fakes::get), [0; 6]);
}
