// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The PL031 as its manual describes it, and its alarm against a second-by-second model.

use proptest::prelude::*;
use turnstile_devices::Pl031;

const DR: u64 = 0x00;
const MR: u64 = 0x04;
const LR: u64 = 0x08;
const CR: u64 = 0x0c;
const IMSC: u64 = 0x10;
const RIS: u64 = 0x14;
const MIS: u64 = 0x18;
const ICR: u64 = 0x1c;
const NOW: u64 = 1_800_000_000;

#[test]
fn it_shows_the_time_it_is_given_and_counts_on_from_what_is_loaded() {
    let mut clock = Pl031::new();
    assert_eq!(clock.read(NOW, DR, 4), NOW);
    clock.write(NOW, LR, 4, 1000);
    assert_eq!(
        (clock.read(NOW, DR, 4), clock.read(NOW + 5, DR, 4), clock.read(NOW, LR, 4)),
        (1000, 1005, 1000)
    );
    clock.write(NOW, LR, 4, u32::MAX.into());
    assert_eq!((clock.read(NOW, DR, 4), clock.read(NOW + 1, DR, 4)), (u32::MAX.into(), 0));
}

#[test]
fn registers() {
    let mut clock = Pl031::new();
    for (offset, value) in [(MR, 0), (LR, 0), (CR, 1), (IMSC, 0), (RIS, 0), (MIS, 0), (ICR, 0), (0x20, 0)] {
        assert_eq!(clock.read(NOW, offset, 4), value, "{offset:#x}");
    }
    for (offset, kept) in [(MR, 0xffff_fff0), (LR, 0xffff_fff0), (CR, 1), (RIS, 0), (MIS, 0), (0x20, 0)] {
        clock.write(NOW, offset, 4, 0xffff_fff0);
        assert_eq!(clock.read(NOW, offset, 4), kept, "{offset:#x}");
        clock = Pl031::new();
    }
    clock.write(NOW, IMSC, 4, 0xff);
    assert_eq!(clock.read(NOW, IMSC, 4), 1);
    clock.write(NOW, CR, 4, 0);
    assert_eq!(clock.read(NOW, CR, 4), 1, "it cannot be stopped");
    let id: Vec<_> = (0..8).map(|i| clock.read(NOW, 0xfe0 + 4 * i, 4)).collect();
    assert_eq!(id, [0x31, 0x10, 0x14, 0x00, 0x0d, 0xf0, 0x05, 0xb1]);
}

#[test]
fn the_alarm() {
    let mut clock = Pl031::new();
    clock.write(NOW, MR, 4, NOW + 3);
    assert_eq!(clock.deadline(NOW), None, "masked");
    clock.write(NOW, IMSC, 4, 1);
    assert_eq!(clock.deadline(NOW + 1), Some(2));
    clock.advance(NOW + 2);
    assert!(!clock.interrupt());
    // The caller may be late.
    clock.advance(NOW + 9);
    assert!(clock.interrupt());
    assert_eq!((clock.read(NOW + 9, RIS, 4), clock.read(NOW + 9, MIS, 4)), (1, 1));
    assert_eq!(clock.deadline(NOW + 9), None);
    clock.write(NOW + 9, IMSC, 4, 0);
    assert_eq!((clock.read(NOW + 9, RIS, 4), clock.read(NOW + 9, MIS, 4), clock.interrupt()), (1, 0, false));
    clock.write(NOW + 9, IMSC, 4, 1);
    clock.write(NOW + 9, ICR, 4, 0);
    assert!(clock.interrupt());
    clock.write(NOW + 9, ICR, 4, 1);
    assert!(!clock.interrupt());
    clock.advance(NOW + 10);
    assert!(!clock.interrupt(), "the match is over");
    clock.write(NOW + 10, MR, 4, NOW + 10);
    assert!(clock.interrupt(), "a match with the present");
}

proptest! {
    #[test]
    fn the_alarm_rises_in_the_second_of_the_match(
        steps in prop::collection::vec((0..4u8, 0..20u32, 0..6u64), 1..40), start in prop_oneof![Just(NOW), Just(u64::from(u32::MAX) - 8)],
    ) {
        let mut clock = Pl031::new();
        clock.write(start, IMSC, 4, 1);
        // The model goes through every second.
        let (mut now, mut count, mut matched, mut raw) = (start, start as u32, 0u32, false);
        for (operation, near, seconds) in steps {
            for _ in 0..seconds {
                (now, count) = (now + 1, count.wrapping_add(1));
                raw |= count == matched;
            }
            let value = count.wrapping_add(near).wrapping_sub(5);
            match operation {
                0 => { clock.write(now, MR, 4, value.into()); matched = value; raw |= count == matched; }
                1 => { clock.write(now, LR, 4, value.into()); count = value; raw |= count == matched; }
                2 => { clock.write(now, ICR, 4, 1); raw = false; }
                _ => clock.advance(now),
            }
            prop_assert_eq!((clock.interrupt(), clock.read(now, DR, 4)), (raw, count.into()));
            if let Some(seconds) = clock.deadline(now) {
                prop_assert!(!raw && seconds > 0);
                prop_assert_eq!(count.wrapping_add(seconds as u32), matched);
            }
        }
    }

    #[test]
    fn any_access_is_answered(accesses in prop::collection::vec(
        (any::<bool>(), prop_oneof![0..0x30u64, 0xfd0..0x1010u64, any::<u64>()], any::<u8>(), any::<u64>(), any::<u64>()), 1..200,
    )) {
        let mut clock = Pl031::new();
        for (is_write, offset, size, value, now) in accesses {
            if is_write {
                clock.write(now, offset, size, value);
            } else {
                let found = clock.read(now, offset, size);
                prop_assert!(found == 0 || offset % 4 == 0 && offset < 0x1000);
            }
            prop_assert!(!clock.interrupt() || clock.read(now, MIS, 4) == 1);
            let _ = clock.deadline(now);
        }
    }
}
