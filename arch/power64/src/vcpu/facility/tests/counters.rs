// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The performance monitor: whose its counters are, and when they count.

use turnstile_papr::code::Code;
use turnstile_papr::vpa::offset;

use super::*;
use crate::state::registers::{FROZEN, Monitor, NewerMonitor};

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
    vcpu.vm.prepare(0, memory, BootState::default());
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
