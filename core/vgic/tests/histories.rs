// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Random and exhaustive histories on the code under test and on an ideal interrupt controller: the
//! guest must not be able to tell them apart, with 1 to 16 list registers, on both models.

mod common;

use common::world::{Op, TIMER, World};
use proptest::prelude::*;
use turnstile_vgic::Model;

/// Few interrupts, so that the same one meets with much, or many, so that list registers run out.
fn intid(wide: bool) -> BoxedStrategy<u32> {
    if wide {
        prop_oneof![0u32..16, 16u32..32, 32u32..60].boxed()
    } else {
        prop::sample::select(vec![0, 1, 20, 21, TIMER, 32, 33, 34]).boxed()
    }
}

fn op(wide: bool) -> impl Strategy<Value = Op> {
    let id = || intid(wide);
    let priority = prop::sample::select(vec![0x00u8, 0x40, 0x80, 0x88, 0xa0, 0xf0]);
    prop_oneof![
        14 => Just(Op::Acknowledge),
        12 => Just(Op::EndOfInterrupt),
        8 => (0usize..8, 0usize..3).prop_map(|(nth, from)| Op::Deactivate { nth, from }),
        6 => (id(), any::<bool>()).prop_map(|(id, on)| Op::Enable(id, on)),
        8 => (id(), prop::bool::weighted(0.7)).prop_map(|(id, on)| Op::Pend(id, on)),
        5 => (id(), any::<bool>()).prop_map(|(id, on)| Op::Activate(id, on)),
        4 => (id(), priority).prop_map(|(id, priority)| Op::Priority(id, priority)),
        3 => (id(), any::<bool>()).prop_map(|(id, on)| Op::Group1(id, on)),
        3 => (id(), any::<bool>()).prop_map(|(id, on)| Op::Edge(id, on)),
        5 => (id(), 0usize..8).prop_map(|(id, target)| Op::Route(id, target)),
        2 => any::<(bool, bool)>().prop_map(|(a, b)| Op::Groups(a, b)),
        8 => (0u32..2, 0usize..4, prop::bool::weighted(0.8))
            .prop_map(|(intid, to, group1)| Op::Sgi { intid, to, group1 }),
        3 => (0u32..2, any::<u8>(), any::<bool>())
            .prop_map(|(intid, senders, pend)| Op::Senders { intid, senders, pend }),
        10 => (id(), any::<bool>()).prop_map(|(id, high)| Op::Line(id, high)),
        6 => id().prop_map(Op::Pulse),
        12 => id().prop_map(Op::Message),
        4 => any::<bool>().prop_map(Op::Timer),
        2 => prop::sample::select(vec![0xffu8, 0xf0, 0x80, 0x40, 0]).prop_map(Op::Mask),
        3 => (prop::bool::weighted(0.7), prop::bool::weighted(0.7))
            .prop_map(|(a, b)| Op::InterfaceGroups(a, b)),
        2 => any::<bool>().prop_map(Op::EoiMode),
        2 => Just(Op::PutLoad),
        2 => prop::bool::weighted(0.6).prop_map(Op::Power),
        4 => id().prop_map(Op::Observe),
        1 => Just(Op::Spurious),
        2 => Just(Op::Synchronize),
    ]
}

fn step(wide: bool) -> impl Strategy<Value = (usize, Op, bool)> {
    (0usize..3, op(wide), prop::bool::weighted(0.2))
}

/// Enables everything, so that histories need not find that out.
fn ready(world: &mut World, wide: bool) {
    world.step(0, Op::Groups(true, true), false);
    let vcpus = world.machine.cpus.len();
    let all: Vec<u32> = if wide { (0..60).collect() } else { vec![0, 1, 20, TIMER, 32, 33, 34] };
    for intid in all {
        for vcpu in 0..if intid < 32 { vcpus } else { 1 } {
            world.step(vcpu, Op::Enable(intid, true), false);
            world.step(vcpu, Op::Priority(intid, (intid * 40) as u8), false);
        }
        if intid >= 32 {
            // Of a GICv2 this is a mask.
            let gicv2 = world.machine.vgic.model() == Model::Gicv2;
            let target = intid as usize % vcpus;
            world.step(0, Op::Route(intid, if gicv2 { 1 << target } else { target }), false);
        }
    }
}

