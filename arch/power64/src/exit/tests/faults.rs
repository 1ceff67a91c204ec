// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Instructions and accesses that a guest's CPU does not carry out: what is done for the guest, and which interrupt it gets.

use super::*;
use crate::cpu::regs::hfscr;

#[test]
fn what_the_cpu_does_not_know_is_a_program_interrupt() {
    let (_, mut frame) = resident_vcpu();
    fakes::set("LPCR", lpcr::ILE | lpcr::AIL_3);
    fakes::set("HSRR0", 0xc000_0000_0000_1000);
    let on = msr::IR | msr::DR;
    fakes::set("HSRR1", msr::SF | msr::EE | msr::PR | msr::ME | msr::FP | on | msr::LE);
    frame.vector = vector::EMULATION_ASSISTANCE;
    assert_eq!(full(&mut frame, Code::FULL), Entry::Some);
    assert_eq!(frame.pc, 0xc000_0000_0000_4700);
    assert_eq!(frame.msr, msr::SF | msr::ME | on | msr::LE);
    assert_eq!(fakes::get("SRR0"), 0xc000_0000_0000_1000);
    assert_eq!(fakes::get("SRR1") >> 19 & 1, 1);
    // Without relocation, at the vector itself.
    fakes::set("HSRR1", msr::SF | msr::ME);
    assert_eq!(full(&mut frame, Code::FULL), Entry::Some);
    assert_eq!((frame.pc, frame.msr), (0x700, msr::SF | msr::ME | msr::LE));
}

#[test]
fn a_facility_on_demand_is_light() {
    let (_, mut frame) = resident_vcpu();
    fakes::set("HFSCR", 7 << 56);
    assert_eq!(entry::light(&mut frame, vector::HYPERVISOR_FACILITY), 0);
    assert!(fakes::take_log().contains(&Access::Write("EBBHR", 0)));
    fakes::set("HFSCR", 10 << 56);
    assert_eq!(
        entry::light(&mut frame, vector::HYPERVISOR_FACILITY),
        Code::FULL,
        "doorbells are carried out there"
    );
}

#[test]
fn transactions_are_no_instructions() {
    let (_, mut frame) = resident_vcpu();
    fakes::set("HFSCR", 5 << hfscr::CAUSE_SHIFT);
    fakes::set("HSRR0", 0x2000);
    fakes::set("HSRR1", msr::SF | msr::TM);
    frame.vector = vector::HYPERVISOR_FACILITY;
    assert_eq!(entry::light(&mut frame, vector::HYPERVISOR_FACILITY), Code::FULL);
    assert_eq!(full(&mut frame, Code::FULL), Entry::Some);
    assert_eq!((frame.pc, fakes::get("SRR0"), fakes::get("SRR1") >> 19 & 1), (0x700, 0x2000, 1));
    assert!(!fakes::take_log().iter().any(|access| matches!(access, Access::Write("HFSCR", _))));
}

/// Of a CPU that leaves them to the hypervisor, and whatever else it leaves to it.
#[test]
fn a_soft_patch_is_the_guests_program_interrupt() {
    let (_, mut frame) = resident_vcpu();
    fakes::set("HSRR0", 0x2004);
    fakes::set("HSRR1", msr::SF);
    frame.vector = vector::SOFT_PATCH;
    assert_eq!(entry::light(&mut frame, vector::SOFT_PATCH), Code::FULL);
    assert_eq!(full(&mut frame, Code::FULL), Entry::Some);
    assert_eq!((frame.pc, fakes::get("SRR0"), fakes::get("SRR1") >> 19 & 1), (0x700, 0x2000, 1));
}

#[test]
fn an_access_to_nothing_is_a_data_storage_interrupt() {
    let (_, mut frame) = resident_vcpu();
    fakes::set("HSRR0", 0x100);
    fakes::set("HSRR1", msr::SF | msr::LE);
    fakes::set("HDSISR", 1 << 30 | 1 << 25);
    fakes::set("HDAR", 0x8000_0008);
    fakes::set("ASDR", 0x8000_0000);
    frame.vector = vector::HYPERVISOR_DATA_STORAGE;
    assert_eq!(entry::light(&mut frame, vector::HYPERVISOR_DATA_STORAGE), Code::FULL);
    assert_eq!(full(&mut frame, Code::FULL), Entry::Some);
    assert_eq!(frame.pc, vector::DATA_STORAGE.into());
    assert_eq!((fakes::get("DAR"), fakes::get("SRR0")), (0x8000_0008, 0x100));
    assert_ne!(fakes::get("DSISR") & 1 << 25, 0, "it was a store");
}

