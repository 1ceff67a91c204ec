// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Switches against a recorder: what they read and write, and what they leave.

use std::boxed::Box;
use std::string::String;
use std::vec::Vec;

use turnstile_papr::Memory;
use turnstile_papr::code::Code;
use turnstile_papr::vpa::offset;
use turnstile_threads::Architecture;
use turnstile_vm::lifecycle::OnCrash;

use super::*;
use crate::cpu::regs::fakes::{self, Access};
use crate::cpu::regs::{hfscr, lpcr};
use crate::irq::{Board, Presentation};
use crate::memory::GuestRam;
use crate::sched::{Power, Thread};
use crate::state::registers::{
    Branches, Common, Emulated, FROZEN, Monitor, Newer, NewerMonitor, Transactions,
};
use crate::state::{demand, discover, set_enforced};
use crate::vm::{BootState, GUEST_LPCR};
use crate::vm::{Vm, VmParts};

/// Makes a VM with so many vCPUs, pinned to this CPU, of which none has run. The CPU has all registers that any has.
pub(crate) fn vcpus(count: usize) -> Vec<&'static Vcpu> {
    cores(count, 1)
}

/// The same of a VM whose cores have so many threads.
pub(crate) fn cores(count: usize, threads: usize) -> Vec<&'static Vcpu> {
    fakes::reset();
    // A POWER9.
    fakes::set("PVR", 0x4e_1202);
    fakes::set("CTRL", 1);
    for name in HAS {
        fakes::set(name, 1);
    }
    discover();
    Emulated::discover();
    vm_of(2, count, threads, Presentation::Xics)
}

/// What a CPU may not have.
const HAS: [&str; 23] = [
    "has TIDR",
    "has PSSCRPR",
    "has DEXCR",
    "has HASHKEYR",
    "has HASHPKEYR",
    "has MMCR3",
    "has SIER2",
    "has SIER3",
    "has EAR",
    "has USIER2",
    "has USIER3",
    "has UMMCR3",
    "has USIER",
    "has BESCRS",
    "has BESCRR",
    "has RWMR",
    "has TACR",
    "has TCSCR",
    "has CSIGR",
    "has SPMC1",
    "has SPMC2",
    "has MMCRS",
    "has WORT",
];

/// Makes the vCPU of another VM, with this number.
pub(crate) fn vm(id: u8, presentation: Presentation) -> Vec<&'static Vcpu> {
    vm_of(id, 1, 1, presentation)
}

fn vm_of(id: u8, count: usize, threads: usize, presentation: Presentation) -> Vec<&'static Vcpu> {
    let board = Board::new(count, presentation).expect("the firmware has everything");
    let parts = VmParts {
        id,
        name: String::from("vm"),
        on_crash: OnCrash::Stop,
        statistics: false,
        board,
        vcpus: count,
        threads,
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
fn counters_count_for_nobody_else() {
    let vcpus = vcpus(2);
    load(vcpus[0]);
    assert!(demand(vcpus[0], 3));
    let running = 1 << 5;
    fakes::set("PMC1", 99);
    fakes::set("MMCR0", running);
    fakes::take_log();
    load(vcpus[1]);
    let log = fakes::take_log();
    assert!(log.contains(&Access::Read("PMC1")), "no area says that they are not in use");
    assert_eq!(fakes::get("MMCR0"), FROZEN);
    load(vcpus[0]);
    assert_eq!((fakes::get("MMCR0"), fakes::get("PMC1")), (running, 99), "they go on");
    assert_eq!(writes(&fakes::take_log()).last(), Some(&"DEC"));
    // The other one's count, too, when it has asked, though the two want the same.
    load(vcpus[1]);
    assert!(demand(vcpus[1], 3));
    fakes::set("MMCR0", running);
    for vcpu in vcpus {
        load(vcpu);
        assert_eq!(fakes::get("MMCR0"), running);
    }
}

/// The registers of the monitor but that which freezes the others.
fn counters() -> impl Iterator<Item = &'static str> {
    let all = Monitor::REGISTERS.iter().chain(NewerMonitor::REGISTERS);
    all.map(|(_, name)| *name).filter(|name| *name != "MMCR0")
}

