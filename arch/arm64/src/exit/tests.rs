// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The light tier on the host: what each exit does, and every register it touches, against fakes.

mod counted;
mod flash;
mod gicv2;
mod lives;
mod machine;
mod messages;
mod pool;

use std::boxed::Box;
use std::vec;
use std::vec::Vec;

use turnstile_vm::attention::{Posted, Reasons};

use super::light::*;
use super::table::*;
use super::trapped::Indexed;
use super::*;
use crate::cpu::regs::fakes::{self, Access};
use crate::cpu::{class, regs};
use crate::irq::{Gic, Gicv3};
use crate::vcpu::frame::Frame;
use crate::vm::Vcpu;

pub(crate) use machine::{cpu_area, machine, numbered_vm_of, vm_of};

pub(super) fn exit(frame: &mut Frame, class: u64, iss: u64) -> (u32, Vec<Access>) {
    exit_by::<Gicv3>(frame, class, iss)
}

fn exit_by<G: Gic>(frame: &mut Frame, class: u64, iss: u64) -> (u32, Vec<Access>) {
    fakes::set("ESR_EL2", class << 26 | 1 << 25 | iss);
    // As `vectors.S` does it.
    let esr = regs::ESR_EL2.read();
    let code = whole::handlers::<G, Indexed>()[class::of(esr) as usize](frame, esr);
    (code, fakes::take_log())
}

/// ISS of a trapped MRS (`read`) or MSR.
fn system_register(op0: u64, op1: u64, crn: u64, crm: u64, op2: u64, rt: u64, read: bool) -> u64 {
    op0 << 20 | op2 << 17 | op1 << 14 | crn << 10 | rt << 5 | crm << 1 | u64::from(read)
}

const READ_ESR: Access = Access::Read("ESR_EL2");
/// Moving past a trapped instruction.
const SKIP: [Access; 2] = [Access::Read("ELR_EL2"), Access::Write("ELR_EL2", 0x4000_0004)];

#[test]
fn null_hypercall_touches_nothing_but_the_syndrome() {
    let (_, mut frame) = machine(1, false);
    frame.set(0, 0x8400_0000);
    assert_eq!(exit(&mut frame, class::HVC64, 0), (0, vec![READ_ESR]));
    assert_eq!(frame.get(0), 0x1_0001, "PSCI 1.1");
}

#[test]
fn id_register_comes_from_memory() {
    let (_, mut frame) = machine(1, false);
    let iss = system_register(3, 0, 0, 6, 0, 5, true);
    assert_eq!(exit(&mut frame, class::SYSTEM_REGISTER, iss), (0, vec![READ_ESR, SKIP[0], SKIP[1]]));
    assert_eq!(frame.get(5), 0x1034_0000, "ID_AA64ISAR0_EL1 without TME");
}

#[test]
fn pmu_selector_is_kept_in_memory() {
    let (_, mut frame) = machine(1, true);
    frame.set(3, 31);
    let write = system_register(3, 3, 9, 12, 5, 3, false);
    assert_eq!(exit(&mut frame, class::SYSTEM_REGISTER, write).1, [READ_ESR, SKIP[0], SKIP[1]]);
    fakes::set("ELR_EL2", 0x4000_0000);
    let read = system_register(3, 3, 9, 12, 5, 7, true);
    assert_eq!(exit(&mut frame, class::SYSTEM_REGISTER, read), (0, vec![READ_ESR, SKIP[0], SKIP[1]]));
    assert_eq!(frame.get(7), 31);
}

#[test]
fn without_a_pmu_its_registers_go_to_the_full_tier() {
    let (_, mut frame) = machine(1, false);
    let read = system_register(3, 3, 9, 12, 5, 7, true);
    assert_eq!(exit(&mut frame, class::SYSTEM_REGISTER, read), (Code::SYNC, vec![READ_ESR]));
}

