// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Exits against a recorder: what they answer, and which registers they touch.

use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;
use std::boxed::Box;
use std::vec::Vec;

use turnstile_arch_common::monitor::CommonMonitor;
use turnstile_papr::Memory;
use turnstile_papr::code::Code as Return;
use turnstile_papr::hcall::Hcall;
use turnstile_papr::processors::Start;
use turnstile_papr::vpa::{Areas, offset};
use turnstile_vm::lifecycle::{Phase, Stop};

use super::hcall::TABLE;
use super::*;
use crate::cpu;
use crate::cpu::regs::fakes::{self, Access};
use crate::cpu::regs::{hfscr, lpcr, msr};
use crate::irq::Presentation;
use crate::memory::GuestRam;
use crate::memory::partition;
use crate::vcpu::facility::tests::{cores, vcpus};
use crate::vcpu::interrupts::wakes;
use crate::vm::Vm;
use crate::vm::monitor::{Monitor, monitor};
use crate::vm::{BootState, GUEST_LPCR};

const CONFER: u64 = 0xe4;
const CEDE: u64 = 0xe0;
const FUNCTION: u64 = -2i64 as u64;

/// A vCPU that is resident, and the frame of its stack.
fn resident_vcpu() -> (&'static Vcpu, Frame) {
    let vcpu = vcpus(2)[0];
    crate::vcpu::facility::load(vcpu);
    fakes::take_log();
    (vcpu, wait::frame(vcpu))
}

fn call(frame: &mut Frame, number: u64, argument: u64) -> Answer {
    TABLE.get(number)(frame, Arguments([argument, 0, 0, 0, 0, 0, 0]))
}

#[test]
fn a_call_that_only_answers_touches_no_register() {
    let (_, mut frame) = resident_vcpu();
    assert_eq!(call(&mut frame, CONFER, u64::MAX), Answer::SUCCESS);
    assert_eq!(call(&mut frame, CONFER, 2).code, -4i64 as u64, "there is no such vCPU");
    assert_eq!(call(&mut frame, 0x4, 0), Answer::code(FUNCTION));
    assert_eq!(frame.why, 0);
    assert_eq!(fakes::take_log(), []);
}

#[test]
fn every_number_is_answered_or_left() {
    let (_, mut frame) = resident_vcpu();
    for number in (0..0x480).step_by(4) {
        frame.set_gpr(3, number);
        frame.why = 0;
        let answer = call(&mut frame, number, 0x1111);
        if frame.why == Code::FULL {
            assert_eq!((answer.code, frame.gpr(4)), (number, 0x1111), "{number:#x}");
        }
    }
}

/// Whatever its VM's interrupts are taken in.
#[test]
fn a_vcpu_begins_in_the_byte_order_of_its_start() {
    let (vcpu, mut frame) = resident_vcpu();
    vcpu.vm.set_lpcr(lpcr::ILE, lpcr::ILE);
    for (little_endian, order) in [(false, 0), (true, msr::LE)] {
        crate::vcpu::switch::reset_vcpu(&mut frame, Start { entry: 0x100, argument: 7, little_endian });
        assert_eq!((frame.pc, frame.gpr(3), frame.msr), (0x100, 7, msr::SF | msr::ME | order));
    }
}

#[test]
fn a_full_exit_finds_the_state_of_either_kind_of_interrupt() {
    let (_, mut frame) = resident_vcpu();
    fakes::set("SRR0", 0x1004);
    fakes::set("SRR1", msr::SF | msr::LE);
    fakes::set("HSRR0", 0x2000);
    fakes::set("HSRR1", msr::SF);
    (frame.ctr, frame.xer) = (1, 1);
    frame.set_gpr(5, 1);
    frame.set_gpr(3, 7);
    frame.vector = vector::CALL;
    frame.why = Code::GIVE_WAY;
    entry::full(&mut frame, Code::GIVE_WAY);
    assert_eq!((frame.pc, frame.msr, frame.why), (0x1004, msr::SF | msr::LE, 0));
    assert_eq!((frame.ctr, frame.xer, frame.gpr(5)), (0, 0, 0), "nothing of the hypervisor's is left");
    assert_eq!(frame.gpr(3), 7, "the answer stays");
    frame.vector = vector::MAINTENANCE;
    entry::full(&mut frame, Code::FULL);
    assert_eq!((frame.pc, frame.msr), (0x2000, msr::SF));
}

