// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How a life of a vCPU ends, and how the next one begins.

use std::cell::Cell;

use turnstile_arch_common::monitor::CommonMonitor;
use turnstile_vm::lifecycle::{Phase, Stop};
use turnstile_vm::psci::Start;

use super::*;
use crate::cpu::mode::Vhe;
use crate::exit::wait::{attend, wait_for_start};
use crate::irq::{Gic, PPI_VIRTUAL_TIMER};
use crate::memory::demand::Later;
use crate::service::Services;
use crate::state::{Facility, SystemState};
use crate::vcpu::facility;
use crate::vm::{Monitor, Vm};

const TIMERS: [&str; 2] = ["CNTV_CTL_EL02", "CNTP_CTL_EL02"];
/// What the life before has left in a register.
const LEFT: u64 = 0x5ec_2e7;
const ENTRY: u64 = 0x4008_0000;
/// For how many ticks a VM is paused.
const PAUSED: u64 = 700;
/// What makes a VM's vCPU resident.
const RESIDENCE: [&str; 4] = ["VTCR_EL2", "VTTBR_EL2", "VMPIDR_EL2", "CNTVOFF_EL2"];

std::thread_local!(
    /// How often the waiting vCPU has asked for its VM.
    static ASKED: Cell<u32> = const { Cell::new(0) };
    /// How often the VM was taken down.
    static STOPPED: Cell<u32> = const { Cell::new(0) };
    /// How often a vCPU has gone on after a pause.
    static RESUMED: Cell<u32> = const { Cell::new(0) };
);

/// Starts the VM when its first vCPU asks for the third time.
struct Starter;

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
        assert_eq!(TIMERS.map(fakes::get), [0, 0], "a vCPU that waits for its start has no timers");
        let control = vm.vgic.read_control_light(0, 4);
        assert!(control.is_some(), "a vCPU that waits for its start keeps a write of GICD_CTLR waiting");
        match ASKED.replace(ASKED.get() + 1) {
            // One of its timers rings all the same, as it was on its way.
            0 => {
                TIMERS.into_iter().for_each(|timer| fakes::set(timer, 5));
                fakes::set("ICC_IAR1_EL1", PPI_VIRTUAL_TIMER.into());
            }
            1 => {
                let deactivated = Access::Write("ICC_DIR_EL1", PPI_VIRTUAL_TIMER.into());
                assert_eq!(fakes::take_log().iter().filter(|access| **access == deactivated).count(), 1);
                fakes::set("ICC_IAR1_EL1", 1023);
            }
            _ => {
                if vm.lifecycle.phase() != Phase::Running {
                    assert!(vm.lifecycle.start());
                }
                vm.psci.reset(Start { entry: ENTRY, context: 77 });
            }
        }
    }

    fn stopped(&self, vm: &'static Vm, _: Stop) {
        assert_eq!(TIMERS.map(fakes::get), [0, 0]);
        let log = fakes::take_log();
        let at = |wanted: Access| log.iter().position(|access| *access == wanted);
        let low = at(Access::Write(TIMERS[0], 0));
        let inactive = at(Access::Write("ICC_DIR_EL1", PPI_VIRTUAL_TIMER.into()));
        assert!(low.is_some() && low < inactive, "it would fire again: {low:?}, {inactive:?}");
        STOPPED.set(STOPPED.get() + 1);
        vm.lifecycle.finish();
    }

    /// Ends each pause as soon as its clock stands, after so many ticks.
    fn paused(&self, vm: &'static Vm) {
        // Where it waits for its start, `waiting` has them ring.
        assert!(ASKED.get() != 0 || TIMERS.map(fakes::get) == [0, 0], "the timers of a paused VM ring");
        assert!(vm.pause.close(5000));
        assert_eq!(vm.pause.end(5000 + PAUSED, |ticks| vm.stood_still(ticks)), Some(PAUSED));
    }

    fn short_of_memory(&self, _: &'static Vm, _: u32) {}
    fn resumed(&self, _: &'static Vm) {
        RESUMED.set(RESUMED.get() + 1);
    }
}

