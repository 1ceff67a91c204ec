// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The 8254 against the data sheet's waveforms, tick by tick.

use proptest::prelude::*;
use turnstile_devices::{I8254, I8254_FREQUENCY};

/// The middle of a tick.
fn at(tick: u64) -> u64 {
    ((2 * tick + 1) * 1_000_000_000).div_ceil(2 * I8254_FREQUENCY)
}

/// Channel 2 in a mode, with a count loaded at tick 0: what is counted from tick 1 on.
fn channel2(mode: u8, count: u16, gate: bool) -> I8254 {
    let mut pit = I8254::new();
    pit.write(0x61, gate.into(), at(0));
    pit.write(0x43, 0xb0 | mode << 1, at(0));
    pit.write(0x42, count as u8, at(0));
    pit.write(0x42, (count >> 8) as u8, at(0));
    pit
}

fn output(pit: &mut I8254, tick: u64) -> bool {
    pit.read(0x61, at(tick)) & 0x20 != 0
}

fn count(pit: &mut I8254, channel: u8, tick: u64) -> u16 {
    pit.write(0x43, channel << 6, at(tick));
    let port = 0x40 + u16::from(channel);
    let low = pit.read(port, at(tick + 5));
    u16::from(pit.read(port, at(tick + 9))) << 8 | u16::from(low)
}

fn outputs(pit: &mut I8254, ticks: core::ops::Range<u64>) -> String {
    ticks.map(|tick| if output(pit, tick) { '1' } else { '0' }).collect()
}

#[test]
fn the_output_of_each_mode() {
    assert_eq!(outputs(&mut channel2(0, 4, true), 0..9), "000001111");
    assert_eq!(outputs(&mut channel2(2, 3, true), 1..10), "110110110");
    assert_eq!(outputs(&mut channel2(3, 4, true), 1..10), "110011001");
    assert_eq!(outputs(&mut channel2(3, 5, true), 1..11), "1110011100");
    assert_eq!(outputs(&mut channel2(4, 3, true), 1..8), "1110111");
}

#[test]
fn a_gate_triggers_modes_one_and_five() {
    for (mode, wave) in [(1, "0001111"), (5, "1110111")] {
        let mut pit = channel2(mode, 3, false);
        assert_eq!(outputs(&mut pit, 1..20), "1".repeat(19));
        pit.write(0x61, 1, at(20));
        assert_eq!(outputs(&mut pit, 21..28), wave, "mode {mode}");
    }
}

#[test]
fn a_gate_that_stays_high_triggers_nothing() {
    let mut pit = channel2(1, 3, true);
    pit.write(0x61, 1, at(5));
    assert_eq!(outputs(&mut pit, 6..12), "111111");
    let mut pit = channel2(0, 100, true);
    pit.write(0x61, 3, at(50));
    assert!(output(&mut pit, 101));
}

#[test]
fn a_low_gate_holds_mode_zero() {
    let mut pit = channel2(0, 100, true);
    assert_eq!(count(&mut pit, 2, 11), 90);
    pit.write(0x61, 0, at(11));
    assert_eq!(count(&mut pit, 2, 5000), 90);
    pit.write(0x61, 1, at(6000));
    assert!(!output(&mut pit, 6090));
    assert!(output(&mut pit, 6091));
}

#[test]
fn counts_go_down_and_wrap() {
    let mut pit = channel2(0, 10, true);
    assert_eq!([1, 4, 11, 12].map(|tick| count(&mut pit, 2, tick)), [10, 7, 0, 0xffff]);
    let mut pit = channel2(2, 10, true);
    assert_eq!([1, 4, 10, 11].map(|tick| count(&mut pit, 2, tick)), [10, 7, 1, 10]);
    let mut pit = channel2(3, 10, true);
    assert_eq!([1, 2, 5, 6, 7, 11].map(|tick| count(&mut pit, 2, tick)), [10, 8, 2, 10, 8, 10]);
}

#[test]
fn bcd_counts_in_decimal() {
    let mut pit = I8254::new();
    pit.write(0x43, 0x31, at(0));
    pit.write(0x40, 0x00, at(0));
    pit.write(0x40, 0x10, at(0));
    assert_eq!(count(&mut pit, 0, 2), 0x0999);
    assert_eq!(count(&mut pit, 0, 1002), 0x9999);
}

#[test]
fn a_new_period_begins_after_the_old_one() {
    let mut pit = channel2(2, 5, true);
    pit.write(0x42, 3, at(2));
    pit.write(0x42, 0, at(2));
    assert_eq!(outputs(&mut pit, 1..13), "111101101101");
}

#[test]
fn read_back_latches_count_and_status() {
    let mut pit = channel2(2, 1000, true);
    pit.write(0x43, 0xc8, at(101));
    assert_eq!(pit.read(0x42, at(200)), 0xb4, "output high, both bytes, mode 2");
    assert_eq!([pit.read(0x42, at(300)), pit.read(0x42, at(400))], [132, 3], "900");
    pit.write(0x43, 0xb4, at(500));
    pit.write(0x43, 0xe8, at(500));
    assert_eq!(pit.read(0x42, at(501)) & 0x40, 0x40, "no count is there yet");
}

