// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reset, off and on, load and put, and the corners of private interrupts that histories do not reach.

mod common;

use common::hardware::HardwareModel;
use common::machine::Machine;
use turnstile_vgic::{Backing, LrState, Maintenance, Outcome, RemoteOp};

/// Two or more vCPUs with everything enabled and SPIs 32 to 35 routed to vCPU 0.
fn machine(vcpus: u64, list_registers: usize) -> Machine {
    let machine = Machine::new(&(0..vcpus).collect::<Vec<u64>>(), list_registers);
    enable(&machine);
    machine
}

fn enable(machine: &Machine) {
    for vcpu in 0..machine.cpus.len() {
        machine.with(vcpu, |gic, cx| {
            gic.dist_write(cx, 0, 4, 3);
            gic.dist_write(cx, 0x104, 4, 0xf);
            gic.redist_write(cx, vcpu, 0x1_0100, 4, 0xffff_ffff);
        });
    }
}

fn hw<R>(machine: &Machine, vcpu: usize, run: impl FnOnce(&mut HardwareModel) -> R) -> R {
    run(&mut machine.cpus[vcpu].borrow_mut().hw)
}

fn timer(machine: &Machine) {
    machine.with(0, |gic, cx| {
        cx.vif.physical.insert(26);
        cx.vif.set_line(26, true);
        assert_eq!(gic.inject_ppi_hw(cx.vif, 27, 26), Outcome::Done);
    });
}

fn acknowledge(machine: &Machine, vcpu: usize) -> Option<u32> {
    hw(machine, vcpu, HardwareModel::acknowledge)
}

#[test]
fn a_reset_leaves_nothing_behind() {
    let machine = machine(2, 2);
    timer(&machine);
    assert_eq!(acknowledge(&machine, 0), Some(27));
    for intid in 32..36 {
        machine.vgic.set_spi_line(&machine, intid, true);
    }
    machine.service();
    machine.with(0, |gic, cx| gic.dist_write(cx, 0x6100, 8, 1));
    machine.vgic.reset();
    for vcpu in 0..2 {
        machine.inboxes[vcpu].take();
        machine.with(vcpu, |gic, cx| gic.reset(cx.vgic, cx.vif));
    }
    let fresh = Machine::new(&[0, 1], 2);
    for machine in [&machine, &fresh] {
        assert!(hw(machine, 0, |hw| hw.lrs.iter().all(Option::is_none) && hw.physical.is_empty()));
        assert!(!hw(machine, 0, |hw| hw.misr()));
        machine.service();
        machine.with(0, |gic, cx| assert!(!gic.has_pending(cx.vif)));
    }
    assert_eq!(hw(&machine, 0, |hw| hw.armed), hw(&fresh, 0, |hw| hw.armed));
    for offset in (0..0x1_0000).step_by(4) {
        let read = |machine: &Machine| {
            machine.with(0, |gic, cx| {
                [
                    gic.dist_read(cx, offset, 4),
                    gic.redist_read(cx, 0, offset, 4),
                    gic.redist_read(cx, 0, offset + 0x1_0000, 4),
                ]
            })
        };
        assert_eq!(read(&machine), read(&fresh), "{offset:#x}");
    }
    // It works as before; the active priorities are the CPU interface's, which arch resets.
    hw(&machine, 0, |hw| hw.active_priorities.clear());
    enable(&machine);
    timer(&machine);
    assert_eq!(acknowledge(&machine, 0), Some(27));
}

