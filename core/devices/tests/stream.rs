// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Streams: flow control, and who is there.

use proptest::prelude::*;
use turnstile_devices::{BACKLOG, Offer, Stream, Told};

const CLOSED: Told = Told { closed: true, room: None };

fn news(stream: &mut Stream) {
    assert_eq!(stream.offer().map(|offer| offer.count), Some(0));
}

#[test]
fn somebody_comes_and_goes() {
    let mut stream = Stream::new();
    assert_eq!((stream.offer(), stream.close()), (None, CLOSED), "nobody was there");
    stream.push(b"nobody sends this");
    stream.add_room(5);
    assert_eq!((stream.send(7), stream.state()), (7, (false, u64::MAX, 7)), "nobody has it");
    assert_eq!(stream.open(10), Some(BACKLOG as u16));
    assert_eq!(stream.open(10), None, "one is there");
    news(&mut stream);
    assert_eq!((stream.took(0, 0), stream.offer()), (Told::default(), None));
    stream.push(b"0123456789");
    let offer = stream.offer().unwrap();
    assert_eq!(offer, Offer { bytes: *b"01234567", count: 8, position: 0 });
    assert_eq!(stream.close(), Told::default());
    assert_eq!(stream.took(8, 8), Told::default(), "the device was not told yet");
    assert_eq!((stream.open(10), stream.close()), (None, Told::default()));
    news(&mut stream);
    assert_eq!((stream.took(0, 0), stream.offer()), (CLOSED, None), "what it did not take is gone");
    assert!(stream.open(10).is_some());
    stream.push(b"x");
    news(&mut stream);
    assert_eq!(stream.offer().unwrap().position, 8, "the count goes on");
}

#[test]
fn what_is_refused_waits_and_what_is_sent_waits_for_room() {
    let mut stream = Stream::new();
    stream.open(20);
    news(&mut stream);
    stream.push(b"abc");
    assert!(stream.has_offer() && stream.offer().is_some());
    stream.took(3, 0);
    assert!(!stream.has_offer());
    stream.push(b"d");
    assert_eq!(stream.offer(), None);
    stream.offer_again();
    assert_eq!(stream.offer().map(|offer| offer.count), Some(4));
    assert_eq!(stream.took(4, 4).room, Some(4));
    assert_eq!((stream.send(16), stream.send(16), stream.send(16)), (16, 4, 0));
    assert_eq!(stream.state(), (true, 0, 20));
    stream.add_room(u16::MAX);
    stream.add_room(u16::MAX);
    news(&mut stream);
    assert_eq!(stream.state(), (true, u16::MAX.into(), 20));
}

#[test]
fn a_guest_that_goes_takes_all_with_it() {
    let mut stream = Stream::new();
    stream.open(20);
    stream.push(b"abc");
    stream.send(2);
    assert_eq!(stream.end(), Told::default());
    assert_eq!((stream.offer(), stream.state()), (None, (false, u64::MAX, 2)));
    stream.open(20);
    stream.close();
    assert_eq!(stream.end(), CLOSED, "who waits for that is told");
    assert_eq!(stream.close(), CLOSED);
}

proptest! {
    /// Whoever keeps to the room loses nothing, in neither direction.
    #[test]
    fn nothing_is_lost(seed in prop::collection::vec((0u8..4, 0usize..40), 1..400)) {
        let mut stream = Stream::new();
        let (mut room, mut pushed, mut got, mut owed) = (stream.open(0).unwrap(), 0u8, 0u8, 0usize);
        for (what, amount) in seed {
            match what {
                0 => {
                    let count = amount.min(room.into());
                    let bytes: Vec<u8> = (0..count).map(|at| pushed.wrapping_add(at as u8)).collect();
                    stream.push(&bytes);
                    (pushed, room) = (pushed.wrapping_add(count as u8), room - count as u16);
                }
                1 => {
                    stream.offer_again();
                    if let Some(offer) = stream.offer() {
                        let taken = amount.min(offer.count);
                        for byte in &offer.bytes[..taken] {
                            prop_assert_eq!(*byte, got);
                            got = got.wrapping_add(1);
                        }
                        room += stream.took(offer.count, taken).room.unwrap_or(0);
                    }
                }
                2 => {
                    stream.add_room(amount as u16);
                    owed += amount;
                }
                _ => {
                    let sent = stream.send(amount);
                    prop_assert_eq!(sent, amount.min(owed));
                    owed -= sent;
                }
            }
            prop_assert!(room <= BACKLOG as u16);
        }
    }
}