impl Monitor for Starter {
    fn flash(&self, _: &'static Vm, _: crate::memory::flash::Access) -> Option<u64> {
        None
    }
}

/// The registers that a switch stores.
fn registers() -> Vec<&'static str> {
    fakes::take_log();
    SystemState::default().save::<Vhe>();
    let log = fakes::take_log().into_iter();
    log.filter_map(|access| match access {
        Access::Read(name) => Some(name),
        Access::Write(..) => None,
    })
    .collect()
}

/// A vCPU in the middle of its life, with every register used, a timer's interrupt pending and both timers due.
fn in_its_life(vcpus: usize) -> (&'static Vm, Frame) {
    let (vm, mut frame) = machine(vcpus, false);
    let vcpu = vm.vcpus()[0];
    assert!(vm.psci.take_start(0).is_some());
    // Whatever is in a list register is still there.
    fakes::set("ICH_ELRSR_EL2", 0);
    ASKED.set(0);
    STOPPED.set(0);
    assert!(facility::claim(vcpu, Facility::Vector));
    fakes::set("V0", LEFT);
    let registers = registers();
    registers.iter().chain(&RESIDENCE).for_each(|name| fakes::set(name, LEFT));
    fakes::set("CNTPCT_EL0", 1234);
    // Between two lives.
    assert!(vm.lifecycle.begin_stop(Stop::Reset));
    for vcpu in 0..vcpus {
        let _ = vm.lifecycle.acknowledge(vcpu);
    }
    vm.lifecycle.finish();
    vm.prepare(0x80, 0x4000, Later::Nothing);
    assert!(vm.lifecycle.start());
    (0..31).for_each(|n| frame.set(n, LEFT));
    TIMERS.into_iter().for_each(|timer| fakes::set(timer, 5));
    // SAFETY: the test has one thread.
    let gic = unsafe { &mut vcpu.owned().gic };
    let _ = gic.inject_ppi_hw(&mut Gicv3::interface(), PPI_VIRTUAL_TIMER, PPI_VIRTUAL_TIMER);
    assert_eq!(gic.held(), 1 << PPI_VIRTUAL_TIMER);
    fakes::set("ICH_VMCR_EL2", LEFT);
    fakes::set("ICH_AP1R0_EL2", LEFT);
    fakes::take_log();
    fakes::take_instructions();
    (vm, frame)
}

fn is_new(vm: &'static Vm, frame: &Frame) {
    let vcpu = vm.vcpus()[0];
    assert_eq!((fakes::get("ELR_EL2"), fakes::get("SPSR_EL2")), (ENTRY, 0x3c5));
    assert!((1..31).all(|n| frame.get(n) == 0) && frame.get(0) == 77);
    for name in registers().into_iter().chain(["ICH_VMCR_EL2", "ICH_AP1R0_EL2"]) {
        assert_ne!(fakes::get(name), LEFT, "{name} survives");
    }
    let residence = vm.residence();
    let expected = [residence.vtcr, residence.vttbr, vcpu.vmpidr, residence.cntvoff];
    assert_eq!((RESIDENCE.map(fakes::get), residence.cntvoff), (expected, 1234));
    assert_eq!(TIMERS.map(fakes::get), [0, 0]);
    // SAFETY: the test has one thread.
    assert_eq!(unsafe { vcpu.owned() }.gic.held(), 0);
    for register in ["ICH_LR0_EL2", "ICH_LR1_EL2", "ICH_LR2_EL2", "ICH_LR3_EL2"] {
        assert_eq!(fakes::get(register), 0);
    }
    // Images for ablation give a vCPU all that its VM has when a life begins.
    let asks = facility::claim(vcpu, Facility::Vector);
    assert_eq!(asks, !cfg!(feature = "ablation"), "it has to ask for it again");
    assert_eq!(fakes::get("V0"), 0);
    let instructions = fakes::take_instructions();
    assert!(instructions.contains(&"tlbi vmalls12e1is"), "translations of the life before stay");
}