fn run(model: Model, vcpus: usize, list_registers: usize, wide: bool, steps: &[(usize, Op, bool)]) {
    let mut world = World::new(model, vcpus, list_registers);
    ready(&mut world, wide);
    for (vcpu, op, lazy) in steps {
        world.step(vcpu % vcpus, *op, *lazy);
    }
    world.settle();
    for vcpu in 0..vcpus {
        world.compare_registers(vcpu);
    }
    world.settle();
}

fn model() -> impl Strategy<Value = Model> {
    prop::sample::select(vec![Model::Gicv2, Model::Gicv3])
}

/// Runs so many cases, or as many as `PROPTEST_CASES` asks for.
fn cases(default: u32) -> ProptestConfig {
    let config = ProptestConfig { failure_persistence: None, ..ProptestConfig::default() };
    let asked = std::env::var_os("PROPTEST_CASES").is_some();
    ProptestConfig { cases: if asked { config.cases } else { default }, ..config }
}

proptest! {
    #![proptest_config(cases(150))]

    #[test]
    fn few_interrupts(
        model in model(),
        vcpus in 1usize..=3,
        list_registers in 1usize..=4,
        steps in prop::collection::vec(step(false), 1..80),
    ) {
        run(model, vcpus, list_registers, false, &steps);
    }
}

proptest! {
    #![proptest_config(cases(75))]

    #[test]
    fn many_interrupts(
        model in model(),
        vcpus in 1usize..=3,
        list_registers in 1usize..=16,
        steps in prop::collection::vec(step(true), 1..120),
    ) {
        run(model, vcpus, list_registers, true, &steps);
    }
}

/// What meets when many vCPUs send one another the same few SGIs.
fn sending() -> impl Strategy<Value = (usize, Op, bool)> {
    let op = prop_oneof![
        10 => (0u32..3, 0usize..9, any::<bool>()).prop_map(|(intid, to, group1)| Op::Sgi { intid, to, group1 }),
        6 => Just(Op::Acknowledge),
        5 => Just(Op::EndOfInterrupt),
        3 => Just(Op::Deactivate { nth: 0, from: 0 }),
        2 => (0u32..3, any::<u8>(), any::<bool>())
            .prop_map(|(intid, senders, pend)| Op::Senders { intid, senders, pend }),
        1 => (0u32..3, any::<bool>()).prop_map(|(intid, on)| Op::Enable(intid, on)),
        1 => (0u32..3, any::<bool>()).prop_map(|(intid, on)| Op::Activate(intid, on)),
        1 => (0u32..3, prop::sample::select(vec![0u8, 0x80])).prop_map(|(intid, to)| Op::Priority(intid, to)),
        1 => any::<bool>().prop_map(Op::EoiMode),
        1 => Just(Op::PutLoad),
        1 => prop::bool::weighted(0.7).prop_map(Op::Power),
        2 => (0u32..3).prop_map(Op::Observe),
    ];
    // Most of what happens happens to vCPU 0, so that much comes together there.
    (prop_oneof![1 => Just(0usize), 2 => 0usize..8], op, prop::bool::weighted(0.3))
}

proptest! {
    #![proptest_config(cases(100))]

    #[test]
    fn many_senders(
        vcpus in 2usize..=8,
        list_registers in 1usize..=3,
        steps in prop::collection::vec(sending(), 1..150),
    ) {
        run(Model::Gicv2, vcpus, list_registers, false, &steps);
    }
}

/// Optimized builds can afford longer histories.
const DEEPER: u32 = if cfg!(debug_assertions) { 0 } else { 1 };

/// Runs all histories of a length over an alphabet, and looks at the registers after each.
fn exhaust(list_registers: usize, length: u32, alphabet: &[Op], setup: &[Op]) {
    exhaust_on(Model::Gicv3, 1, list_registers, length, alphabet, setup);
    exhaust_on(Model::Gicv2, 1, list_registers, length, alphabet, setup);
}

/// Does [`exhaust`] on vCPU 0 of one model.
fn exhaust_on(model: Model, vcpus: usize, list_registers: usize, length: u32, alphabet: &[Op], setup: &[Op]) {
    let count = alphabet.len();
    for number in 0..count.pow(length) {
        if matches!(alphabet[number % count], Op::Acknowledge | Op::EndOfInterrupt | Op::Deactivate { .. }) {
            // Nothing has happened yet: this is a shorter history.
            continue;
        }
        let mut world = World::new(model, vcpus, list_registers);
        setup.iter().for_each(|op| world.step(0, *op, false));
        let mut rest = number;
        for _ in 0..length {
            world.step(0, alphabet[rest % count], false);
            rest /= count;
        }
        world.compare_registers_of(0, &[0, 1, 20, TIMER, 32]);
    }
}