#[test]
fn a_prefixed_instruction_is_named_as_one() {
    const PREFIXED: u64 = 1 << 29;
    let (_, mut frame) = resident_vcpu();
    for vector in [
        vector::EMULATION_ASSISTANCE,
        vector::HYPERVISOR_DATA_STORAGE,
        vector::HYPERVISOR_INSTRUCTION_STORAGE,
        vector::HYPERVISOR_FACILITY,
    ] {
        for prefixed in [PREFIXED, 0] {
            fakes::set("HSRR0", 0x2000);
            fakes::set("HSRR1", msr::SF | prefixed);
            frame.vector = vector;
            assert_eq!(full(&mut frame, Code::FULL), Entry::Some);
            assert_eq!(fakes::get("SRR1") & PREFIXED, prefixed, "{vector:#x}");
            assert_eq!(frame.msr & PREFIXED, 0, "no state of the machine");
        }
    }
    // Not of what has nothing to do with the instruction.
    fakes::set("SRR1", msr::SF | PREFIXED);
    frame.vector = vector::SYSTEM_RESET;
    assert_eq!(full(&mut frame, Code::FULL), Entry::Some);
    assert_eq!(fakes::get("SRR1") & PREFIXED, 0);
}

/// Executes an instruction of the guest that its facilities do not have: that of doorbells to threads of the core.
fn execute(vcpu: &Vcpu, frame: &mut Frame, instruction: u32) -> u64 {
    let pc = PAGE;
    assert!(vcpu.vm.write(pc, &instruction.to_le_bytes()));
    fakes::set("HFSCR", hfscr::MSGP | 10 << hfscr::CAUSE_SHIFT);
    fakes::set("HSRR0", pc);
    fakes::set("HSRR1", msr::SF | msr::LE);
    frame.vector = vector::HYPERVISOR_FACILITY;
    let _ = frame.entry();
    let loads = instruction >> 1 & 0x3ff == 339 && instruction >> 21 & 31 > 12;
    let entry = full(frame, Code::FULL);
    assert_eq!(entry == Entry::All, loads, "what is not changed stays in the CPU");
    frame.pc.wrapping_sub(pc)
}

#[test]
fn doorbells_to_threads_are_the_vcpus_own() {
    const NEXT: u64 = 4;
    const ILLEGAL: u64 = 0x700u64.wrapping_sub(PAGE);
    const DOORBELL: u64 = 5 << 27;
    let on = |operation: u32, register: u32| 31 << 26 | register << 11 | operation << 1;
    let spr = |operation: u32, register: u32, number: u32| {
        31 << 26 | register << 21 | (number & 31) << 16 | (number >> 5) << 11 | operation << 1
    };
    let (msgsndp, msgclrp) = (on(142, 7), on(174, 7));
    let (mfspr, mtspr) = (339, 467);
    let (vcpu, mut frame) = resident_vcpu();
    begin(vcpu.vm);
    let dpdes = || fakes::get("DPDES");
    // Of another type, and to another thread: nobody's.
    for message in [0, 4 << 27, DOORBELL | 1, DOORBELL | 0x40] {
        frame.set_gpr(7, message);
        assert_eq!((execute(vcpu, &mut frame, msgsndp), dpdes()), (NEXT, 0), "{message:#x}");
    }
    frame.set_gpr(7, DOORBELL | 1 << 40);
    assert_eq!((execute(vcpu, &mut frame, msgsndp), dpdes()), (NEXT, 1));
    assert_eq!(execute(vcpu, &mut frame, spr(mfspr, 9, 176)), NEXT);
    assert_eq!(frame.gpr(9), 1);
    assert_eq!((execute(vcpu, &mut frame, spr(mfspr, 20, 176)), frame.gpr(20)), (NEXT, 1));
    frame.set_gpr(7, DOORBELL | 1);
    assert_eq!((execute(vcpu, &mut frame, msgclrp), dpdes()), (NEXT, 1), "another thread's");
    frame.set_gpr(7, DOORBELL);
    assert_eq!((execute(vcpu, &mut frame, msgclrp), dpdes()), (NEXT, 0));
    for (value, rings) in [(3, 1), (2, 0), (1, 1), (0, 0)] {
        frame.set_gpr(31, value);
        assert_eq!((execute(vcpu, &mut frame, spr(mtspr, 31, 176)), dpdes()), (NEXT, rings));
    }
    // The neighbours' doorbells are not shown.
    fakes::set("DPDES", 6);
    frame.set_gpr(9, 77);
    assert_eq!((execute(vcpu, &mut frame, spr(mfspr, 9, 176)), frame.gpr(9)), (NEXT, 0));
    frame.set_gpr(9, 77);
    assert_eq!((execute(vcpu, &mut frame, spr(mfspr, 9, 446)), frame.gpr(9)), (NEXT, 0), "the only thread");
    for other in
        [spr(mfspr, 9, 177), spr(mtspr, 9, 446), spr(mfspr, 9, 190), on(143, 7), on(142, 7) ^ 1 << 31]
    {
        assert_eq!(execute(vcpu, &mut frame, other), ILLEGAL, "{other:#x}");
    }
}