#[test]
fn a_vcpu_that_stops_leaves_nothing_for_its_next_life() {
    let (vm, mut frame) = in_its_life(1);
    let vcpu = vm.vcpus()[0];
    vm.stop(Stop::Reset);
    attend::<Gicv3>(&mut frame, vcpu, || &Starter);
    assert_eq!((STOPPED.get(), ASKED.get()), (1, 3));
    is_new(vm, &frame);
}

#[test]
fn a_vcpu_that_is_off_has_no_timers_and_begins_anew() {
    let (vm, mut frame) = in_its_life(2);
    let vcpu = vm.vcpus()[0];
    // What was posted in this life is for the vCPU when it is on again; but who writes GICD_CTLR is told that it has looked.
    // SAFETY: the test has one thread.
    let other = unsafe { vm.vcpus()[1].owned() };
    vm.with_gic::<Gicv3, _>(|cx| other.gic.dist_write(cx, 0, 4, 0));
    assert_eq!(vm.vgic.read_control_light(0, 4), None);
    wait_for_start::<Gicv3>(&mut frame, vcpu, &Starter);
    assert_eq!((STOPPED.get(), ASKED.get()), (0, 3));
    assert_eq!(vcpu.attention.take(), Reasons::INBOX);
    is_new(vm, &frame);
}

#[test]
fn who_starts_looks_at_what_services_were_left_with() {
    let (vm, mut frame) = in_its_life(1);
    vm.set_services(Services::none());
    let vcpu = vm.vcpus()[0];
    wait_for_start::<Gicv3>(&mut frame, vcpu, &Starter);
    assert_eq!(vcpu.attention.take(), Reasons::SERVICE);
}

#[test]
fn a_pause_silences_timers_and_stops_the_clock_and_nothing_else_is_changed() {
    let (vm, mut frame) = in_its_life(1);
    let vcpu = vm.vcpus()[0];
    assert!(vm.begin_pause() && !vm.begin_pause());
    vcpu.attention.raise(Reasons::RESCHEDULE);
    attend::<Gicv3>(&mut frame, vcpu, || &Starter);
    assert_eq!((STOPPED.get(), ASKED.get(), RESUMED.get()), (0, 0, 1), "its life goes on");
    assert_eq!(TIMERS.map(fakes::get), [5, 5], "its timers are what they were");
    assert_eq!((fakes::get("CNTVOFF_EL2"), vm.cntvoff()), (1234 + PAUSED, 1234 + PAUSED));
    assert!((0..31).all(|n| frame.get(n) == LEFT));
    assert_eq!(fakes::get("V0"), LEFT);
    // SAFETY: the test has one thread.
    assert_eq!(unsafe { vcpu.owned() }.gic.held(), 1 << PPI_VIRTUAL_TIMER, "a pending interrupt is kept");
    // A pause that is over when the vCPU looks changes nothing.
    vcpu.attention.take();
    vcpu.attention.raise(Reasons::STOP);
    fakes::take_log();
    attend::<Gicv3>(&mut frame, vcpu, || &Starter);
    assert_eq!((vcpu.attention.word(), fakes::take_log()), (0, vec![]));
}

#[test]
fn a_vcpu_that_is_off_does_not_start_before_the_pause_is_over() {
    let (vm, mut frame) = in_its_life(1);
    let vcpu = vm.vcpus()[0];
    vm.psci.reset(Start { entry: ENTRY, context: 77 });
    assert!(vm.begin_pause());
    // It is on when the monitor has ended the pause, with the clock as that has left it.
    wait_for_start::<Gicv3>(&mut frame, vcpu, &Starter);
    assert_eq!((vm.pause.still(), fakes::get("CNTVOFF_EL2")), (PAUSED, 1234 + PAUSED));
}

#[test]
fn a_paused_vm_that_is_stopped_is_taken_down() {
    let (vm, mut frame) = in_its_life(1);
    assert!(vm.begin_pause());
    vm.stop(Stop::Reset);
    attend::<Gicv3>(&mut frame, vm.vcpus()[0], || &Starter);
    assert_eq!((STOPPED.get(), ASKED.get()), (1, 3));
}