#[test]
fn what_the_cpu_does_not_know_is_a_program_interrupt() {
    let (_, mut frame) = resident_vcpu();
    fakes::set("LPCR", lpcr::ILE | lpcr::AIL_3);
    fakes::set("HSRR0", 0xc000_0000_0000_1000);
    let on = msr::IR | msr::DR;
    fakes::set("HSRR1", msr::SF | msr::EE | msr::PR | msr::ME | msr::FP | on | msr::LE);
    frame.vector = vector::EMULATION_ASSISTANCE;
    entry::full(&mut frame, Code::FULL);
    assert_eq!(frame.pc, 0xc000_0000_0000_4700);
    assert_eq!(frame.msr, msr::SF | msr::ME | on | msr::LE);
    assert_eq!(fakes::get("SRR0"), 0xc000_0000_0000_1000);
    assert_eq!(fakes::get("SRR1") >> 19 & 1, 1);
    // Without relocation, at the vector itself.
    fakes::set("HSRR1", msr::SF | msr::ME);
    entry::full(&mut frame, Code::FULL);
    assert_eq!((frame.pc, frame.msr), (0x700, msr::SF | msr::ME | msr::LE));
}

#[test]
fn a_kick_without_a_reason_is_light() {
    let (vcpu, mut frame) = resident_vcpu();
    assert_eq!(entry::light(&mut frame, vector::HYPERVISOR_DOORBELL), 0);
    assert_eq!(fakes::take_log(), []);
    vcpu.attention.raise(Reasons::INBOX);
    assert_eq!(entry::light(&mut frame, vector::HYPERVISOR_DOORBELL), Reasons::INBOX.bits());
}

/// Who hands a vCPU to a run queue rings, and sets no reason: nobody else tells the vCPU that runs there, and without
/// another one that waits there is no tick.
#[test]
fn a_vcpu_that_shares_its_cpu_looks_at_the_queue_when_it_is_rung_for() {
    let (pinned, _) = resident_vcpu();
    let thread = crate::sched::Thread::new(0, 0);
    let vcpu = &*Box::leak(Box::new(Vcpu::new(pinned.vm, 0, cpu::this(), Some(thread))));
    let mut frame = wait::frame(vcpu);
    assert_eq!(
        frame.light.expect("it is a guest's")(&mut frame, vector::HYPERVISOR_DOORBELL),
        Reasons::RESCHEDULE.bits()
    );
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
    entry::full(&mut frame, Code::FULL);
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
    entry::full(&mut frame, Code::FULL);
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
    entry::full(&mut frame, Code::FULL);
    assert_eq!(frame.pc, vector::DATA_STORAGE.into());
    assert_eq!((fakes::get("DAR"), fakes::get("SRR0")), (0x8000_0008, 0x100));
    assert_ne!(fakes::get("DSISR") & 1 << 25, 0, "it was a store");
}

const PAGE: u64 = 4096;

/// Begins a life of the VM in memory of four pages.
fn begin(vm: &Vm) {
    let ram = Box::leak(vec![0u64; PAGE as usize / 2].into_boxed_slice());
    let memory = GuestRam::new(ram.as_ptr() as u64, 4 * PAGE);
    vm.prepare(0, memory, None, BootState { pc: 0x100, r3: 0, little_endian: true });
    vm.lifecycle.start();
    assert!(vm.processors.take_start(0).is_some());
}

/// The same of the resident vCPU's VM, with an area at the third page.
fn begin_with_area(vcpu: &Vcpu) {
    const REGISTER: u64 = 1 << 45;
    begin(vcpu.vm);
    assert!(vcpu.vm.set_word(2 * PAGE + offset::SIZE, 640 << 16));
    let answer = vcpu.owned(|owned| owned.areas.call(REGISTER, 2 * PAGE, vcpu.vm));
    assert_eq!(answer, Return::SUCCESS);
}

fn dispatches(vcpu: &Vcpu) -> Option<u32> {
    vcpu.vm.word(2 * PAGE + offset::YIELD_COUNT)
}