#[test]
fn a_read_is_light_whatever_register_it_goes_to() {
    for rt in 0..=31 {
        let (_, mut frame) = machine(1, false);
        let iss = system_register(3, 0, 0, 6, 0, rt, true);
        assert_eq!(
            exit(&mut frame, class::SYSTEM_REGISTER, iss),
            (0, vec![READ_ESR, SKIP[0], SKIP[1]]),
            "x{rt}"
        );
        let expected = if rt == 31 { 0 } else { 0x1034_0000 };
        assert_eq!(frame.get(rt as usize), expected, "x{rt}");
    }
}

#[test]
fn what_a_light_read_leaves_is_wide_for_registers_that_are_stored_then() {
    // GICD_ISENABLER1, read to x18, x30, and to x19, which only the full tier has.
    for (rt, code) in [(18, 0), (30, 0), (19, Code::SYNC)] {
        let (_, mut frame) = machine(2, false);
        fakes::set("HPFAR_EL2", 0x0800_0000 >> 8);
        fakes::set("FAR_EL2", 0x104);
        let load = 1 << 24 | 2 << 22 | rt << 16 | 0x07;
        assert_eq!(exit(&mut frame, class::DATA_ABORT, load).0, code, "x{rt}");
    }
}

#[test]
fn a_read_beyond_all_that_there_is_ends_in_an_abort_without_the_full_tier() {
    let load = 1 << 24 | 2 << 22 | 5 << 16 | 0x07;
    let at = |address: u64, iss| {
        let (_, mut frame) = machine(2, false);
        fakes::set("HPFAR_EL2", address >> 8);
        fakes::set("FAR_EL2", 0xffff_8000_0000_0104);
        fakes::set("SPSR_EL2", 5);
        fakes::set("VBAR_EL12", 0xffff_8000_0008_0000);
        exit(&mut frame, class::DATA_ABORT, iss).0
    };
    let (vm, _) = machine(2, false);
    assert_eq!(at(vm.beyond, load), 0);
    assert_eq!(fakes::get("ELR_EL2"), 0xffff_8000_0008_0200);
    assert_eq!(fakes::get("ESR_EL12"), 0x25 << 26 | 1 << 25 | 0x10);
    assert_eq!(fakes::get("FAR_EL12"), 0xffff_8000_0000_0104);
    // Below, and without a valid syndrome, more has to be looked at.
    assert_eq!(at(vm.beyond - 0x1000, load), Code::SYNC);
    assert_eq!(at(vm.beyond, load & !(1 << 24)), Code::SYNC);
    // Redistributors that lie behind the memory are not nothing.
    assert!(vm.gicr.regions().all(|region| vm.beyond >= region.end()));
}

#[test]
fn an_sgi_that_comes_again_is_one_read_and_one_write() {
    let (vm, mut frame) = machine(2, false);
    let me = vm.vcpus()[0];
    let send = system_register(3, 0, 12, 11, 5, 9, false);
    frame.set(9, 4 << 24 | 1);
    let (lr, value) = ("ICH_LR0_EL2", 0b01 << 62 | 1 << 60 | 4);
    assert_eq!(exit(&mut frame, class::SYSTEM_REGISTER, send).0, 0);
    // While the list register is in use, more is learned of it than that.
    fakes::set(lr, value);
    fakes::set("ICH_ELRSR_EL2", 0xe);
    let (_, log) = exit(&mut frame, class::SYSTEM_REGISTER, send);
    assert!(log.contains(&Access::Read(lr)), "{log:?}");
    // The guest has handled it: once for itself, once as what another vCPU has posted.
    fakes::set(lr, 0);
    fakes::set("ICH_ELRSR_EL2", 0xf);
    let again = [Access::Read("ICH_ELRSR_EL2"), Access::Write(lr, value)];
    let (code, log) = exit(&mut frame, class::SYSTEM_REGISTER, send);
    assert_eq!((code, log.iter().filter(|a| is_gic(a)).copied().collect()), (0, again.to_vec()));
    assert_eq!(me.attention.post(Reasons::sgi(4)), Posted::Kick(me.cpu.kick_token()));
    fakes::set("ICC_IAR1_EL1", 0);
    assert_eq!(turnstile_light_irq(&mut frame), 0);
    assert_eq!(fakes::take_log()[3..], again);
}

