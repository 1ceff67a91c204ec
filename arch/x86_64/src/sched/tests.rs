// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Switches on the host, against fakes.

use std::boxed::Box;
use std::vec::Vec;

use turnstile_sched::Class;
use turnstile_vm::attention::Posted;
use turnstile_vm::attention::Reasons;

use super::thread::{load, put};
use super::*;
use crate::cpu;
use crate::facility;
use crate::regs::fakes::{self, Access};

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

#[test]
fn pause_leaves_the_guest_while_somebody_waits() {
    use turnstile_threads::Architecture;
    let vcpus = facility::tests::vcpus(1);
    let pauses = || vcpus[0].with_vmcb(|vmcb| vmcb.intercepts()[0] >> 23 & 1);
    vcpus[0].with_vmcb(crate::svm::intercept::set);
    for waited_for in [true, true, false] {
        Svm::waited_for(Some(vcpus[0]), &mut (), waited_for);
        assert_eq!(pauses(), u32::from(waited_for));
    }
}
