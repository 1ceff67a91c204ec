// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whose state is in the registers, on the host, against fakes. Each test has a thread, and so a CPU, for itself.

use std::boxed::Box;
use std::collections::HashMap;
use std::vec::Vec;

use turnstile_vm::lifecycle::OnCrash;

mod list;

use super::*;
use crate::board::mitigation;
use crate::cpu::regs::fakes::{self, Access};
use crate::state::extended;
use crate::state::facility::start_cpu;
use crate::vm::ports::Ports;
use crate::vm::{Vm, VmParts};

/// What a guest changes without an exit.
const NAMES: [&str; 6] = ["EXTENDED", "DR0", "DR1", "DR2", "DR3", "TSC_AUX"];

/// Makes vCPUs of one VM, which are resident nowhere, and resets the fakes.
pub(crate) fn vcpus(count: usize) -> Vec<&'static Vcpu> {
    fakes::reset();
    fakes::set("XCR0", extended::XCR0_RESET);
    start_cpu();
    let vm: &'static Vm = Box::leak(Box::new(Vm::new(VmParts {
        id: 0,
        name: "vm".into(),
        on_crash: OnCrash::Stop,
        statistics: false,
        x2apic: true,
        kvm: None,
        ports: &const { Ports::of(&[]) },
        vcpus: count,
    })));
    let vcpu = |index| &*Box::leak(Box::new(Vcpu::new(vm, index, cpu::this(), None)));
    let vcpus: Vec<_> = (0..count).map(vcpu).collect();
    vm.set_vcpus(vcpus.clone());
    vcpus
}

/// The guest fills its registers.
fn fill(value: u64) {
    for (offset, name) in (0..).zip(NAMES) {
        fakes::set(name, value + offset);
    }
}

fn found() -> Vec<u64> {
    NAMES.iter().map(|name| fakes::get(name)).collect()
}

fn filled(value: u64) -> Vec<u64> {
    (0..NAMES.len() as u64).map(|offset| value + offset).collect()
}

#[test]
fn who_comes_back_pays_nothing() {
    let vcpus = vcpus(2);
    reset(vcpus[0]);
    fill(100);
    fakes::take_log();
    load(vcpus[0]);
    assert_eq!(fakes::take_log(), []);
    assert_eq!(found(), filled(100));
}

#[test]
fn everybody_finds_its_own() {
    let vcpus = vcpus(3);
    for (vcpu, value) in vcpus.iter().zip([100, 200, 300]) {
        reset(vcpu);
        assert_eq!(found(), [0; NAMES.len()], "a life begins with nothing of the one before");
        fill(value);
    }
    for (vcpu, value) in [(0, 100), (2, 300), (1, 200), (0, 100)] {
        load(vcpus[vcpu]);
        assert_eq!(found(), filled(value));
    }
}

#[test]
fn what_vmload_loads_comes_and_goes_with_the_rest() {
    let vcpus = vcpus(2);
    reset(vcpus[0]);
    reset(vcpus[1]);
    fakes::take_log();
    load(vcpus[0]);
    let moves: Vec<_> = fakes::take_log()
        .into_iter()
        .filter(|access| matches!(access, Access::Write("VMSAVE" | "VMLOAD", _)))
        .collect();
    assert_eq!(moves, [Access::Write("VMSAVE", 1), Access::Write("VMLOAD", 0)]);
}

#[test]
fn components_that_a_guest_has_off_move_too() {
    let vcpus = vcpus(2);
    if fakes::get("CR4") & crate::cpu::regs::cr4::OSXSAVE == 0 {
        // A host without XSAVE has nothing to switch off.
        return;
    }
    reset(vcpus[0]);
    reset(vcpus[1]);
    // All are stored and loaded, whatever the guests' XCR0 are, which they find again.
    fakes::set("XCR0", 7);
    fakes::take_log();
    load(vcpus[0]);
    let log = fakes::take_log();
    let components = |name: &str| {
        log.iter().find_map(|access| match access {
            Access::Write(written, value) if *written == name => Some(*value),
            _ => None,
        })
    };
    let saved = components("XSAVEOPT").or(components("XSAVE"));
    assert_eq!(saved, components("XRSTOR"));
    assert!(saved.is_some_and(|saved| saved & 3 == 3), "{saved:?}");
    assert_eq!(fakes::get("XCR0"), extended::XCR0_RESET);
    load(vcpus[1]);
    assert_eq!(fakes::get("XCR0"), 7);
}

#[test]
fn who_moves_takes_everything_along() {
    let vcpus = vcpus(2);
    reset(vcpus[0]);
    fill(100);
    depart(vcpus[0]);
    fill(900);
    let mover = vcpus[0];
    let elsewhere = std::thread::spawn(move || {
        start_cpu();
        fakes::exchange(&mut HashMap::from([("EXTENDED", 800)]));
        load(mover);
        (found(), filled(100))
    });
    let (there, expected) = elsewhere.join().unwrap();
    assert_eq!(there, expected);
    // Nothing of it is here: another one is loaded without anything being stored into it.
    fakes::take_log();
    reset(vcpus[1]);
    assert!(!fakes::take_log().iter().any(|access| matches!(access, Access::Write("VMSAVE", _))));
}

/// Starts a CPU as boot code does.
fn start(cpu: &turnstile_mitigation::x86_64::Cpu) {
    mitigation::pretend(cpu, mitigation::Choice::Auto);
    crate::state::facility::set_barrier(mitigation::between());
}

#[test]
fn a_barrier_comes_between_vcpus_where_the_cpu_needs_it() {
    let vcpus = vcpus(2);
    let barriers = |vcpu| {
        fakes::take_log();
        load(vcpu);
        fakes::take_log().into_iter().filter(|access| *access == Access::Write("PRED_CMD", 1)).count()
    };
    reset(vcpus[0]);
    assert_eq!([barriers(vcpus[1]), barriers(vcpus[0])], [0, 0]);
    for (cpu, expected) in [(&mitigation::tests::ZEN5, 1), (&mitigation::tests::ZEN2, 0)] {
        start(cpu);
        let found = [vcpus[1], vcpus[1], vcpus[0]].map(barriers);
        assert_eq!(
            found,
            [expected, 0, expected],
            "on exits, or between vCPUs, and not for one that comes back"
        );
        fill(500);
        assert_eq!(barriers(vcpus[1]), expected);
        assert_eq!(barriers(vcpus[0]), expected);
        assert_eq!(found_tsc_aux(), 505, "and the rest is moved as ever");
    }
    start(&mitigation::tests::ZEN5);
    fakes::take_log();
    reset(vcpus[0]);
    assert!(fakes::take_log().contains(&Access::Write("PRED_CMD", 1)), "a life begins behind one, too");
}

fn found_tsc_aux() -> u64 {
    fakes::get("TSC_AUX")
}
