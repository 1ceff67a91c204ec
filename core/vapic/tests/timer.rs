// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The APIC timer against one that counts down tick by tick.

mod common;

use common::world::World;
use proptest::prelude::*;

const ONE_SHOT: u64 = 0;
const PERIODIC: u64 = 1 << 17;
const DEADLINE: u64 = 2 << 17;
const VECTOR: u64 = 0xec;

/// A prescaler and a counter.
struct Counter {
    periodic: bool,
    initial: u32,
    count: u32,
    prescale: u32,
    divider: u32,
    fired: u32,
}

impl Counter {
    fn tick(&mut self) {
        if self.count == 0 {
            return;
        }
        self.prescale += 1;
        if self.prescale == self.divider {
            self.prescale = 0;
            self.count -= 1;
            if self.count == 0 {
                self.fired += 1;
                if self.periodic {
                    self.count = self.initial;
                }
            }
        }
    }
}

fn write(world: &mut World, msr: u32, value: u64) {
    world.with(|lapic, cx| lapic.write_msr(cx, msr, value)).expect("allowed");
}

fn current(world: &mut World) -> u32 {
    world.with(|lapic, cx| lapic.read_msr(cx, 0x839)).expect("allowed") as u32
}

/// Lets the machine's timer do what it was armed for, and takes the interrupt if there is one.
fn fire(world: &mut World) -> bool {
    if world.machine.clock < world.machine.armed {
        return false;
    }
    world.with(|lapic, cx| lapic.timer(cx));
    let taken = world.machine.take();
    if taken.is_some() {
        assert_eq!(taken, Some(VECTOR as u8));
        write(world, 0x80b, 0);
    }
    taken.is_some()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn counts_and_fires_as_a_counter_does(
        divide in prop::sample::select(vec![(0xbu64, 1u32), (0, 2), (1, 4), (2, 8), (3, 16), (8, 32), (9, 64), (0xa, 128)]),
        count in 1u32..400,
        periodic in any::<bool>(),
        steps in prop::collection::vec(1u64..3000, 1..20),
    ) {
        // Long enough for a periodic one not to be held back.
        let count = if periodic { count + 20_000 } else { count };
        let mut world = World::new(false);
        world.machine.clock = 1_000_000;
        write(&mut world, 0x83e, divide.0);
        write(&mut world, 0x832, VECTOR | if periodic { PERIODIC } else { ONE_SHOT });
        write(&mut world, 0x838, count.into());
        let mut counter = Counter { periodic, initial: count, count, prescale: 0, divider: divide.1, fired: 0 };
        let mut fired = 0;
        for ticks in steps {
            let ticks = ticks * if periodic { 40 } else { 1 };
            for _ in 0..ticks {
                counter.tick();
                world.machine.clock += 1;
                fired += u32::from(fire(&mut world));
            }
            prop_assert_eq!(fired, counter.fired);
            prop_assert_eq!(current(&mut world), counter.count);
        }
    }
}

#[test]
fn a_deadline_fires_once_and_at_once_if_it_has_passed() {
    let mut world = World::new(false);
    world.machine.clock = 5000;
    let set = |world: &mut World, value| world.with(|lapic, cx| lapic.set_tsc_deadline(cx, value));
    set(&mut world, 6000);
    assert_eq!(world.lapic.tsc_deadline(), 0, "ignored in another mode");
    write(&mut world, 0x832, VECTOR | DEADLINE);
    set(&mut world, 6000);
    assert_eq!((world.lapic.tsc_deadline(), world.machine.armed), (6000, 6000));
    write(&mut world, 0x838, 77);
    assert_eq!(world.with(|lapic, cx| lapic.read_msr(cx, 0x838)), Ok(0), "the counter is not in use");
    assert!(!fire(&mut world));
    world.machine.clock = 6000;
    assert!(fire(&mut world));
    assert_eq!((world.lapic.tsc_deadline(), world.machine.armed), (0, u64::MAX));
    assert!(!fire(&mut world));
    for passed in [10, 6000] {
        set(&mut world, passed);
        assert_eq!(world.machine.take(), Some(VECTOR as u8), "before the guest goes on");
        write(&mut world, 0x80b, 0);
        assert_eq!((world.lapic.tsc_deadline(), world.machine.armed), (0, u64::MAX));
    }
    set(&mut world, 6001);
    assert_eq!((world.machine.take(), world.machine.armed), (None, 6001));
    set(&mut world, 9000);
    world.with(|lapic, cx| lapic.shift_clock(cx.hardware, 1000));
    assert_eq!(world.machine.armed, 9000, "a deadline is a value of the counter that moved");
    write(&mut world, 0x832, VECTOR);
    assert_eq!(world.machine.armed, u64::MAX);
    write(&mut world, 0x838, 500);
    let left = world.machine.armed - world.machine.clock;
    world.machine.clock += 1000;
    world.with(|lapic, cx| lapic.shift_clock(cx.hardware, 1000));
    assert_eq!(world.machine.armed, world.machine.clock + left, "a count is not");
}

