// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Random and exhaustive histories on the APIC under test and on an ideal one, with paravirtual EOIs and without: the guest
//! must not be able to tell them apart by its interrupts, and nobody by the ends the I/O APIC hears of.

mod common;

use common::world::{Op, PLACE, World};
use proptest::prelude::*;
use turnstile_vapic::Event;

/// Vectors of few classes, so that they meet; 0x35 and 0x45 are level-triggered.
const VECTORS: [u8; 7] = [0x30, 0x31, 0x35, 0x41, 0x45, 0x52, 0xef];

const BURSTS: [&[u8]; 9] =
    [&[0x30], &[0x31], &[0x35], &[0x41], &[0x45], &[0xef], &[0x30, 0x41], &[0x31, 0x52, 0x35], &[0x52, 0xef]];

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        12 => prop::sample::select(&VECTORS[..]).prop_filter("edges", |v| v & 0xf != 5).prop_map(Op::SelfIpi),
        12 => prop::sample::select(&BURSTS[..]).prop_map(Op::Post),
        24 => Just(Op::End),
        3 => Just(Op::EndByRegister),
        3 => prop::sample::select(vec![0u8, 0x2f, 0x30, 0x51, 0xf0]).prop_map(Op::Priority),
        3 => prop::sample::select(vec![0u8, 3, 4, 15]).prop_map(Op::Cr8),
        6 => any::<bool>().prop_map(Op::Flag),
        6 => Just(Op::Observe),
        1 => any::<bool>().prop_map(Op::PvEoi),
        1 => Just(Op::Init),
    ]
}

/// Runs a history with and without; both agree with the ideal at each step. Returns the exits of each.
fn run(ops: &[Op]) -> (usize, usize) {
    let [with, without] = [true, false].map(|has_pv_eoi| {
        let mut world = World::new(has_pv_eoi);
        ops.iter().for_each(|op| world.step(*op));
        // Whatever is pending now comes when everything is open.
        world.step(Op::Cr8(0));
        world.step(Op::Flag(true));
        while !world.handling.is_empty() {
            world.step(Op::End);
        }
        world.step(Op::Observe);
        assert_eq!(world.ideal.registers(), [0; 16], "nothing is left");
        world
    });
    assert_eq!(with.taken, without.taken);
    (with.exits, without.exits)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn a_guest_sees_the_same_interrupts_with_and_without(ops in prop::collection::vec(op(), 1..120)) {
        run(&ops);
    }

    /// A guest that clears its word when it likes hurts itself at most: every interrupt is still taken, once, and all is
    /// quiet in the end.
    #[test]
    fn a_guest_that_clears_its_word_at_random_loses_nothing(
        steps in prop::collection::vec((prop::sample::select(&VECTORS[..]), 0u8..6, any::<bool>()), 1..80)
    ) {
        let mut world = World::new(true);
        let (mut latched, mut taken) = ([0u32; 256], [0u32; 256]);
        for (vector, act, flag) in steps {
            match act {
                0 | 1 => {
                    let word = u32::from(vector) / 32;
                    let pending = world.with(|lapic, cx| lapic.read_msr(cx, 0x820 + word)).expect("IRR");
                    latched[usize::from(vector)] += u32::from(pending >> (vector % 32) & 1 == 0);
                    world.with(|lapic, cx| lapic.write_msr(cx, 0x83f, vector.into())).expect("self-IPI");
                }
                2 | 3 => world.machine.word = false,
                4 => world.with(|lapic, cx| lapic.write_msr(cx, 0x80b, 0)).expect("EOI"),
                _ => {}
            }
            if flag && let Some(vector) = world.machine.take() {
                taken[usize::from(vector)] += 1;
            }
        }
        for _ in 0..32 {
            if let Some(vector) = world.machine.take() {
                taken[usize::from(vector)] += 1;
            }
            world.with(|lapic, cx| lapic.write_msr(cx, 0x80b, 0)).expect("EOI");
        }
        prop_assert_eq!(taken, latched);
        for word in (0..8).flat_map(|n| [0x810 + n, 0x820 + n]) {
            prop_assert_eq!(world.with(|lapic, cx| lapic.read_msr(cx, word)), Ok(0));
        }
    }
}

#[test]
fn all_short_histories() {
    const OPS: [Op; 9] = [
        Op::SelfIpi(0x30),
        Op::SelfIpi(0x31),
        Op::SelfIpi(0x41),
        Op::Post(&[0x35]),
        Op::End,
        Op::Flag(false),
        Op::Flag(true),
        Op::Cr8(3),
        Op::Observe,
    ];
    let length = 5;
    let mut history = vec![0usize; length];
    loop {
        run(&history.iter().map(|at| OPS[*at]).collect::<Vec<_>>());
        let Some(at) = history.iter().position(|at| *at + 1 < OPS.len()) else { break };
        history[at] += 1;
        history[..at].fill(0);
    }
}

