// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Who gets how much, over long and random histories.
#![cfg(not(loom))]

mod common;

use common::{Machine, SLICE, shared};
use proptest::prelude::*;
use turnstile_sched::Class;

const FAIR: Class = Class::Fair { weight: 100 };
const ON_ONE: &[u32] = &[0];

fn assert_shares(ran: &[u64], expected: &[u64], slack: u64) {
    for (thread, (ran, expected)) in ran.iter().zip(expected).enumerate() {
        assert!(ran.abs_diff(*expected) <= slack, "thread {thread}: {ran} instead of {expected} (± {slack})");
    }
}

#[test]
fn equals_share_a_cpu_equally() {
    let shared = shared(&[(FAIR, ON_ONE); 4], 1);
    let mut machine = Machine::new(&shared);
    machine.run_until(400 * SLICE);
    assert_shares(&machine.ran, &[100 * SLICE; 4], SLICE);
}

#[test]
fn three_equals_on_two_cpus_get_two_thirds_each() {
    let shared = shared(&[(FAIR, &[0, 1]), (FAIR, &[0, 1]), (FAIR, &[1, 0])], 2);
    let mut machine = Machine::new(&shared);
    machine.run_until(3000 * SLICE);
    assert_shares(&machine.ran, &[2000 * SLICE; 3], 4 * SLICE);
    assert!(machine.moves.iter().sum::<u32>() < 1600, "they move all the time: {:?}", machine.moves);
}

#[test]
fn who_is_long_on_its_way_is_owed_the_time() {
    // One alone moves between those that have a CPU each. If only four slices of the way were owed to it, it got
    // 1302.
    let shared = shared(&[(FAIR, &[0]), (FAIR, &[1]), (FAIR, &[0, 1])], 2);
    let mut machine = Machine::new(&shared);
    machine.late = 6 * SLICE;
    machine.run_until(3000 * SLICE);
    assert_shares(&machine.ran[2..], &[2000 * SLICE], 100 * SLICE);
}

#[test]
fn seven_equals_on_three_cpus_get_three_sevenths_each() {
    let all: &[u32] = &[0, 1, 2];
    let shared = shared(&[(FAIR, all); 7], 3);
    let mut machine = Machine::new(&shared);
    machine.run_until(7000 * SLICE);
    assert_shares(&machine.ran, &[3000 * SLICE; 7], 8 * SLICE);
}

#[test]
fn one_that_may_move_finds_its_place_beside_those_that_may_not() {
    // CPU 0 has three of its own, CPU 1 one: the fifth belongs on CPU 1, where it gets a half.
    let shared = shared(&[(FAIR, &[0]), (FAIR, &[0]), (FAIR, &[0]), (FAIR, &[1]), (FAIR, &[0, 1])], 2);
    let mut machine = Machine::new(&shared);
    machine.run_until(3000 * SLICE);
    assert_shares(&machine.ran[3..], &[1500 * SLICE; 2], 8 * SLICE);
    // When those of CPU 0 have gone, it gets a CPU for itself; the drift of years before counts for nothing.
    for thread in [0, 1, 2] {
        while machine.runs_on(thread).is_none() {
            let end = machine.now + SLICE;
            machine.run_until(end);
        }
        machine.park(thread, None);
    }
    let before = machine.ran.clone();
    let end = machine.now + 100 * SLICE;
    machine.run_until(end);
    assert_shares(&[machine.ran[3] - before[3], machine.ran[4] - before[4]], &[100 * SLICE; 2], 3 * SLICE);
}

#[test]
fn an_idle_cpu_gets_what_waits_elsewhere() {
    let shared = shared(&[(FAIR, &[0, 1]), (FAIR, &[0, 1])], 2);
    let mut machine = Machine::new(&shared);
    machine.run_until(10 * SLICE);
    assert_eq!(machine.ran, [10 * SLICE; 2]);
}

#[test]
fn a_cpu_with_one_thread_has_no_tick() {
    let shared = shared(&[(FAIR, &[0])], 1);
    let machine = Machine::new(&shared);
    assert_eq!(machine.queues[0].deadline(), None);
}