/// Two SGIs of different priority, preempting each other, with one of them switched off and on.
#[test]
fn all_short_histories_of_two_sgis() {
    let sgi = |intid| Op::Sgi { intid, to: 0, group1: true };
    let alphabet =
        [sgi(0), sgi(1), Op::Acknowledge, Op::EndOfInterrupt, Op::Enable(0, false), Op::Enable(0, true)];
    let setup = [
        Op::Groups(true, true),
        Op::Enable(0, true),
        Op::Enable(1, true),
        Op::Priority(0, 0x40),
        Op::Priority(1, 0x80),
    ];
    exhaust(1, 5 + DEEPER, &alphabet, &setup);
    exhaust(2, 5 + DEEPER, &alphabet, &setup);
}

/// A level line, the hardware-backed timer and an SPI.
#[test]
fn all_short_histories_of_lines() {
    let alphabet = [
        Op::Line(20, true),
        Op::Line(20, false),
        Op::Timer(true),
        Op::Timer(false),
        Op::Pulse(32),
        Op::Acknowledge,
        Op::EndOfInterrupt,
    ];
    let setup = [
        Op::Groups(true, true),
        Op::Enable(20, true),
        Op::Enable(TIMER, true),
        Op::Enable(32, true),
        Op::Priority(20, 0x80),
        Op::Priority(TIMER, 0x40),
        Op::Priority(32, 0x80),
    ];
    exhaust(1, 5 + DEEPER, &alphabet, &setup);
    exhaust(2, 5 + DEEPER, &alphabet, &setup);
}

/// Priority drop and deactivation apart, with registers written meanwhile.
#[test]
fn all_short_histories_of_split_deactivation() {
    let alphabet = [
        Op::Pend(0, true),
        Op::Pend(32, true),
        Op::Activate(0, true),
        Op::Activate(32, false),
        Op::Acknowledge,
        Op::EndOfInterrupt,
        Op::Deactivate { nth: 0, from: 0 },
    ];
    let setup = [
        Op::EoiMode(true),
        Op::Groups(true, true),
        Op::Enable(0, true),
        Op::Enable(32, true),
        Op::Priority(0, 0x80),
        Op::Priority(32, 0x40),
    ];
    exhaust(1, 5 + DEEPER, &alphabet, &setup);
    exhaust(2, 5 + DEEPER, &alphabet, &setup);
}

/// One SGI from three senders and another one of higher priority, with both ways to end them.
#[test]
fn all_short_histories_of_several_senders() {
    let senders = |senders, pend| Op::Senders { intid: 0, senders, pend };
    let alphabet = [
        senders(0b001, true),
        senders(0b110, true),
        senders(0b010, false),
        Op::Sgi { intid: 1, to: 0, group1: true },
        Op::Acknowledge,
        Op::EndOfInterrupt,
        Op::Deactivate { nth: 0, from: 0 },
    ];
    for eoi_mode in [false, true] {
        let setup = [
            Op::EoiMode(eoi_mode),
            Op::Groups(true, true),
            Op::Priority(0, 0x80),
            Op::Priority(1, 0x40),
            senders(0b100, true),
        ];
        exhaust_on(Model::Gicv2, 3, 1, 4 + DEEPER, &alphabet, &setup);
        exhaust_on(Model::Gicv2, 3, 2, 4 + DEEPER, &alphabet, &setup);
    }
}

/// Interrupts of both groups, one of them inside and the other out, while the guest switches the groups of its
/// interface.
#[test]
fn all_short_histories_of_groups() {
    let alphabet = [
        Op::Pend(32, true),
        Op::Pend(33, true),
        Op::InterfaceGroups(true, false),
        Op::InterfaceGroups(false, true),
        Op::InterfaceGroups(true, true),
        Op::Acknowledge,
        Op::EndOfInterrupt,
    ];
    for (first, second) in [(false, true), (true, false)] {
        let setup = [
            Op::Groups(true, true),
            Op::Enable(32, true),
            Op::Enable(33, true),
            Op::Group1(32, first),
            Op::Group1(33, second),
            Op::Priority(32, 0x40),
            Op::Priority(33, 0x80),
        ];
        exhaust(1, 4 + DEEPER, &alphabet, &setup);
    }
}