/// The seed's promise: what came and went alone costs one exit instead of two.
#[test]
fn a_lone_interrupt_takes_one_exit_instead_of_two() {
    let ops: Vec<Op> = (0..100).flat_map(|_| [Op::SelfIpi(0x41), Op::End]).collect();
    let mut counts = [true, false].map(|has_pv_eoi| {
        let mut world = World::new(has_pv_eoi);
        ops.iter().for_each(|op| world.step(*op));
        (world.exits, world)
    });
    assert_eq!((counts[0].0, counts[1].0), (100, 200));
    // The last one's end is not known yet.
    counts[0].1.step(Op::Observe);
    let count = |world: &World, event| world.machine.events.iter().filter(|e| **e == event).count();
    assert_eq!(count(&counts[0].1, Event::PvEoi), 100);
    assert_eq!(count(&counts[0].1, Event::Eoi), 0);
    assert_eq!(count(&counts[1].1, Event::Eoi), 100);
    for (_, world) in &counts {
        assert_eq!(count(world, Event::Injected), 100);
        assert_eq!(count(world, Event::Accepted), 100);
    }
}

/// Nesting is detected through the word: the inner interrupt takes back what the outer one was promised.
#[test]
fn a_nested_interrupt_takes_the_promise_back() {
    let mut world = World::new(true);
    world.step(Op::SelfIpi(0x31));
    assert!(world.machine.word);
    world.step(Op::SelfIpi(0x41));
    assert!(!world.machine.word);
    assert_eq!(world.handling, [0x31, 0x41]);
    world.step(Op::End);
    assert!(world.machine.word, "the outer one is alone again");
    world.step(Op::End);
    world.step(Op::Observe);
    assert_eq!(world.exits - 18, 3, "two interrupts and one end");
}

/// An end by the word that nobody looked at is found when the next interrupt comes, in each order of things.
#[test]
fn a_word_cleared_before_the_interrupt_was_taken_ends_nothing() {
    let mut world = World::new(true);
    world.step(Op::Flag(false));
    world.step(Op::SelfIpi(0x41));
    assert!(world.machine.word, "offered with the interrupt");
    world.machine.word = false;
    world.step(Op::Observe);
    assert!(world.machine.word, "and again");
    world.step(Op::Flag(true));
    assert_eq!(world.handling, [0x41]);
    world.step(Op::End);
    world.step(Op::Observe);
}

#[test]
fn turning_it_off_takes_the_bit_back_and_keeps_the_interrupt() {
    let mut world = World::new(true);
    world.step(Op::SelfIpi(0x41));
    world.step(Op::PvEoi(false));
    assert!(!world.machine.word);
    world.step(Op::Observe);
    world.step(Op::End);
    world.step(Op::Observe);
    assert!(world.handling.is_empty());
}

#[test]
fn the_msr_refuses_reserved_bits_and_addresses_without_memory() {
    let mut world = World::new(true);
    let before = world.lapic.pv_eoi();
    let mut write = |value, place| world.with(|lapic, cx| lapic.set_pv_eoi(cx, value, |_| place));
    assert!(write(PLACE.get() | 3, Some(PLACE)).is_err());
    assert!(write(PLACE.get() | 2, Some(PLACE)).is_err());
    assert!(write(0x7fff_ffff_f001, None).is_err());
    assert_eq!(world.lapic.pv_eoi(), before, "nothing changed");
    // Off, no address is looked at.
    assert!(world.with(|lapic, cx| lapic.set_pv_eoi(cx, 0xdead_0000, |_| panic!("looked"))).is_ok());
    assert_eq!(world.lapic.pv_eoi(), 0xdead_0000);
}

/// INIT and reset switch it off, and leave the guest's memory alone.
#[test]
fn init_turns_it_off() {
    let mut world = World::new(true);
    world.step(Op::SelfIpi(0x41));
    world.with(|lapic, cx| lapic.init(cx));
    assert_eq!(world.lapic.pv_eoi(), 0);
    world.machine.word = true;
    world.with(|lapic, cx| lapic.write_msr(cx, 0x80f, 0x1ff)).expect("enable");
    world.with(|lapic, cx| lapic.write_msr(cx, 0x83f, 0x41)).expect("self-IPI");
    assert!(world.machine.word, "not touched");
}