#[test]
fn a_sleeper_wakes_on_time_while_others_spin() {
    let shared = shared(&[(FAIR, ON_ONE); 3], 1);
    let mut machine = Machine::new(&shared);
    machine.run_until(10 * SLICE);
    let sleeper = (0..3).find(|thread| machine.runs_on(*thread).is_some()).unwrap();
    for _ in 0..20 {
        let wanted = machine.now + 7 * SLICE / 2;
        machine.park(sleeper, Some(wanted));
        machine.run_until(wanted);
        assert_eq!(machine.runs_on(sleeper), Some(0), "it preempts those that spin, at its deadline");
        machine.run_until(wanted + SLICE / 10);
    }
}

#[test]
fn who_sleeps_long_saves_no_more_than_a_slice() {
    let shared = shared(&[(FAIR, ON_ONE); 2], 1);
    let mut machine = Machine::new(&shared);
    let sleeper = (0..2).find(|thread| machine.runs_on(*thread).is_some()).unwrap();
    machine.park(sleeper, None);
    machine.run_until(1000 * SLICE);
    let before = machine.ran.clone();
    machine.wake(sleeper);
    machine.run_until(1100 * SLICE);
    assert_shares(&[machine.ran[sleeper] - before[sleeper]], &[50 * SLICE], 3 * SLICE / 2);
}

#[test]
fn stolen_is_what_was_waited() {
    let shared = shared(&[(FAIR, ON_ONE); 2], 1);
    let mut machine = Machine::new(&shared);
    machine.run_until(1000 * SLICE);
    for thread in shared.threads.iter() {
        assert!(thread.stolen().abs_diff(500 * SLICE) <= SLICE);
    }
}

#[test]
fn whoever_waits_there_is_a_tick_for_each_slice_and_no_more() {
    let lower = Class::RealTime { priority: 1 };
    for other in [FAIR, lower] {
        let shared = shared(&[(Class::RealTime { priority: 2 }, ON_ONE), (other, ON_ONE)], 1);
        let mut machine = Machine::new(&shared);
        machine.run_until(100 * SLICE);
        assert_eq!(machine.ran, [100 * SLICE, 0]);
        assert!(machine.looks <= 110, "{} looks", machine.looks);
    }
}

#[test]
fn waiting_goes_on_while_one_is_given_away() {
    let shared = shared(&[(FAIR, &[0, 1]), (FAIR, &[0, 1]), (FAIR, &[1, 0])], 2);
    let mut machine = Machine::new(&shared);
    machine.run_until(3000 * SLICE);
    for (thread, ran) in shared.threads.iter().zip(&machine.ran) {
        assert!((thread.stolen() + ran).abs_diff(3000 * SLICE) <= 4 * SLICE);
    }
}