#[test]
fn a_change_of_an_sgis_priority_or_group_is_in_the_next_list_register() {
    let (vm, mut frame) = machine(2, false);
    // SAFETY: the test's only thread.
    let owned = unsafe { vm.vcpus()[0].owned() };
    let send = system_register(3, 0, 12, 11, 5, 9, false);
    frame.set(9, 4 << 24 | 1);
    assert_eq!(exit(&mut frame, class::SYSTEM_REGISTER, send).0, 0);
    fakes::set("ICH_ELRSR_EL2", 0xf);
    vm.with_gic::<Gicv3, _>(|cx| owned.gic.redist_write(cx, 0, 0x1_0404, 1, 0x80));
    for _ in 0..2 {
        // Once by the planner, and again.
        assert_eq!(exit(&mut frame, class::SYSTEM_REGISTER, send).0, 0);
    }
    assert_eq!(fakes::get("ICH_LR0_EL2"), 0b01 << 62 | 1 << 60 | 0x80 << 48 | 4);
    // In Group 0 this register does not reach it.
    vm.with_gic::<Gicv3, _>(|cx| owned.gic.redist_write(cx, 0, 0x1_0080, 4, !0 << 5));
    fakes::set("ICH_LR0_EL2", 0);
    assert_eq!(exit(&mut frame, class::SYSTEM_REGISTER, send).0, 0);
    assert_eq!(fakes::get("ICH_LR0_EL2"), 0);
}

#[test]
fn an_sgi_is_light_whatever_register_it_comes_from() {
    for rt in 0..=30 {
        let (vm, mut frame) = machine(2, false);
        frame.set(rt, 1 << 1 | 5 << 24);
        let iss = system_register(3, 0, 12, 11, 5, rt as u64, false);
        assert_eq!(exit(&mut frame, class::SYSTEM_REGISTER, iss).0, 0, "x{rt}");
        assert_eq!(vm.vcpus()[1].attention.take(), Reasons::sgi(5), "x{rt}");
    }
}

#[test]
fn self_sgi_is_one_list_register_write() {
    let (_, mut frame) = machine(1, false);
    frame.set(2, 1);
    let iss = system_register(3, 0, 12, 11, 5, 2, false);
    let (code, log) = exit(&mut frame, class::SYSTEM_REGISTER, iss);
    let gic: Vec<_> = log.iter().filter(|a| is_gic(a)).collect();
    assert_eq!(code, 0);
    assert!(matches!(gic[..], [Access::Write("ICH_LR0_EL2", value)] if value >> 62 == 1), "{gic:?}");
}

#[test]
fn sgi_to_another_vcpu_posts_and_kicks_once() {
    let (vm, mut frame) = machine(2, false);
    frame.set(2, 1 << 1 | 5 << 24);
    let iss = system_register(3, 0, 12, 11, 5, 2, false);
    let (code, log) = exit(&mut frame, class::SYSTEM_REGISTER, iss);
    assert_eq!(code, 0);
    let gic: Vec<_> = log.iter().filter(|a| is_gic(a)).collect();
    assert_eq!(gic, [&Access::Write("ICC_SGI1R_EL1", 1 << 1)], "SGI 0 to the physical CPU with Aff0 = 1");
    let (_, log) = exit(&mut frame, class::SYSTEM_REGISTER, iss);
    assert!(!log.iter().any(is_gic), "the target has not looked yet: no second kick");
    assert_eq!(vm.vcpus()[1].attention.take(), Reasons::sgi(5));
}