#[test]
fn a_vcpu_that_stops_shares_no_memory_any_more() {
    let (vcpu, _) = resident_vcpu();
    begin_with_area(vcpu);
    vcpu.vm.stop(Stop::PowerOff);
    super::attend::acknowledge_stop(vcpu, monitor());
    assert_eq!(vcpu.owned(|owned| owned.areas), Areas::default());
    assert_eq!(vcpu.vm.lifecycle.phase(), Phase::Stopping(Stop::PowerOff), "the other one has not");
    fakes::take_log();
    super::attend::acknowledge_stop(vcpu.vm.vcpus()[1], monitor());
    assert!(fakes::take_log().contains(&Access::Write("TLBIE_LPID", vcpu.vm.lpid().into())));
}

#[test]
fn the_count_of_dispatches_moves_over_a_wait() {
    let (vcpu, mut frame) = resident_vcpu();
    begin_with_area(vcpu);
    let mut cede = || {
        // It has not yet when the call looks, and has when the vCPU waits.
        fakes::set("DEC", 100);
        frame.why = 0;
        assert_eq!(call(&mut frame, CEDE, 0), Answer::SUCCESS);
        assert_eq!(frame.why, Code::WAIT);
        fakes::set("DEC", 0xffff_fff0);
        frame.vector = vector::CALL;
        entry::full(&mut frame, Code::WAIT);
        dispatches(vcpu)
    };
    assert_eq!([cede(), cede()], [Some(2), Some(4)]);
    vcpu.owned(|owned| owned.areas = Areas::default());
    assert_eq!(cede(), Some(4), "it has no area");
}

#[test]
fn what_is_posted_is_attended_to() {
    let (vcpu, mut frame) = resident_vcpu();
    begin(vcpu.vm);
    vcpu.vm.set_lpcr(lpcr::AIL, lpcr::AIL_3);
    (frame.pc, frame.msr) = (0x1000, msr::SF);
    vcpu.attention.raise(Reasons::REMOTE | Reasons::UNHALT);
    super::attend::settle(&mut frame, vcpu, monitor());
    assert_eq!(fakes::get("LPCR"), GUEST_LPCR | lpcr::ILE | lpcr::AIL_3, "what another vCPU has changed");
    fakes::set("DPDES", 0);
    fakes::set("DEC", 100);
    assert!(wakes(vcpu) && !wakes(vcpu), "it was prodded");
    assert_eq!(frame.pc, 0x1000);
    fakes::set("SRR0", 0);
    vcpu.attention.raise(Reasons::NMI);
    super::attend::settle(&mut frame, vcpu, monitor());
    assert_eq!((frame.pc, fakes::get("SRR0")), (0x100, 0x1000), "a system reset");
    assert!(!vcpu.attention.is_pending());
}

#[test]
fn a_system_reset_ends_a_wait() {
    let (vcpu, mut frame) = resident_vcpu();
    begin(vcpu.vm);
    fakes::set("DEC", 100);
    fakes::set("DPDES", 0);
    fakes::set("SRR0", 0x1000);
    frame.vector = vector::CALL;
    vcpu.attention.raise(Reasons::NMI | Reasons::UNHALT);
    entry::full(&mut frame, Code::WAIT);
    assert_eq!((frame.pc, fakes::get("SRR0")), (0x100, 0x1000));
    assert!(!vcpu.attention.is_pending());
    assert!(wakes(vcpu), "the prod has not ended that wait: it is for the next one");
}

/// The two threads of a core, of which the first one runs, and the frame of one.
fn core_of_two(frame_of: usize) -> (Vec<&'static Vcpu>, Frame) {
    let vcpus = cores(2, 2);
    begin(vcpus[0].vm);
    crate::vcpu::facility::load(vcpus[frame_of]);
    fakes::set("DEC", 100);
    let frame = wait::frame(vcpus[frame_of]);
    (vcpus, frame)
}

/// A doorbell and a prod, by another vCPU.
fn send(to: &Vcpu) {
    to.interrupts.ring();
    to.post(Reasons::REMOTE | Reasons::UNHALT);
}