#[test]
fn a_count_that_has_ended_stays_at_zero_whatever_the_mode_becomes() {
    let mut world = World::new(false);
    write(&mut world, 0x83e, 0xb);
    write(&mut world, 0x832, VECTOR | ONE_SHOT);
    write(&mut world, 0x838, 30_000);
    world.machine.clock += 30_000;
    assert!(fire(&mut world));
    write(&mut world, 0x832, VECTOR | PERIODIC);
    for _ in 0..3 {
        assert_eq!((current(&mut world), world.machine.armed), (0, u64::MAX));
        world.machine.clock += 40_000;
        assert!(!fire(&mut world));
    }
    write(&mut world, 0x83e, 0);
    assert_eq!((current(&mut world), world.machine.armed), (0, u64::MAX), "nor by another divider");
    assert_eq!(world.with(|lapic, cx| lapic.read_msr(cx, 0x838)), Ok(30_000), "the initial count is kept");
    // Started again, it counts; one that still counts goes on in the other mode.
    write(&mut world, 0x83e, 0xb);
    write(&mut world, 0x838, 30_000);
    world.machine.clock += 10_000;
    write(&mut world, 0x832, VECTOR | ONE_SHOT);
    assert_eq!(current(&mut world), 20_000);
    write(&mut world, 0x832, VECTOR | PERIODIC);
    world.machine.clock += 20_000;
    assert!(fire(&mut world));
    assert_eq!(current(&mut world), 30_000);
}

#[test]
fn what_expires_behind_the_mask_is_gone() {
    let mut world = World::new(false);
    write(&mut world, 0x83e, 0xb);
    write(&mut world, 0x832, VECTOR | 1 << 16);
    write(&mut world, 0x838, 100);
    assert_eq!(world.machine.armed, u64::MAX);
    world.machine.clock += 500;
    write(&mut world, 0x832, VECTOR);
    assert!(!fire(&mut world));
    write(&mut world, 0x838, 100);
    world.machine.clock += 50;
    assert_eq!(current(&mut world), 50);
    write(&mut world, 0x83e, 0x0);
    world.machine.clock += 50;
    assert_eq!(current(&mut world), 25, "the divider changes, the count stays");
    assert_eq!(world.machine.armed, world.machine.clock + 50);
}

#[test]
fn a_period_that_nobody_could_keep_up_with_is_stretched() {
    let mut world = World::new(false);
    write(&mut world, 0x83e, 0xb);
    write(&mut world, 0x832, VECTOR | PERIODIC);
    write(&mut world, 0x838, 1);
    world.machine.clock += 1;
    assert!(fire(&mut world));
    assert!(world.machine.armed >= world.machine.clock + 19_000);
    // Missed ones are one.
    world.machine.clock += 1_000_000;
    assert!(fire(&mut world));
    assert!(!fire(&mut world));
}

#[test]
fn while_a_vcpu_halts_the_timer_rests_if_its_interrupt_waits() {
    const PERIOD: u64 = 30_000;
    let mut world = World::new(false);
    let rest = |world: &mut World| world.with(|lapic, cx| lapic.rest(cx));
    let rise = |world: &mut World| world.with(|lapic, cx| lapic.rise(cx));
    let tick = |world: &mut World| {
        world.machine.clock = world.machine.armed;
        world.with(|lapic, cx| lapic.timer(cx));
    };
    write(&mut world, 0x83e, 0xb);
    write(&mut world, 0x832, VECTOR | PERIODIC);
    write(&mut world, 0x838, PERIOD);
    let first = world.machine.armed;
    rest(&mut world);
    assert_eq!(world.machine.armed, first, "nothing waits yet");
    tick(&mut world);
    // Taken, and not ended: the next one has to be seen.
    assert_eq!(world.machine.take(), Some(VECTOR as u8));
    rest(&mut world);
    assert_eq!(world.machine.armed, first + PERIOD);
    tick(&mut world);
    for _ in 0..2 {
        rest(&mut world);
        assert_eq!((world.lapic.deadline(), world.machine.armed), (u64::MAX, u64::MAX));
        world.with(|lapic, cx| lapic.timer(cx));
    }
    world.machine.clock += 10 * PERIOD + 7;
    assert_eq!(current(&mut world), PERIOD as u32 - 7, "the count goes on");
    rise(&mut world);
    assert_eq!(world.machine.armed, first + 12 * PERIOD);
    write(&mut world, 0x80b, 0);
    assert_eq!(world.machine.take(), Some(VECTOR as u8), "what was missed is one");
    write(&mut world, 0x80b, 0);
    assert_eq!(world.machine.take(), None);
    rise(&mut world);
    assert_eq!(world.machine.armed, first + 12 * PERIOD, "it has not rested");
    // It would have rung meanwhile, and has been reset.
    tick(&mut world);
    rest(&mut world);
    world.with(|lapic, cx| lapic.init(cx));
    rise(&mut world);
    assert_eq!(world.machine.armed, u64::MAX);
}

#[test]
fn while_a_vcpu_halts_the_timer_rests_if_nothing_but_a_noted_error_could_come_of_it() {
    let mut world = World::new(false);
    write(&mut world, 0x83e, 0xb);
    write(&mut world, 0x832, 5 | PERIODIC);
    write(&mut world, 0x838, 30_000);
    let first = world.machine.armed;
    world.with(|lapic, cx| lapic.rest(cx));
    assert_eq!(world.machine.armed, first);
    world.machine.clock = first;
    world.with(|lapic, cx| lapic.timer(cx));
    world.with(|lapic, cx| lapic.rest(cx));
    assert_eq!(world.machine.armed, u64::MAX);
    world.with(|lapic, cx| lapic.rise(cx));
    assert_eq!(world.machine.armed, first + 30_000);
}