#[test]
fn pending_spis_of_a_vcpu_that_goes_off_can_be_routed_elsewhere() {
    let machine = machine(2, 1);
    for intid in 32..36 {
        machine.vgic.pulse_spi(&machine, intid);
    }
    machine.service();
    let active = acknowledge(&machine, 0).unwrap();
    machine.service();
    machine.with(0, |gic, cx| gic.power_off(cx));
    // Posts and operations that come meanwhile claim nothing.
    machine.with(0, |gic, cx| gic.apply(cx, RemoteOp::Recall { intid: 33 }));
    machine.service();
    assert!(hw(&machine, 0, |hw| hw.lrs[0].is_none_or(|lr| lr.state == LrState::Active)));
    for intid in 32..36 {
        machine.with(1, |gic, cx| gic.dist_write(cx, 0x6000 + 8 * intid, 8, 1));
    }
    let mut seen = Vec::new();
    for _ in 0..3 {
        machine.service();
        let intid = acknowledge(&machine, 1).unwrap();
        hw(&machine, 1, |hw| hw.end_of_interrupt(intid));
        seen.push(intid);
    }
    machine.service();
    assert_eq!(acknowledge(&machine, 1), None, "one is still active on the other");
    seen.push(active);
    seen.sort_unstable();
    assert_eq!(seen, [32, 33, 34, 35]);
    // It ends from outside, and comes again where it is routed now.
    machine.vgic.pulse_spi(&machine, active);
    machine.with(1, |gic, cx| gic.dist_write(cx, 0x384, 4, 0xf));
    machine.service();
    assert_eq!(acknowledge(&machine, 1), Some(active));
}

#[test]
fn what_came_while_a_vcpu_was_off_waits_for_it() {
    let machine = machine(2, 2);
    machine.vgic.pulse_spi(&machine, 32);
    machine.service();
    assert_eq!(acknowledge(&machine, 0), Some(32));
    machine.with(0, |gic, cx| gic.power_off(cx));
    machine.vgic.pulse_spi(&machine, 33);
    machine.inboxes[0].take();
    hw(&machine, 0, |hw| hw.active_priorities.clear());
    machine.with(0, |gic, cx| gic.power_on(cx));
    machine.service();
    assert!(!machine.read(1, 32, 0x300), "its active interrupt ended with it");
    assert_eq!(acknowledge(&machine, 0), Some(33));
    let enabled = machine.with(0, |gic, cx| gic.redist_read(cx, 0, 0x1_0100, 4));
    assert_eq!(enabled, 0, "the redistributor was reset");
}

#[test]
fn put_takes_everything_along_and_load_brings_it_back() {
    let machine = machine(1, 1);
    timer(&machine);
    for intid in 32..36 {
        machine.vgic.pulse_spi(&machine, intid);
    }
    machine.drain();
    machine.with(0, |gic, cx| gic.put(cx.vif));
    assert!(hw(&machine, 0, |hw| hw.is_empty()));
    assert!(hw(&machine, 0, |hw| hw.physical.contains(&26)), "the timer stays active");
    // What happens while it is away is there when it is back.
    machine.with(0, |gic, cx| {
        gic.deliver(cx, 3);
        gic.settle(cx);
        gic.load(cx);
    });
    let mut seen = Vec::new();
    for _ in 0..6 {
        machine.service();
        let intid = acknowledge(&machine, 0).unwrap();
        hw(&machine, 0, |hw| hw.end_of_interrupt(intid));
        seen.push(intid);
    }
    machine.service();
    assert_eq!(acknowledge(&machine, 0), None);
    seen.sort_unstable();
    assert_eq!(seen, [3, 27, 32, 33, 34, 35]);
    assert!(hw(&machine, 0, |hw| hw.physical.is_empty()));
    assert_eq!(hw(&machine, 0, |hw| hw.armed), Maintenance::NONE);
}

#[test]
fn a_disabled_timer_is_held_and_delivered_when_it_is_enabled() {
    let machine = machine(1, 4);
    let enable = |bank| machine.with(0, |gic, cx| gic.redist_write(cx, 0, bank, 4, 1 << 27));
    enable(0x1_0180);
    timer(&machine);
    assert_eq!(acknowledge(&machine, 0), None);
    assert!(hw(&machine, 0, |hw| hw.physical.contains(&26)));
    enable(0x1_0100);
    let lr = hw(&machine, 0, |hw| hw.highest_pending()).unwrap();
    assert_eq!((lr.intid, lr.backing), (27, Backing::Hardware { pintid: 26 }));
    // Disabled again before the guest took it: back to being held, still active physically.
    enable(0x1_0180);
    assert_eq!(acknowledge(&machine, 0), None);
    assert!(hw(&machine, 0, |hw| hw.physical.contains(&26)));
}

