// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Switches against a recorder: what they read and write, and what they leave.

use std::boxed::Box;
use std::string::String;
use std::vec::Vec;

use turnstile_vm::lifecycle::OnCrash;

use super::*;
use crate::irq::{Board, Presentation};
use crate::regs::fakes::{self, Access};
use crate::regs::hfscr;
use crate::vm::{Vm, VmParts};

/// Makes a VM with so many vCPUs, pinned to this CPU, of which none has run.
pub(crate) fn vcpus(count: usize) -> Vec<&'static Vcpu> {
    fakes::reset();
    // A POWER9.
    fakes::set("PVR", 0x4e_1202);
    let board = Board::new(count, Presentation::Xics).expect("the firmware has everything");
    let parts = VmParts {
        id: 2,
        name: String::from("vm"),
        on_crash: OnCrash::Stop,
        statistics: false,
        board,
        vcpus: count,
    };
    let vm: &'static Vm = Box::leak(Box::new(Vm::new(parts)));
    vm.set_vcpus(
        (0..count).map(|index| &*Box::leak(Box::new(Vcpu::new(vm, index, cpu::this(), None)))).collect(),
    );
    fakes::take_log();
    vm.vcpus().to_vec()
}

fn writes(log: &[Access]) -> Vec<&'static str> {
    let name = |access: &Access| match access {
        Access::Write(name, _) => Some(*name),
        Access::Read(_) => None,
    };
    log.iter().filter_map(name).collect()
}

#[test]
fn who_comes_back_pays_nothing() {
    let vcpus = vcpus(2);
    load(vcpus[0]);
    fakes::take_log();
    load(vcpus[0]);
    assert_eq!(fakes::take_log(), []);
}

#[test]
fn registers_that_have_the_value_are_not_written() {
    let vcpus = vcpus(2);
    load(vcpus[0]);
    fakes::set("SPRG3", 7);
    fakes::set("PIDR", 5);
    fakes::take_log();
    load(vcpus[1]);
    let log = fakes::take_log();
    assert_eq!(writes(&log), ["SPRG3", "PIDR", "VSR", "DEC"], "all others are the same");
    let first = log.iter().position(|access| matches!(access, Access::Write(..)));
    let last = log.iter().rposition(|access| matches!(access, Access::Read("SPRG0" | "PIDR" | "PPR")));
    assert!(last < first, "all are read before one is written");
    fakes::take_log();
    load(vcpus[0]);
    assert_eq!((fakes::get("SPRG3"), fakes::get("PIDR")), (7, 5), "it finds what it left");
}

#[test]
fn a_decrementer_goes_on_while_its_vcpu_does_not_run() {
    let vcpus = vcpus(2);
    fakes::set("TB", 1000);
    load(vcpus[0]);
    fakes::set("DEC", 500);
    load(vcpus[1]);
    assert_eq!(decrementer(vcpus[0]), 1500);
    fakes::set("TB", 1200);
    load(vcpus[0]);
    assert_eq!(fakes::get("DEC"), 300);
    fakes::set("DEC", 0xffff_fff0);
    assert_eq!(decrementer(vcpus[0]), 1184, "it has passed zero");
}

#[test]
fn a_facility_comes_with_its_first_use_and_goes_when_it_is_old() {
    let vcpus = vcpus(2);
    load(vcpus[0]);
    assert_eq!(fakes::get("HFSCR") & (hfscr::PM | hfscr::TM | hfscr::EBB), 0);
    fakes::take_log();
    for (number, bit, register) in
        [(3, hfscr::PM, "MMCR0"), (5, hfscr::TM, "TFHAR"), (7, hfscr::EBB, "EBBHR")]
    {
        assert!(demand(vcpus[0], number));
        assert_eq!(fakes::get("HFSCR") & bit, bit);
        let log = fakes::take_log();
        assert!(writes(&log).contains(&register), "what another guest has left is not seen");
    }
    assert!(!demand(vcpus[0], hfscr::MSGP.trailing_zeros() as u8));
    fakes::set("EBBHR", 0x1234);
    load(vcpus[1]);
    assert_eq!(fakes::get("HFSCR") & hfscr::EBB, 0, "the other one has not asked");
    for _ in 1..demand::LOADS {
        load(vcpus[0]);
        assert_eq!((fakes::get("HFSCR") & hfscr::EBB, fakes::get("EBBHR")), (hfscr::EBB, 0x1234));
        load(vcpus[1]);
        fakes::set("EBBHR", 0);
    }
    load(vcpus[0]);
    assert_eq!(fakes::get("HFSCR") & hfscr::EBB, 0, "it has been loaded 256 times");
    assert!(demand(vcpus[0], 7));
    assert_eq!(fakes::get("EBBHR"), 0x1234, "nothing is lost");
}

#[test]
fn counters_that_the_guest_does_not_use_are_frozen_and_forgotten() {
    let vcpus = vcpus(2);
    load(vcpus[0]);
    assert!(demand(vcpus[0], 3));
    fakes::set("PMC1", 99);
    fakes::take_log();
    load(vcpus[1]);
    let log = fakes::take_log();
    assert!(log.contains(&Access::Read("PMC1")), "no area says that they are not in use");
    assert_eq!(fakes::get("MMCR0"), demand::FROZEN);
}

#[test]
fn a_vcpu_that_moves_takes_its_translations_with_it() {
    let vcpus = vcpus(1);
    load(vcpus[0]);
    fakes::take_log();
    depart(vcpus[0]);
    assert!(writes(&fakes::take_log()).contains(&"TLBSYNC"), "once, when it leaves");
    load(vcpus[0]);
    assert!(!writes(&fakes::take_log()).contains(&"TLBIE_LPID"), "it has come back");
    depart(vcpus[0]);
    // SAFETY: the vCPU is nobody's, and nobody refers to its state.
    unsafe { vcpus[0].facilities() }.cpu = Some(7);
    load(vcpus[0]);
    assert!(writes(&fakes::take_log()).contains(&"TLBIE_LPID"), "it was on another CPU");
}

#[test]
fn a_life_begins_with_nothing_of_the_one_before() {
    let vcpus = vcpus(1);
    load(vcpus[0]);
    for register in ["SPRG0", "TAR", "VSR", "AMR", "DSCR"] {
        fakes::set(register, 1);
    }
    reset(vcpus[0]);
    for register in ["SPRG0", "TAR", "VSR", "AMR", "DSCR"] {
        assert_eq!(fakes::get(register), 0, "{register}");
    }
}
