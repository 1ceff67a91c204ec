// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Waits, stops and starts of vCPUs: what is left behind, and what is not lost.

use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;
use std::vec::Vec;

use turnstile_arch_common::monitor::CommonMonitor;
use turnstile_papr::code::Code as Return;
use turnstile_papr::vpa::{Areas, offset};
use turnstile_vm::lifecycle::{Phase, Stop};

use super::*;
use crate::service::Services;
use crate::vcpu::facility::tests::cores;
use crate::vcpu::interrupts::wakes;
use crate::vm::GUEST_LPCR;
use crate::vm::monitor::{Monitor, monitor};

const CEDE: u64 = 0xe0;

/// Begins a life of the resident vCPU's VM, with an area at the third page.
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
    crate::exit::attend::acknowledge_stop(vcpu, monitor());
    assert_eq!(vcpu.owned(|owned| owned.areas), Areas::default());
    assert_eq!(vcpu.vm.lifecycle.phase(), Phase::Stopping(Stop::PowerOff), "the other one has not");
    fakes::take_log();
    crate::exit::attend::acknowledge_stop(vcpu.vm.vcpus()[1], monitor());
    assert!(fakes::take_log().contains(&Access::Write("TLBIE_LPID", vcpu.vm.lpid().into())));
}

#[test]
fn the_count_of_dispatches_moves_over_a_wait() {
    let (vcpu, mut frame) = resident_vcpu();
    begin_with_area(vcpu);
    let mut cede = || {
        // It has not yet when the call looks, and has when the vCPU waits.
        fakes::set("DEC", 100);
        assert_eq!(call(&mut frame, CEDE, 0), Answer::SUCCESS);
        assert_eq!(noted(&frame), Code::WAIT);
        fakes::set("DEC", 0xffff_fff0);
        frame.vector = vector::CALL;
        assert_eq!(full(&mut frame, Code::WAIT), Entry::Some);
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
    crate::exit::attend::settle(&mut frame, vcpu, monitor());
    assert_eq!(fakes::get("LPCR"), GUEST_LPCR | lpcr::ILE | lpcr::AIL_3, "what another vCPU has changed");
    fakes::set("DPDES", 0);
    fakes::set("DEC", 100);
    assert!(wakes(vcpu) && !wakes(vcpu), "it was prodded");
    assert_eq!(frame.pc, 0x1000);
    fakes::set("SRR0", 0);
    vcpu.attention.raise(Reasons::NMI);
    crate::exit::attend::settle(&mut frame, vcpu, monitor());
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
    assert_eq!(full(&mut frame, Code::WAIT), Entry::Some);
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
    crate::exit::attend::wait_for_start(&mut frame, vcpu, monitor());
    crate::exit::attend::settle(&mut frame, vcpu, monitor());
    assert_eq!(found(vcpu), (true, true));
    // It stops, and is started and sent to before it has looked.
    vcpu.vm.processors.stop(1);
    assert!(vcpu.vm.processors.start(1, START).is_ok());
    send(vcpu);
    crate::exit::attend::settle(&mut frame, vcpu, monitor());
    assert!(vcpu.vm.processors.is_on(1));
    assert_eq!(found(vcpu), (true, true));
}

#[test]
fn who_starts_looks_at_what_services_were_left_with() {
    let (vcpus, mut frame) = core_of_two(1);
    let vcpu = vcpus[1];
    vcpu.vm.set_services(Services::none());
    assert!(vcpu.vm.processors.start(1, START).is_ok());
    crate::exit::attend::wait_for_start(&mut frame, vcpu, monitor());
    assert!(vcpu.attention.take().contains(Reasons::SERVICE));
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
    crate::exit::calls::firmware(&mut frame, vcpu, [PAGE, 0, 0, 0, 0, 0, 0], monitor());
    assert!(!vcpu.vm.processors.is_on(0));
    assert!(vcpu.vm.processors.start(0, START).is_ok());
    crate::exit::attend::settle(&mut frame, vcpu, monitor());
    assert!(vcpu.vm.processors.is_on(0));
    assert_eq!(found(vcpu), (false, false));
}

/// Starts the first vCPU when it looks for the second time, with what the decrementer was then.
#[derive(Default)]
struct Starter {
    looks: AtomicU64,
    decrementer: AtomicU64,
    /// How often a vCPU has gone on after a pause.
    resumed: AtomicU64,
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
    /// Ends each pause as soon as its clock stands, so many ticks later.
    fn paused(&self, vm: &'static Vm) {
        assert_eq!(fakes::get("DPDES"), 0, "a doorbell of a paused VM ends STOP");
        let now = fakes::get("TB");
        assert!(vm.pause.close(now));
        fakes::set("TB", now + PAUSED);
        // It has counted, or somebody has set it.
        fakes::set("DEC", 0x7fff_ffff);
        assert_eq!(vm.pause.end(now + PAUSED, |ticks| vm.stood_still(ticks)), Some(PAUSED));
    }
    fn short_of_memory(&self, _: &'static Vm, _: u32) {}
    fn resumed(&self, _: &'static Vm) {
        self.resumed.fetch_add(1, Relaxed);
    }
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

/// For how many ticks a VM is paused.
const PAUSED: u64 = 7000;

#[test]
fn a_pause_keeps_what_is_due_and_the_guest_is_told_that_the_time_was_stolen() {
    let (vcpu, mut frame) = resident_vcpu();
    begin_with_area(vcpu);
    fakes::set("TB", 1000);
    fakes::set("DEC", 9000);
    fakes::set("DPDES", 1);
    let starter = Starter::default();
    assert!(vcpu.vm.begin_pause() && !vcpu.vm.begin_pause());
    assert!(!vcpu.vm.pause.acknowledge(1), "the other one is off, and has looked");
    crate::exit::attend::settle(&mut frame, vcpu, &starter);
    assert!(!vcpu.vm.pause.holds());
    assert_eq!((fakes::get("DEC"), fakes::get("DPDES")), (9000 - PAUSED, 1));
    let mut stolen = [0; 8];
    assert!(vcpu.vm.read(2 * PAGE + offset::READY_TIME, &mut stolen));
    assert_eq!((u64::from_be_bytes(stolen), dispatches(vcpu)), (PAUSED, Some(2)));
    // One that has ceded its CPU waits on.
    vcpu.owned(|owned| owned.areas.rest(vcpu.vm));
    assert!(vcpu.vm.begin_pause() && !vcpu.vm.pause.acknowledge(1));
    crate::exit::attend::settle(&mut frame, vcpu, &starter);
    assert_eq!(dispatches(vcpu), Some(3));
    vcpu.owned(|owned| owned.areas.go_on(vcpu.vm));
    assert_eq!(starter.resumed.load(Relaxed), 2);
    fakes::set("DEC", 9000 - PAUSED);
    // A pause that is over when the vCPU looks changes nothing.
    vcpu.attention.raise(Reasons::STOP);
    crate::exit::attend::settle(&mut frame, vcpu, &starter);
    assert_eq!((vcpu.attention.word(), fakes::get("DEC")), (0, 9000 - PAUSED));
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
    crate::exit::attend::wait_for_start(&mut frame, vcpu, &starter);
    assert_eq!((starter.looks.into_inner(), starter.decrementer.into_inner()), (2, FAR));
    // On a CPU without vCPUs nobody sets it.
    fakes::set("DEC", 0xffff_fff0);
    crate::exit::wait::wait_for_interrupt();
    assert_eq!(fakes::get("DEC"), FAR);
}