/// Whether its doorbell rings, and whether it was prodded.
fn found(vcpu: &'static Vcpu) -> (bool, bool) {
    let rings = fakes::get("DPDES") != 0;
    fakes::set("DPDES", 0);
    fakes::set("DEC", 100);
    (rings, wakes(vcpu))
}

const START: Start = Start { entry: 0x100, argument: 0, little_endian: true };

#[test]
fn what_a_vcpu_is_sent_between_its_start_and_its_first_instruction_is_not_lost() {
    let (vcpus, mut frame) = core_of_two(1);
    let vcpu = vcpus[1];
    assert!(vcpu.vm.processors.start(1, START).is_ok());
    send(vcpu);
    super::attend::wait_for_start(&mut frame, vcpu, monitor());
    super::attend::settle(&mut frame, vcpu, monitor());
    assert_eq!(found(vcpu), (true, true));
    // It stops, and is started and sent to before it has looked.
    vcpu.vm.processors.stop(1);
    assert!(vcpu.vm.processors.start(1, START).is_ok());
    send(vcpu);
    super::attend::settle(&mut frame, vcpu, monitor());
    assert!(vcpu.vm.processors.is_on(1));
    assert_eq!(found(vcpu), (true, true));
}

#[test]
fn what_a_vcpu_was_sent_before_it_stopped_is_not_for_its_next_start() {
    use turnstile_papr::rtas::Function;
    let (vcpus, mut frame) = core_of_two(0);
    let vcpu = vcpus[0];
    send(vcpu);
    for (at, word) in (PAGE..).step_by(4).zip([Function::StopSelf.token(), 0, 1]) {
        assert!(vcpu.vm.set_word(at, word));
    }
    super::calls::firmware(&mut frame, vcpu, [PAGE, 0, 0, 0, 0, 0, 0], monitor());
    assert!(!vcpu.vm.processors.is_on(0));
    assert!(vcpu.vm.processors.start(0, START).is_ok());
    super::attend::settle(&mut frame, vcpu, monitor());
    assert!(vcpu.vm.processors.is_on(0));
    assert_eq!(found(vcpu), (false, false));
}

/// Starts the first vCPU when it looks for the second time, with what the decrementer was then.
#[derive(Default)]
struct Starter {
    looks: AtomicU64,
    decrementer: AtomicU64,
}