#[test]
fn clearing_a_held_interrupt_leaves_it_to_the_physical_line() {
    let machine = machine(1, 4);
    timer(&machine);
    machine.with(0, |gic, cx| gic.redist_write(cx, 0, 0x1_0280, 4, 1 << 27));
    assert_eq!(acknowledge(&machine, 0), None);
    assert!(hw(&machine, 0, |hw| hw.physical.is_empty()), "it may fire again");
    timer(&machine);
    assert_eq!(acknowledge(&machine, 0), Some(27));
}

#[test]
fn a_physical_interrupt_behind_an_activation_by_register_is_not_ended_with_it() {
    let machine = machine(1, 4);
    let write = |bank| machine.with(0, |gic, cx| gic.redist_write(cx, 0, bank, 4, 1 << 27));
    write(0x1_0300);
    timer(&machine);
    write(0x1_0180);
    assert!(hw(&machine, 0, |hw| hw.deactivate_interrupt(27)), "DIR does not trap");
    machine.service();
    assert!(hw(&machine, 0, |hw| hw.physical.contains(&26)));
    write(0x1_0100);
    assert_eq!(acknowledge(&machine, 0), Some(27));
}

#[test]
fn a_physical_interrupt_and_a_line_on_the_same_ppi() {
    let machine = machine(1, 4);
    machine.with(0, |gic, cx| assert_eq!(gic.set_private_line(cx.vif, 27, true), Outcome::Done));
    timer(&machine);
    for _ in 0..3 {
        machine.service();
        assert_eq!(acknowledge(&machine, 0), Some(27));
        hw(&machine, 0, |hw| hw.end_of_interrupt(27));
    }
    machine.service();
    assert!(hw(&machine, 0, |hw| hw.physical.is_empty()));
    machine.with(0, |gic, cx| assert_eq!(gic.set_private_line(cx.vif, 27, false), Outcome::Done));
    machine.service();
    assert_eq!(acknowledge(&machine, 0), None);
    // The timer first, then the line.
    timer(&machine);
    machine.with(0, |gic, cx| assert_eq!(gic.set_private_line(cx.vif, 27, true), Outcome::Done));
    assert_eq!(acknowledge(&machine, 0), Some(27));
    hw(&machine, 0, |hw| hw.end_of_interrupt(27));
    machine.service();
    assert_eq!(acknowledge(&machine, 0), Some(27), "the line is still high");
}

#[test]
fn a_disable_by_another_vcpu_takes_effect_before_it_returns() {
    let machine = machine(2, 4);
    machine.vgic.set_spi_line(&machine, 32, true);
    machine.drain();
    machine.with(1, |gic, cx| gic.dist_write(cx, 0x184, 4, 1));
    assert_eq!(acknowledge(&machine, 0), None);
    assert!(machine.read(1, 32, 0x200), "pending in the distributor");
    machine.with(1, |gic, cx| gic.dist_write(cx, 0x104, 4, 1));
    machine.drain();
    assert_eq!(acknowledge(&machine, 0), Some(32));
}

#[test]
fn an_interrupt_for_a_masked_guest_wakes_it_only_if_there_is_one() {
    let machine = machine(1, 2);
    let pending = || machine.with(0, |gic, cx| gic.has_pending(cx.vif));
    assert!(!pending());
    machine.with(0, |gic, cx| assert_eq!(gic.inject_sgi(cx.vif, 1), Outcome::Done));
    assert!(pending());
    let intid = acknowledge(&machine, 0).unwrap();
    assert!(!pending(), "active is not pending");
    hw(&machine, 0, |hw| hw.end_of_interrupt(intid));
    assert!(!pending());
}
