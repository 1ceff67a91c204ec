// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Switches on the host, against fakes.

use std::boxed::Box;
use std::vec::Vec;

use turnstile_sched::Class;
use turnstile_threads::Architecture;
use turnstile_vapic::{Context, Lapic};
use turnstile_vm::attention::Posted;
use turnstile_vm::attention::Reasons;

use super::*;
use crate::cpu;
use crate::cpu::regs::fakes::{self, Access};
use crate::vcpu::{facility, irq};
use crate::vm::{Thread, Vm};

fn load(vcpu: &'static Vcpu) {
    Svm::load(vcpu);
}

fn put(vcpu: &'static Vcpu) -> Option<u64> {
    Svm::put(vcpu, vcpu.thread.as_ref().expect("it shares a CPU"))
}

/// vCPUs that share this CPU, of which none has run.
fn sharing() -> Vec<&'static Vcpu> {
    let pinned = facility::tests::vcpus(3);
    let thread = |(number, vcpu): (usize, &&'static Vcpu)| {
        &*Box::leak(Box::new(Vcpu::new(
            vcpu.vm,
            number,
            cpu::this(),
            Some(Thread::new(number as u32, 1 << 15)),
        )))
    };
    let vcpus: Vec<_> = pinned.iter().enumerate().map(thread).collect();
    let tenant = |vcpu: &&'static Vcpu| Tenant { vcpu, class: Class::Fair { weight: 100 }, cpus: [0].into() };
    start(vcpus.iter().map(tenant).collect(), Box::leak(Box::new([cpu::this()])));
    vcpus
}

#[test]
fn a_switch_moves_what_differs_and_no_more() {
    let vcpus = sharing();
    for vcpu in &vcpus {
        load(vcpu);
        assert_eq!(put(vcpu), None, "no timer is set");
        vcpu.attention.put();
    }
    let asids: Vec<_> = vcpus.iter().map(|vcpu| vcpu.with_vmcb(|vmcb| vmcb.asid())).collect();
    assert_eq!(asids, [1, 2, 3]);

    // It was the last one, and is again.
    fakes::take_log();
    load(vcpus[2]);
    let moved = |log: &[Access]| {
        log.iter().any(|access| matches!(access, Access::Write("VMSAVE" | "VMLOAD" | "TLB_CONTROL", _)))
    };
    assert!(!moved(&fakes::take_log()), "nobody was in between");
    put(vcpus[2]);
    vcpus[2].attention.put();

    load(vcpus[0]);
    let log = fakes::take_log();
    assert!(moved(&log));
    assert!(!log.iter().any(|access| matches!(access, Access::Write("TLB_CONTROL", _))), "it has its ASID");
    assert_eq!(vcpus[0].with_vmcb(|vmcb| vmcb.asid()), 1);

    // Who is parked is woken, once; this CPU looks at its run queue.
    assert!(vcpus[1].attention.residence().is_none());
    vcpus[1].attention.load(1 << 16);
    assert!(vcpus[1].attention.park());
    assert_eq!(vcpus[1].attention.post(Reasons::INBOX), Posted::Wake);
    vcpus[1].notify(Posted::Wake);
    assert_eq!(vcpus[0].attention.take(), Reasons::RESCHEDULE);
}

/// Uses the local APIC of a vCPU that is resident.
fn with_lapic<R>(
    vcpu: &'static Vcpu,
    f: impl FnOnce(&mut Lapic, &mut Context<'_, irq::Interface<'_, false>, Vm>) -> R,
) -> R {
    vcpu.with_vmcb(|vmcb| irq::with_lapic::<false, _>(vcpu, vmcb, f))
}

/// The guest arms its APIC's timer and the 8254, both in its first microseconds.
fn arm(vcpu: &'static Vcpu) {
    vcpu.with_vmcb(|vmcb| irq::reset(vcpu, vmcb));
    with_lapic(vcpu, |lapic, cx| {
        lapic.set_base(cx, 0xfee0_0d00, |_| false).expect("it has an x2APIC");
        for (msr, value) in [(0x80f, 0x1ff), (0x832, 0x41), (0x838, 1000)] {
            lapic.write_msr(cx, msr, value).expect("allowed");
        }
    });
    for (port, value) in [(0x43, 0x34), (0x40, 100), (0x40, 0)] {
        vcpu.vm.write_port(port, value);
    }
}

#[test]
fn a_vcpu_that_is_off_has_no_deadline() {
    let vcpus = sharing();
    let deadline = |vcpu: &'static Vcpu, change: fn(&'static Vcpu)| {
        load(vcpu);
        change(vcpu);
        let deadline = put(vcpu);
        vcpu.attention.put();
        deadline
    };
    let goes_off = |vcpu: &'static Vcpu| vcpu.with_vmcb(|vmcb| irq::off(vcpu, vmcb));
    let stops = |vcpu: &'static Vcpu| {
        vcpu.with_vmcb(|vmcb| {
            irq::off(vcpu, vmcb);
            irq::reset(vcpu, vmcb);
        });
    };
    for ends in [goes_off as fn(_), stops] {
        vcpus[0].set_on(true);
        assert!(deadline(vcpus[0], arm).is_some());
        assert_eq!(deadline(vcpus[0], ends), None);
        [100, 0].into_iter().for_each(|byte| vcpus[0].vm.write_port(0x40, byte));
        assert_eq!(deadline(vcpus[0], |_| {}), None, "another vCPU has started the 8254 anew");
    }
    vcpus[0].set_on(true);
    assert!(deadline(vcpus[0], |_| {}).is_some(), "the 8254 goes on with the first vCPU");
    vcpus[1].set_on(true);
    assert_eq!(deadline(vcpus[1], |_| {}), None, "and with no other");
}

#[test]
fn a_vcpu_that_halts_is_not_wanted_back_for_what_waits_already() {
    let vcpus = sharing();
    let vcpu = vcpus[1];
    let with =
        |change: fn(&'static Vcpu, &mut crate::cpu::svm::Vmcb)| vcpu.with_vmcb(|vmcb| change(vcpu, vmcb));
    load(vcpu);
    arm(vcpu);
    let write = |msr, value| {
        with_lapic(vcpu, |lapic, cx| lapic.write_msr(cx, msr, value)).expect("allowed");
    };
    write(0x832, 1 << 17 | 0x41);
    write(0x838, 1000);
    with(irq::rest);
    assert!(put(vcpu).is_some(), "its interrupt does not wait yet");
    vcpu.attention.put();
    load(vcpu);
    fakes::set("TSC", 1_000_000);
    with(irq::timer);
    with(irq::rest);
    for _ in 0..2 {
        assert_eq!(put(vcpu), None);
        vcpu.attention.put();
        load(vcpu);
    }
    with(irq::rise);
    assert!(put(vcpu).is_some_and(|at| at > 1_000_000));
}

#[test]
fn pause_leaves_the_guest_while_somebody_waits() {
    use turnstile_threads::Architecture;
    let vcpus = facility::tests::vcpus(1);
    let pauses = || vcpus[0].with_vmcb(|vmcb| vmcb.intercepts()[0] >> 23 & 1);
    vcpus[0].with_vmcb(crate::cpu::svm::intercept::set);
    for waited_for in [true, true, false] {
        Svm::waited_for(Some(vcpus[0]), &mut (), waited_for);
        assert_eq!(pauses(), u32::from(waited_for));
    }
}