/// Registers an area of the vCPU whose guest says that it does not use the counters.
fn without_counters(vcpu: &'static Vcpu) {
    const PAGE: usize = 4096;
    const REGISTER: u64 = 1 << 45;
    let ram = Box::leak(vec![0u64; 2 * PAGE / 8].into_boxed_slice());
    let memory = GuestRam::new(ram.as_ptr() as u64, 2 * PAGE as u64);
    vcpu.vm.prepare(0, memory, None, BootState::default());
    assert!(vcpu.vm.set_word(PAGE as u64 + offset::SIZE, 640 << 16));
    let answer = vcpu.owned(|owned| owned.areas.call(REGISTER, PAGE as u64, vcpu.vm));
    assert_eq!(answer, Code::SUCCESS);
}

#[test]
fn counters_that_one_guest_does_not_use_are_not_left_to_the_next() {
    let vcpus = vcpus(2);
    without_counters(vcpus[0]);
    for vcpu in &vcpus {
        load(vcpu);
        assert!(demand(vcpu, 3));
    }
    load(vcpus[0]);
    for (value, register) in (0x100..).zip(counters()) {
        fakes::set(register, value);
    }
    fakes::set("MMCR0", 0);
    fakes::take_log();
    load(vcpus[1]);
    assert!(!fakes::take_log().contains(&Access::Read("PMC1")), "nobody wants to have them again");
    for register in counters() {
        assert_eq!(fakes::get(register), 0, "{register}");
    }
    assert_eq!(fakes::get("MMCR0"), FROZEN);
    load(vcpus[0]);
    assert_eq!(fakes::get("PMC1"), 0, "its own are forgotten, too");
    // Also those that it has used before.
    let use_counters = |yes: u8| assert!(vcpus[0].vm.write(4096 + offset::PMC_IN_USE, &[yes]));
    for (in_use, found) in [(1, 7), (0, 0)] {
        use_counters(in_use);
        fakes::set("PMC1", 7);
        load(vcpus[1]);
        load(vcpus[0]);
        assert_eq!(fakes::get("PMC1"), found);
    }
}

#[test]
fn counters_are_not_left_to_the_next_but_one() {
    let (vcpus, between) = (vcpus(2), vm(5, Presentation::Xics)[0]);
    for vcpu in &vcpus {
        load(vcpu);
        assert!(demand(vcpu, 3));
    }
    fakes::set("PMC1", 7);
    // It has no monitor, so what it leaves of that is not its own.
    load(between);
    load(vcpus[0]);
    assert_eq!(fakes::get("PMC1"), 0);
}

#[test]
fn counters_of_a_life_do_not_count_in_the_next() {
    let vcpus = vcpus(1);
    load(vcpus[0]);
    assert!(demand(vcpus[0], 3));
    fakes::set("MMCR0", 0);
    crate::vcpu::facility::reset(vcpus[0]);
    assert_eq!(fakes::get("HFSCR") & hfscr::PM, 0, "it has not asked");
    assert_eq!(fakes::get("MMCR0"), FROZEN);
    // Who never had the monitor has nothing to freeze.
    fakes::take_log();
    crate::vcpu::facility::reset(vcpus[0]);
    assert!(!writes(&fakes::take_log()).contains(&"MMCR0"));
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

/// The groups of registers that a guest with all facilities has.
fn all_registers() -> impl Iterator<Item = &'static str> {
    let transactions = if demand::is_enforced() { &[] } else { Transactions::REGISTERS };
    let groups = [
        Common::REGISTERS,
        Newer::REGISTERS,
        Emulated::REGISTERS,
        Monitor::REGISTERS,
        NewerMonitor::REGISTERS,
        Branches::REGISTERS,
        transactions,
    ];
    groups.into_iter().flatten().map(|(_, name)| *name)
}