proptest! {
    #[test]
    fn shares_are_within_a_slice_of_the_weights(weights in prop::collection::vec(1u16..=1000, 1..6)) {
        let threads: Vec<(Class, &[u32])> =
            weights.iter().map(|weight| (Class::Fair { weight: *weight }, &[0u32][..])).collect();
        let shared = shared(&threads, 1);
        let mut machine = Machine::new(&shared);
        let total: u64 = weights.iter().map(|weight| u64::from(*weight)).sum();
        let time = 10 * total * SLICE;
        machine.run_until(time);
        for (ran, weight) in machine.ran.iter().zip(&weights) {
            let expected = time * u64::from(*weight) / total;
            // Its own slice, and those of the others by which it can be late.
            prop_assert!(ran.abs_diff(expected) <= 2 * SLICE, "{} of {}", ran, expected);
        }
    }

    #[test]
    fn a_random_history_is_fair_to_those_that_always_want(
        events in prop::collection::vec((0usize..3, 1u64..4 * SLICE, any::<bool>()), 1..200),
    ) {
        // Threads 3 and 4 always want to run, with 1 : 2; the others come and go.
        let double = Class::Fair { weight: 200 };
        let shared = shared(&[(FAIR, &[0]), (FAIR, &[0]), (FAIR, &[0]), (FAIR, &[0]), (double, &[0])], 1);
        let mut machine = Machine::new(&shared);
        for (thread, time, sleeps) in events {
            let end = machine.now + time;
            machine.run_until(end);
            if machine.parked[thread] { machine.wake(thread) } else {
                machine.park(thread, sleeps.then_some(end + time));
            }
            prop_assert_eq!(machine.ran.iter().sum::<u64>(), machine.now, "the CPU never rests");
        }
        prop_assert!((2 * machine.ran[3]).abs_diff(machine.ran[4]) <= 4 * SLICE, "{:?}", machine.ran);
    }

    #[test]
    fn real_time_never_waits_behind_fair_and_equals_take_turns(
        events in prop::collection::vec((0usize..3, 1u64..3 * SLICE), 1..200),
    ) {
        let threads: [(Class, &[u32]); 5] = [
            (Class::RealTime { priority: 50 }, &[0]),
            (Class::RealTime { priority: 50 }, &[0]),
            (Class::RealTime { priority: 10 }, &[0]),
            (FAIR, &[0]),
            (FAIR, &[0]),
        ];
        let shared = shared(&threads, 1);
        let mut machine = Machine::new(&shared);
        for (thread, time) in events {
            let end = machine.now + time;
            let (both, before) = (!machine.parked[0] && !machine.parked[1], machine.ran.clone());
            machine.run_until(end);
            if both {
                let ran = [0, 1].map(|thread| machine.ran[thread] - before[thread]);
                prop_assert_eq!(ran[0] + ran[1], time, "nobody else runs");
                prop_assert!(ran[0].abs_diff(ran[1]) <= SLICE);
            }
            if machine.parked[thread] { machine.wake(thread) } else { machine.park(thread, None) }
            let highest = (0..5).filter(|thread| !machine.parked[*thread]).map(|thread| match thread {
                0 | 1 => 0,
                2 => 1,
                _ => 2,
            }).min();
            let runs = machine.queues[0].current().map(|thread| match thread { 0 | 1 => 0, 2 => 1, _ => 2 });
            prop_assert_eq!(runs, highest);
        }
    }

    #[test]
    fn equals_on_fewer_cpus_get_the_same_however_they_began(
        homes in prop::collection::vec(0usize..3, 4..8),
        naps in prop::collection::vec((0usize..8, 1u64..3 * SLICE), 0..12),
    ) {
        const SETS: [&[u32]; 3] = [&[0, 1, 2], &[1, 2, 0], &[2, 0, 1]];
        let threads: Vec<_> = homes.iter().map(|home| (FAIR, SETS[*home])).collect();
        let shared = shared(&threads, 3);
        let mut machine = Machine::new(&shared);
        for (thread, time) in naps {
            let end = machine.now + time;
            machine.run_until(end);
            if thread < homes.len() {
                machine.park(thread, Some(end + 2 * time));
            }
        }
        let settled = machine.now + 40 * SLICE;
        machine.run_until(settled);
        let (before, time) = (machine.ran.clone(), 400 * SLICE);
        machine.run_until(settled + time);
        let share = 3 * time / homes.len() as u64;
        for (ran, before) in machine.ran.iter().zip(before) {
            prop_assert!((ran - before).abs_diff(share) <= 8 * SLICE, "{} of {}", ran - before, share);
        }
    }

    #[test]
    fn on_several_cpus_no_cpu_rests_while_one_waits(
        events in prop::collection::vec((0usize..6, 1u64..4 * SLICE, any::<bool>()), 1..150),
    ) {
        let all: &[u32] = &[0, 1, 2];
        let shared = shared(&[(FAIR, all); 6], 3);
        let mut machine = Machine::new(&shared);
        for (thread, time, sleeps) in events {
            let end = machine.now + time;
            machine.run_until(end);
            if machine.parked[thread] { machine.wake(thread) } else {
                machine.park(thread, sleeps.then_some(end + time));
            }
            let wanting = machine.parked.iter().filter(|parked| !**parked).count();
            let running = machine.queues.iter().filter(|queue| queue.current().is_some()).count();
            prop_assert_eq!(running, wanting.min(3));
        }
    }
}
