// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Switches against a recorder: what they read and write, and what they leave.

mod counters;
mod machine;
mod registers;

use std::boxed::Box;
use std::vec::Vec;

use turnstile_papr::Memory;
use turnstile_threads::Architecture;

use super::*;
use crate::cpu::regs::fakes::{self, Access};
use crate::cpu::regs::{hfscr, lpcr};
use crate::irq::Presentation;
use crate::memory::GuestRam;
use crate::state::registers::Transactions;
use crate::state::{demand, set_enforced};
use crate::vm::Thread;
use crate::vm::queues::Power;
use crate::vm::{BootState, GUEST_LPCR};

pub(crate) use machine::{cores, vcpus, vm};

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
    // The register has 32 bits: beyond them it would say the opposite.
    load(vcpus[1]);
    fakes::set("TB", 1184 + (5 << 30));
    load(vcpus[0]);
    assert_eq!(time::signed(fakes::get("DEC")), i32::MIN.into(), "it is still behind zero");
    crate::vcpu::facility::reset(vcpus[0]);
    assert_eq!(time::signed(fakes::get("DEC")), i32::MAX.into(), "of a life that begins it is far");
}

#[test]
fn a_facility_comes_with_its_first_use_and_goes_when_it_is_old() {
    let vcpus = vcpus(2);
    load(vcpus[0]);
    assert_eq!(fakes::get("HFSCR") & (hfscr::PM | hfscr::TM | hfscr::EBB), 0);
    fakes::take_log();
    for (number, bit, register) in [(3, hfscr::PM, "MMCR0"), (7, hfscr::EBB, "EBBHR")] {
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

/// A switch in the middle of one would have to store the checkpoint. Where nothing keeps a guest from them (all of an emulator's
/// fail), their registers are moved.
#[test]
fn transactions_are_no_guests_where_they_can_be_kept_from_guests() {
    let vcpus = vcpus(2);
    let touched = || {
        let log = fakes::take_log();
        let is_named = |name| Transactions::REGISTERS.iter().any(|(_, other)| *other == name);
        log.iter()
            .any(|access| matches!(access, Access::Read(name) | Access::Write(name, _) if is_named(*name)))
    };
    load(vcpus[0]);
    assert!(!demand(vcpus[0], 5));
    for vcpu in [vcpus[1], vcpus[0]] {
        load(vcpu);
        assert_eq!(fakes::get("HFSCR") & hfscr::TM, 0);
    }
    crate::vcpu::facility::reset(vcpus[0]);
    assert!(!touched());
    set_enforced(false);
    for (pvr, are_there) in [(0x4e_1202, true), (0x80_1200, false)] {
        fakes::set("PVR", pvr);
        crate::vcpu::facility::reset(vcpus[0]);
        assert_eq!((touched(), fakes::get("HFSCR") & hfscr::TM != 0), (are_there, are_there), "{pvr:#x}");
    }
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
fn another_vm_has_another_partition_and_no_trace_of_the_first() {
    let (first, other) = (vcpus(2), vm(5, Presentation::Xics)[0]);
    load(first[0]);
    fakes::take_log();
    load(first[1]);
    let log = writes(&fakes::take_log());
    assert!(!log.contains(&"LPIDR") && !log.contains(&"SLBMTE"), "the same partition");
    assert!(!log.contains(&"CP_ABORT"), "Power ISA 3.0B has none");
    other.vm.set_lpcr(lpcr::ILE, lpcr::ILE);
    fakes::set("PVR", 0x80_1200);
    load(other);
    assert_eq!(fakes::get("LPIDR"), 6);
    assert_eq!(fakes::get("LPCR"), GUEST_LPCR | lpcr::ILE);
    let log = writes(&fakes::take_log());
    assert_eq!(log.iter().filter(|name| **name == "SLBMTE").count(), 4);
    assert!(log.contains(&"CP_ABORT"));
    load(first[0]);
    assert_eq!((fakes::get("LPIDR"), fakes::get("LPCR")), (3, GUEST_LPCR));
    let forgotten = || {
        let log = writes(&fakes::take_log());
        (log.iter().filter(|name| **name == "SLBMTE").count(), log.contains(&"CLRBHRB"))
    };
    // Whose they are nobody knows any more.
    depart(first[0]);
    fakes::take_log();
    load(first[1]);
    assert_eq!(forgotten(), (4, false));
    crate::vcpu::facility::reset(first[1]);
    assert_eq!(forgotten(), (4, false), "of the life before");
    set_enforced(false);
    load(first[0]);
    assert_eq!(forgotten(), (0, true), "the same partition");
    load(other);
    assert_eq!(forgotten(), (32, true));
}

#[test]
fn each_life_has_a_key_of_its_own() {
    let vcpu = vcpus(1)[0];
    for key in [0x1234_5678, 0x8765_4321] {
        fakes::set("DARN", key);
        vcpu.vm.prepare(0, GuestRam::default(), BootState::default());
        reset(vcpu);
        assert_eq!(fakes::get("HASHPKEYR"), key);
    }
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

#[test]
fn a_partition_changes_no_more_of_lpcr_than_is_meant() {
    let vm = vcpus(1)[0].vm;
    vm.set_lpcr(lpcr::AIL, lpcr::AIL_3);
    assert_eq!(vm.lpcr(), GUEST_LPCR | lpcr::AIL_3);
    vm.set_lpcr(lpcr::ILE, lpcr::ILE);
    assert_eq!(vm.lpcr(), GUEST_LPCR | lpcr::AIL_3 | lpcr::ILE);
    vm.set_lpcr(lpcr::AIL, lpcr::AIL_2);
    assert_eq!(vm.lpcr(), GUEST_LPCR | lpcr::AIL_2 | lpcr::ILE, "the other bit goes");
    vm.set_lpcr(lpcr::ILE, !0);
    vm.set_lpcr(lpcr::AIL, 0);
    assert_eq!(vm.lpcr(), GUEST_LPCR | lpcr::ILE, "nothing beside the mask");
    vm.prepare(0, GuestRam::default(), BootState::default());
    assert_eq!(vm.lpcr(), GUEST_LPCR, "a life begins anew");
}

#[test]
fn a_vcpu_that_is_off_wants_no_turn_for_its_decrementer() {
    let pinned = vcpus(1)[0];
    let vcpu = &*Box::leak(Box::new(Vcpu::new(pinned.vm, 0, cpu::this(), Some(Thread::new(0, 0)))));
    pinned.vm.prepare(0, GuestRam::default(), BootState::default());
    fakes::set("TB", 1000);
    load(vcpu);
    fakes::set("DEC", 50);
    assert_eq!(Power::put(vcpu, vcpu.thread.as_ref().expect("it is a thread")), None, "its start waits");
    assert!(vcpu.vm.processors.take_start(0).is_some());
    assert_eq!(Power::put(vcpu, vcpu.thread.as_ref().expect("it is a thread")), Some(1050));
}
