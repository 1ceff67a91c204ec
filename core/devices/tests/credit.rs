// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Flow control of a serial line.

use proptest::prelude::*;
use turnstile_devices::{BACKLOG, Credit};

#[test]
fn room_is_told_in_batches_and_when_nothing_waits() {
    let mut credit = Credit::new();
    assert_eq!((credit.freed(0), credit.room()), (None, 1024));
    credit.arrived(1);
    assert_eq!((credit.freed(1), credit.room()), (None, 1023), "the guest has not read it");
    assert_eq!((credit.freed(0), credit.freed(0), credit.room()), (Some(1), None, 1024));
    credit.arrived(BACKLOG);
    assert_eq!(credit.freed(BACKLOG - 255), None);
    assert_eq!(credit.freed(BACKLOG - 256), Some(256));
    assert_eq!(credit.freed(BACKLOG - 300), None);
    assert_eq!((credit.room(), credit.freed(0), credit.room()), (256, Some(768), 1024));
}

#[test]
fn bytes_that_were_not_sent_count_for_nothing() {
    let mut credit = Credit::new();
    credit.arrived(10);
    // In loopback the guest fills its own backlog.
    assert_eq!(credit.freed(500), None);
    assert_eq!(credit.freed(0), Some(10));
}

proptest! {
    /// A sender that keeps to what it is told never finds the backlog full, and gets everything through.
    #[test]
    fn obedient_sender_loses_nothing(steps in prop::collection::vec((0..600usize, 0..40usize), 1..200), total in 0..30_000usize) {
        let (mut credit, mut waiting, mut room, mut left) = (Credit::new(), 0, BACKLOG, total);
        let drained = std::iter::repeat_n((usize::MAX, usize::MAX), 2 * total / BACKLOG * 4 + 8);
        for (wanted, read) in steps.into_iter().chain(drained) {
            let sent = wanted.min(room).min(left);
            credit.arrived(sent);
            (room, left, waiting) = (room - sent, left - sent, waiting + sent);
            prop_assert!(waiting <= BACKLOG);
            waiting -= waiting.min(read);
            room += credit.freed(waiting).map_or(0, usize::from);
            prop_assert!(room <= BACKLOG && usize::from(credit.room()) == room);
        }
        prop_assert_eq!((left, waiting, room), (0, 0, BACKLOG));
    }
}