/// What a guest finds in a register of this name, and under which it is written.
fn names(register: &'static str) -> [&'static str; 2] {
    if register == "RunLatch" { ["CTRL", "CTRLW"] } else { [register; 2] }
}

/// What the guest would find in each register now.
fn found() -> Vec<(&'static str, u64)> {
    // The two are one.
    fakes::set("CTRL", fakes::get("CTRLW") & 1);
    all_registers().map(|register| (register, fakes::get(names(register)[0]))).collect()
}

#[test]
fn every_register_is_the_vcpus_own_and_begins_as_after_a_reset() {
    every_register_is_the_vcpus_own(true);
}

#[test]
fn every_register_is_the_vcpus_own_where_nothing_is_kept_from_guests() {
    every_register_is_the_vcpus_own(false);
}

/// `enforced`: the CPU minds HFSCR, and a guest has to ask.
fn every_register_is_the_vcpus_own(enforced: bool) {
    let vcpus = [vcpus(1)[0], vm(5, Presentation::Xics)[0]];
    set_enforced(enforced);
    vcpus.iter().for_each(|vcpu| crate::vcpu::facility::reset(vcpu));
    let facilities = |vcpu| assert!(!enforced || [3, 7].into_iter().all(|number| demand(vcpu, number)));
    load(vcpus[1]);
    facilities(vcpus[1]);
    let reset_state = found();
    load(vcpus[0]);
    facilities(vcpus[0]);
    for (value, register) in (0x1000..).zip(all_registers()) {
        for name in names(register) {
            fakes::set(name, 2 * value);
        }
    }
    let mine = found();
    assert!(mine.iter().zip(&reset_state).all(|(mine, other)| mine.1 != other.1));
    load(vcpus[1]);
    assert_eq!(found(), reset_state, "nothing of another vCPU's");
    load(vcpus[0]);
    // The hypervisor's choice, which no guest changes.
    let but_key = |all: Vec<_>| all.into_iter().filter(|(name, _)| *name != "HASHPKEYR").collect::<Vec<_>>();
    assert_eq!(but_key(found()), but_key(mine), "its own");
    crate::vcpu::facility::reset(vcpus[0]);
    facilities(vcpus[0]);
    assert_eq!(found(), reset_state, "nothing of the life before");
}

#[test]
fn what_a_cpu_does_not_have_is_not_accessed() {
    fakes::reset();
    assert_eq!(Newer::find(), 0);
    fakes::set("has DEXCR", 1);
    let present = Newer::find();
    assert_eq!(present, 1 << 2);
    let mut registers = Newer { tidr: 1, ..Newer::default() };
    registers.save_some(present);
    // SAFETY: nobody runs here.
    unsafe { registers.load_some(None, present) };
    assert_eq!(fakes::take_log(), [Access::Read("DEXCR"), Access::Write("DEXCR", 0)]);
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
        vcpu.vm.prepare(0, GuestRam::default(), None, BootState::default());
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
    vm.prepare(0, GuestRam::default(), None, BootState::default());
    assert_eq!(vm.lpcr(), GUEST_LPCR, "a life begins anew");
}

#[test]
fn a_vcpu_that_is_off_wants_no_turn_for_its_decrementer() {
    let pinned = vcpus(1)[0];
    let vcpu = &*Box::leak(Box::new(Vcpu::new(pinned.vm, 0, cpu::this(), Some(Thread::new(0, 0)))));
    pinned.vm.prepare(0, GuestRam::default(), None, BootState::default());
    fakes::set("TB", 1000);
    load(vcpu);
    fakes::set("DEC", 50);
    assert_eq!(Power::put(vcpu, vcpu.thread.as_ref().expect("it is a thread")), None, "its start waits");
    assert!(vcpu.vm.processors.take_start(0).is_some());
    assert_eq!(Power::put(vcpu, vcpu.thread.as_ref().expect("it is a thread")), Some(1050));
}