impl CommonMonitor<Vm> for Starter {
    fn mmio_read(&self, _: &'static Vm, _: u64, _: u8) -> Option<u64> {
        None
    }
    fn mmio_write(&self, _: &'static Vm, _: u64, _: u8, _: u64) -> bool {
        false
    }
    fn interrupt(&self, _: u32) {}
    fn deadline(&self) {}
    fn waiting(&self, vm: &'static Vm) {
        if self.looks.fetch_add(1, Relaxed) == 1 {
            self.decrementer.store(fakes::get("DEC"), Relaxed);
            assert!(vm.processors.start(0, START).is_ok());
        }
    }
    fn stopped(&self, _: &'static Vm, _: Stop) {}
}

impl Monitor for Starter {
    fn terminal_write(&self, _: &'static Vm, _: &[u8]) {}
    fn terminal_read(&self, _: &'static Vm, _: &mut [u8]) -> usize {
        0
    }
    fn clock(&self, _: &'static Vm) -> u64 {
        0
    }
    fn set_clock(&self, _: &'static Vm, _: u64) {}
}

/// It would end each STOP, and give a shared CPU to a vCPU that has nothing to do there.
#[test]
fn the_decrementer_of_a_life_that_has_ended_does_not_ring() {
    const FAR: u64 = 0x7fff_ffff;
    let (vcpu, mut frame) = resident_vcpu();
    begin(vcpu.vm);
    fakes::set("DEC", 0xffff_fff0);
    vcpu.vm.processors.stop(0);
    let starter = Starter::default();
    super::attend::wait_for_start(&mut frame, vcpu, &starter);
    assert_eq!((starter.looks.into_inner(), starter.decrementer.into_inner()), (2, FAR));
    // On a CPU without vCPUs nobody sets it.
    fakes::set("DEC", 0xffff_fff0);
    super::wait::wait_for_interrupt();
    assert_eq!(fakes::get("DEC"), FAR);
}

/// Whoever walks meanwhile finds the entry whole: the partition's own tables are not touched.
#[test]
fn a_process_table_is_registered_by_one_store() {
    const TABLES: u64 = 0x1234_5000;
    let (_, mut frame) = resident_vcpu();
    let vcpu = crate::vcpu::facility::tests::vm(9, Presentation::Xics)[0];
    begin(vcpu.vm);
    crate::vcpu::facility::load(vcpu);
    frame.vcpu = vcpu;
    partition::set(vcpu.vm.lpid(), TABLES, 0);
    fakes::take_log();
    frame.vector = vector::CALL;
    frame.set_gpr(3, Hcall::RegisterProcTbl.number().expect("it is one"));
    frame.set_arguments([0x1d, 0x3000, 0, 0, 0, 0, 0]);
    entry::full(&mut frame, Code::FULL);
    assert_eq!(frame.gpr(3), 0);
    assert_eq!(partition::get(vcpu.vm.lpid()), [TABLES, vcpu.vm.process_table()]);
    assert_eq!(vcpu.vm.process_table(), 1 << 63 | 0x3000);
    assert!(fakes::take_log().contains(&Access::Write("TLBIE_LPID", vcpu.vm.lpid().into())));
    // Whoever has a life of its own has tables of its own in it.
    let other = crate::vcpu::facility::tests::vm(10, Presentation::Xics)[0].vm;
    other.prepare(TABLES, GuestRam::default(), None, BootState::default());
    assert_eq!(partition::get(other.lpid()), [TABLES, 1 << 63]);
    other.end();
    assert_eq!(partition::get(other.lpid()), [0, 0]);
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
            entry::full(&mut frame, Code::FULL);
            assert_eq!(fakes::get("SRR1") & PREFIXED, prefixed, "{vector:#x}");
            assert_eq!(frame.msr & PREFIXED, 0, "no state of the machine");
        }
    }
    // Not of what has nothing to do with the instruction.
    fakes::set("SRR1", msr::SF | PREFIXED);
    frame.vector = vector::SYSTEM_RESET;
    entry::full(&mut frame, Code::FULL);
    assert_eq!(fakes::get("SRR1") & PREFIXED, 0);
}

#[test]
fn sprg0_is_set_by_a_call() {
    let (_, mut frame) = resident_vcpu();
    assert_eq!(call(&mut frame, 0x24, 0x1234_5678_9abc), Answer::SUCCESS);
    assert_eq!(fakes::take_log(), [Access::Write("SPRG0", 0x1234_5678_9abc)]);
    assert_eq!(frame.why, 0, "light");
}

#[test]
fn a_page_is_initialized_by_a_call() {
    let (vcpu, mut frame) = resident_vcpu();
    begin(vcpu.vm);
    assert!(vcpu.vm.set_word(PAGE, 77) && vcpu.vm.set_word(PAGE - 4, 78));
    frame.vector = vector::CALL;
    let mut initialize = |page: u64| {
        frame.set_gpr(3, 0x2c);
        frame.set_arguments([1 << 15, page, 0, 0, 0, 0, 0]);
        entry::full(&mut frame, Code::FULL);
        frame.gpr(3)
    };
    assert_eq!(initialize(PAGE), 0);
    assert_eq!((vcpu.vm.word(PAGE), vcpu.vm.word(PAGE - 4)), (Some(0), Some(78)));
    assert_eq!(initialize(4 * PAGE), -4i64 as u64, "beyond the memory");
}

/// Executes an instruction of the guest that its facilities do not have: that of doorbells to threads of the core.
fn execute(vcpu: &Vcpu, frame: &mut Frame, instruction: u32) -> u64 {
    let pc = PAGE;
    assert!(vcpu.vm.write(pc, &instruction.to_le_bytes()));
    fakes::set("HFSCR", hfscr::MSGP | 10 << hfscr::CAUSE_SHIFT);
    fakes::set("HSRR0", pc);
    fakes::set("HSRR1", msr::SF | msr::LE);
    frame.vector = vector::HYPERVISOR_FACILITY;
    entry::full(frame, Code::FULL);
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
