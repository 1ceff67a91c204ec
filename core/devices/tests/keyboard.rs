// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is typed, and the terminal's size.

use turnstile_devices::{BACKLOG, Keyboard, Offer};

#[test]
fn what_is_typed_waits_until_it_is_taken() {
    let mut keyboard = Keyboard::default();
    assert_eq!((keyboard.offer(), keyboard.room()), ((Offer::default(), 0, false), BACKLOG as u16));
    keyboard.push(b"0123456789");
    for _ in 0..2 {
        let offer = Offer { bytes: *b"01234567", count: 8, position: 0 };
        assert_eq!(keyboard.offer(), (offer, 0, false));
        assert_eq!(keyboard.took(0), (None, false), "it has no room");
    }
    assert_eq!(keyboard.took(8), (None, true));
    assert_eq!(keyboard.offer().0, Offer { bytes: *b"89\0\0\0\0\0\0", count: 2, position: 8 });
    assert_eq!(keyboard.took(2), (Some(10), true), "nothing waits any more");
    keyboard.push(b"abc");
    assert_eq!((keyboard.clear(), keyboard.clear()), (Some(3), None));
    assert_eq!(keyboard.offer().0, Offer { position: 10, ..Offer::default() });
}

#[test]
fn more_than_there_is_room_for_is_lost() {
    let mut keyboard = Keyboard::default();
    keyboard.push(&[b'x'; BACKLOG + 5]);
    let (mut taken, mut told) = (0, 0);
    while keyboard.offer().0.count != 0 {
        taken += keyboard.offer().0.count;
        told += usize::from(keyboard.took(8).0.unwrap_or(0));
    }
    assert_eq!((taken, told), (BACKLOG, BACKLOG + 5));
}

#[test]
fn the_size_is_told_once_in_each_life() {
    let mut keyboard = Keyboard::default();
    keyboard.begin();
    assert_eq!(keyboard.offer(), (Offer::default(), 0, false), "nobody knows it");
    keyboard.resize(5);
    assert_eq!(keyboard.offer(), (Offer::default(), 5, true));
    assert_eq!((keyboard.took(0), keyboard.offer().2), ((None, false), false));
    keyboard.begin();
    assert!(keyboard.offer().2);
}

/// The device is busy with what it was offered, and takes nothing of it: a size that comes meanwhile is there for it all the same.
#[test]
fn a_size_that_comes_while_nothing_is_taken_is_not_lost() {
    let mut keyboard = Keyboard::default();
    keyboard.push(b"a");
    assert_eq!(keyboard.offer().0.count, 1);
    keyboard.resize(7);
    assert_eq!(keyboard.took(0), (None, true), "there is more for it");
    let (offer, size, is_news) = keyboard.offer();
    assert_eq!((offer.count, size, is_news), (1, 7, true));
    assert_eq!(keyboard.took(0), (None, false));
}