#[test]
fn channel_zero_rings_once_each_period() {
    let mut pit = I8254::new();
    assert_eq!(pit.deadline(), None);
    for (port, value) in [(0x43, 0x34), (0x40, 0xe8), (0x40, 3)] {
        pit.write(port, value, at(0));
    }
    for edge in [1001u64, 2001, 3001] {
        let deadline = pit.deadline().expect("it counts");
        assert_eq!(deadline, (edge * 1_000_000_000).div_ceil(I8254_FREQUENCY));
        assert!(!pit.ring(deadline - 1));
        assert!(pit.ring(deadline));
        assert!(!pit.ring(deadline + 1000));
    }
    assert!(pit.ring(at(9_500)));
    assert!(!pit.ring(at(9_999)), "edges in between are one");
}

/// Channel 0 rings with this period, from tick 0 on.
fn ringing(count: u16) -> I8254 {
    let mut pit = I8254::new();
    for (port, value) in [(0x43, 0x34), (0x40, count as u8), (0x40, (count >> 8) as u8)] {
        pit.write(port, value, at(0));
    }
    pit
}

/// How many edges are owed; takes them.
fn owed(pit: &mut I8254) -> usize {
    core::iter::from_fn(|| pit.make_up().then_some(())).count()
}

#[test]
fn edges_that_nobody_asked_for_are_owed() {
    let mut pit = ringing(1000);
    assert!(pit.ring(at(1001)));
    assert!(!pit.owes(), "asked in time");
    assert!(pit.ring(at(5_500)));
    assert!(pit.owes());
    assert!(pit.make_up(), "2001 was reported, 3001 is owed");
    // Between two looks none is counted twice.
    assert!(!pit.ring(at(5_999)));
    assert!(pit.ring(at(7_001)));
    assert_eq!(owed(&mut pit), 2 + 1, "4001 and 5001; of 6001 and 7001 one");
    assert_eq!(owed(&mut pit), 0);
}

#[test]
fn no_more_edges_are_owed_than_a_guest_can_take() {
    let mut pit = ringing(1000);
    assert!(pit.ring(at(1_000_000)));
    assert_eq!(owed(&mut pit), I8254::MOST_OWED as usize);
    // Edges every two ticks, looked at once in three of the shortest times.
    let mut pit = ringing(2);
    assert!(pit.ring(at(3 * I8254::SHORTEST + 3)));
    assert_eq!(owed(&mut pit), 3);
}

#[test]
fn a_new_count_ends_the_debt() {
    let mut pit = ringing(1000);
    assert!(pit.ring(at(9_500)) && pit.owes());
    pit.write(0x40, 0xe8, at(9_600));
    assert!(pit.owes(), "half a count");
    pit.write(0x40, 3, at(9_600));
    assert!(!pit.owes());
    assert!(pit.ring(at(11_000)), "the last period of the old count");
    assert!(pit.ring(at(20_000)) && pit.owes());
    pit.write(0x43, 0x30, at(20_100));
    assert!(!pit.owes(), "a control word");
    for mode in [0, 4] {
        pit.write(0x43, 0x30 | mode << 1, at(20_200));
        pit.write(0x40, 10, at(20_200));
        pit.write(0x40, 0, at(20_200));
        assert!(pit.ring(at(40_000)));
        assert!(!pit.owes(), "it rings once");
    }
}

#[test]
fn one_shots_ring_once() {
    for (mode, edge) in [(0u8, 501u64), (4, 502)] {
        let mut pit = I8254::new();
        for (port, value) in [(0x43, 0x30 | mode << 1), (0x40, 0xf4), (0x40, 1)] {
            pit.write(port, value, at(0));
        }
        assert!(!pit.ring(at(edge - 1)));
        assert!(pit.ring(at(edge)));
        assert_eq!((pit.deadline(), pit.ring(at(1 << 20))), (None, false));
    }
}

#[test]
fn the_refresh_bit_toggles() {
    let mut pit = I8254::new();
    let bits: Vec<u8> = (0..72).map(|tick| pit.read(0x61, at(tick)) & 0x10).collect();
    assert_eq!(bits.windows(2).filter(|pair| pair[0] != pair[1]).count(), 3);
}

proptest! {
    #[test]
    fn edges_are_those_of_the_output(mode in 0u8..6, count in 2u16..40, end in 1u64..200) {
        let mut shown = channel2(mode, count, true);
        let levels: Vec<bool> = (1..=end).map(|tick| output(&mut shown, tick)).collect();
        let rises = levels.windows(2).filter(|pair| !pair[0] && pair[1]).count();
        let mut pit = I8254::new();
        for (port, value) in [(0x43, 0x30 | mode << 1), (0x40, count as u8), (0x40, 0)] {
            pit.write(port, value, at(0));
        }
        let rings = (1..=end).filter(|tick| pit.ring(at(*tick))).count();
        // Channel 0's gate never rises: the modes that wait for it do nothing.
        prop_assert_eq!(rings, rises);
    }

    #[test]
    fn any_ports_values_and_times(acts in proptest::collection::vec((0u16..5, any::<u8>(), any::<u64>()), 0..100)) {
        let mut pit = I8254::new();
        for (port, value, now) in acts {
            let port = [0x40, 0x41, 0x42, 0x43, 0x61][usize::from(port)];
            pit.write(port, value, now >> 2);
            pit.read(port, now >> 1);
            pit.ring(now);
            let (deadline, shortest) = (pit.deadline(), I8254::SHORTEST * 1_000_000_000 / I8254_FREQUENCY);
            prop_assert!(deadline.is_none_or(|deadline| deadline > shortest));
        }
    }
}
