// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The toy hypervisor of `examples/` beside the ideal interrupt controller.
#![cfg(not(loom))]

mod common;
#[path = "../examples/toy.rs"]
mod toy;

use common::reference::Reference;
use proptest::prelude::*;
use toy::Toy;
use turnstile_vgic::Model;

const VCPUS: usize = 2;
const SPI: std::ops::Range<u32> = 32..40;

#[derive(Clone, Debug)]
enum Op {
    Sgi { from: usize, to: usize, intid: u32 },
    Line(u32, bool),
    Acknowledge(usize),
    End(usize),
}

fn op() -> impl Strategy<Value = Op> {
    let vcpu = || 0..VCPUS;
    prop_oneof![
        (vcpu(), vcpu(), 0u32..16).prop_map(|(from, to, intid)| Op::Sgi { from, to, intid }),
        (SPI, any::<bool>()).prop_map(|(intid, high)| Op::Line(intid, high)),
        vcpu().prop_map(Op::Acknowledge),
        vcpu().prop_map(Op::End),
    ]
}

/// Both with everything enabled: SGIs before SPIs, the lower INTID first, eight to a priority.
fn both() -> (Toy, Reference) {
    let (toy, mut reference) = (Toy::new(VCPUS as u64), Reference::new(Model::Gicv3, VCPUS, 32));
    toy.write(0, 0, 2);
    reference.groups = [false, true];
    for vcpu in 0..VCPUS {
        toy.write_private(vcpu, 0x100, 0xffff);
        (8..16).step_by(4).for_each(|intid| toy.write_private(vcpu, 0x400 + intid, 0x0808_0808));
        for intid in 0..16 {
            let interrupt = reference.get(vcpu, intid);
            (interrupt.enabled, interrupt.priority) = (true, if intid < 8 { 0 } else { 8 });
        }
    }
    toy.write(0, 0x104, 0xff);
    SPI.step_by(4).for_each(|intid| toy.write(0, 0x400 + intid, 0x1010_1010));
    for intid in SPI {
        let interrupt = reference.get(0, intid);
        (interrupt.enabled, interrupt.priority) = (true, 16);
    }
    (toy, reference)
}

fn step(toy: &Toy, reference: &mut Reference, op: Op) {
    match op {
        Op::Sgi { from, to, intid } if from != to => {
            toy.write_sgi1r(from, u64::from(intid) << 24 | 1 << to);
            reference.get(to, intid).latch = true;
        }
        Op::Sgi { .. } => {}
        Op::Line(intid, high) => {
            toy.line(intid, high);
            reference.get(0, intid).set_line(high);
        }
        Op::Acknowledge(vcpu) => {
            toy.enter(vcpu);
            let expected = reference.signaled(vcpu);
            match toy.acknowledge(vcpu) {
                Some(intid) => {
                    assert!(expected.contains(&intid), "INTID {intid} instead of one of {expected:?}");
                    reference.acknowledge(vcpu, intid, 0);
                }
                None => assert!(expected.is_empty(), "nothing instead of one of {expected:?}"),
            }
        }
        Op::End(vcpu) => {
            if let Some(intid) = reference.end_of_interrupt(vcpu) {
                toy.end(vcpu, intid);
            }
        }
    }
}

proptest! {
    #[test]
    fn the_toy_gives_what_an_ideal_controller_gives(ops in proptest::collection::vec(op(), 1..200)) {
        let (toy, mut reference) = both();
        ops.into_iter().for_each(|op| step(&toy, &mut reference, op));
        for _ in 0..64 {
            (0..VCPUS).for_each(|vcpu| step(&toy, &mut reference, Op::Acknowledge(vcpu)));
            (0..VCPUS).for_each(|vcpu| step(&toy, &mut reference, Op::End(vcpu)));
        }
    }
}