#[test]
fn an_sgi_finds_its_target_in_the_senders_group_and_in_others() {
    let (vm, mut frame) = machine(17, false);
    let iss = system_register(3, 0, 12, 11, 5, 2, false);
    // Aff0 = 15; and 16, by the range selector.
    for (named, target) in [(1 << 15, 15), (1 << 44 | 1, 16)] {
        frame.set(2, named | 5 << 24);
        assert_eq!(exit(&mut frame, class::SYSTEM_REGISTER, iss).0, 0);
        let posted: Vec<_> = vm.vcpus().iter().map(|vcpu| vcpu.attention.take()).collect();
        let reached = posted.iter().position(|reasons| *reasons == Reasons::sgi(5));
        assert_eq!((reached, posted.iter().filter(|reasons| !reasons.is_empty()).count()), (Some(target), 1));
    }
}

#[test]
fn an_sgi_that_reaches_its_sender_alone_is_presented_there() {
    // Beside the sender a vCPU that does not exist, and a bit that means nothing.
    for more in [1 << 2, 1 << 63] {
        let (vm, mut frame) = machine(2, false);
        frame.set(2, more | 1 | 5 << 24);
        let iss = system_register(3, 0, 12, 11, 5, 2, false);
        let (code, log) = exit(&mut frame, class::SYSTEM_REGISTER, iss);
        let gic: Vec<_> = log.iter().filter(|a| is_gic(a)).collect();
        assert_eq!(code, 0);
        assert!(matches!(gic[..], [Access::Write("ICH_LR0_EL2", value)] if value >> 62 == 1), "{gic:?}");
        assert!(vm.vcpus().iter().all(|vcpu| vcpu.attention.take().is_empty()));
    }
}

#[test]
fn distributor_read_touches_no_interrupt_controller() {
    let (_, mut frame) = machine(1, false);
    fakes::set("HPFAR_EL2", 0x0800_0000 >> 8);
    fakes::set("FAR_EL2", 0xffff_0000_0000_0004);
    // A 32-bit load of GICD_TYPER into x9: ISV, SAS = 2, SRT = 9, translation fault at level 3.
    let (code, log) = exit(&mut frame, class::DATA_ABORT, 1 << 24 | 2 << 22 | 9 << 16 | 0x07);
    assert_eq!(code, 0);
    assert_eq!(log.len(), 5, "ESR, HPFAR, FAR, ELR twice: {log:?}");
    assert!(!log.iter().any(is_gic), "{log:?}");
    assert_eq!(frame.get(9) & 0x1f, 3, "GICD_TYPER.ITLinesNumber for 96 SPIs");
}

/// Linux reads it after it has masked an interrupt.
#[test]
fn a_read_of_the_distributors_control_is_light_but_while_a_change_is_in_progress() {
    let (vm, mut frame) = machine(2, false);
    fakes::set("HPFAR_EL2", 0x0800_0000 >> 8);
    fakes::set("FAR_EL2", 0);
    // A 32-bit load into x9, as above.
    let word = 1 << 24 | 2 << 22 | 9 << 16 | 0x07;
    let (code, log) = exit(&mut frame, class::DATA_ABORT, word);
    assert_eq!((code, log.len(), frame.get(9)), (0, 5, 1 << 6 | 1 << 4 | 3));
    // SAFETY: the test has one thread.
    let other = unsafe { vm.vcpus()[1].owned() };
    vm.with_gic::<Gicv3, _>(|cx| other.gic.dist_write(cx, 0, 4, 2));
    assert_eq!(exit(&mut frame, class::DATA_ABORT, word).0, Code::SYNC);
}

#[test]
fn second_syndrome_field_changes_nothing() {
    let (_, mut frame) = machine(1, false);
    frame.set(0, 0x8400_0000);
    let iss2 = 0xff_ffff << 32;
    assert_eq!(class::of(class::HVC64 << 26 | iss2), class::HVC64);
    assert_eq!(exit(&mut frame, class::HVC64, iss2).0, 0);
    assert_eq!(frame.get(0), 0x1_0001);
}

#[test]
fn attention_is_seen_before_entry() {
    let (vm, mut frame) = machine(1, false);
    vm.vcpus()[0].attention.raise(Reasons::STOP);
    frame.set(0, 0x8400_0000);
    let (code, _) = exit(&mut frame, class::HVC64, 0);
    assert_ne!(code, 0);
    assert_eq!(code & Code::FULL, 0, "the exit itself is finished");
}

#[test]
fn a_life_that_begins_looks_at_the_run_queue_first() {
    let (vm, mut frame) = machine(1, false);
    let thread = crate::vm::Thread::new(0, 4096, None);
    let vcpu: &'static Vcpu = Box::leak(Box::new(Vcpu::new(vm, 0, vm.vcpus()[0].cpu, Some(thread))));
    vcpu.attention.load(vcpu.cpu.kick_token());
    vcpu.attention.raise(Reasons::RESCHEDULE);
    wait::wait_for_start::<Gicv3>(&mut frame, vcpu, crate::vm::monitor());
    assert_eq!(vcpu.attention.take(), Reasons::RESCHEDULE, "what was asked for before the start");
}

#[test]
fn no_posted_sgi_is_taken_for_a_code() {
    for posted in [1 << 15, 1 << 14, 1 << 15 | 1 << 12, 1 << 15 | 1 << 13, 0xffff] {
        let (vm, mut frame) = machine(1, false);
        (0..16).filter(|intid| posted >> intid & 1 != 0).for_each(|intid| {
            vm.vcpus()[0].attention.raise(Reasons::sgi(intid));
        });
        frame.set(0, 0x8400_0000);
        let (code, _) = exit(&mut frame, class::HVC64, 0);
        assert_ne!(code, 0, "{posted:#x}");
        assert_eq!(
            code & 0xff00_0000,
            0,
            "{posted:#x}: the exit itself is finished, and what is left is in the word"
        );
        assert_eq!(vm.vcpus()[0].attention.take(), Reasons::from_bits_retain(code), "{posted:#x}");
    }
}

#[test]
fn timer_interrupt_is_acknowledged_and_one_list_register() {
    let (_, mut frame) = machine(1, false);
    fakes::set("ICC_IAR1_EL1", 27);
    let code = whole::interrupt::<Gicv3>(&mut frame);
    let log = fakes::take_log();
    assert_eq!(code, 0);
    assert_eq!(log[..2], [Access::Read("ICC_IAR1_EL1"), Access::Write("ICC_EOIR1_EL1", 27)]);
    // Pending, hardware-backed by the physical PPI; no deactivation: that is the guest's EOI.
    let lr = 0b01 << 62 | 1 << 61 | 1 << 60 | 27 << 32 | 27;
    assert_eq!(log[2..], [Access::Write("ICH_LR0_EL2", lr)]);
}

#[test]
fn kick_delivers_what_was_posted() {
    let (vm, mut frame) = machine(2, false);
    let me = vm.vcpus()[0];
    assert_eq!(me.attention.post(Reasons::sgi(3)), Posted::Kick(me.cpu.kick_token()));
    fakes::set("ICC_IAR1_EL1", 0);
    let code = whole::interrupt::<Gicv3>(&mut frame);
    let log = fakes::take_log();
    assert_eq!(code, 0, "everything was done in the light tier");
    assert!(log.contains(&Access::Write("ICH_LR0_EL2", 0b01 << 62 | 1 << 60 | 3)), "{log:?}");
    assert_eq!(log.iter().filter(|a| is_gic(a)).count(), 4, "IAR, EOIR, DIR, one list register: {log:?}");
}

#[test]
fn unknown_calls_and_classes_are_left_with_nothing_done() {
    let (_, mut frame) = machine(1, false);
    frame.set(0, 0x8400_0008);
    assert_eq!(exit(&mut frame, class::HVC64, 0), (Code::SYNC, vec![READ_ESR]), "SYSTEM_OFF");
    for other in (0..64).filter(|c| ![class::HVC64, class::SYSTEM_REGISTER, class::DATA_ABORT].contains(c)) {
        assert_eq!(exit(&mut frame, other, 0), (Code::SYNC, vec![READ_ESR]), "class {other:#x}");
    }
}

fn is_gic(access: &Access) -> bool {
    let (Access::Read(name) | Access::Write(name, _)) = access;
    name.starts_with("ICC_") || name.starts_with("ICH_")
}
